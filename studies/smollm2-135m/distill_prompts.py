"""The distillation prompts: 29 families of short tasks, joined from word lists by a seeded draw.

The drafts learn from the target's answers to these. The demo measures on prompts.jsonl, which
people wrote; so that no draft is examined on what it was taught, every prompt that shares an
opening or seven words in a row with one of those is left out (`free_of_overlap`).
"""

import json
import random
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import distill_talk as talk
import distill_texts as texts

Family = Callable[[random.Random], str]
OPENING = 5  # this many equal words at the start make two prompts one template
RUN = 7  # and so do this many equal words in a row anywhere

# how often a family gets a turn for each turn of the others
SHARES: tuple[tuple[Family, int], ...] = (
    *((talk.mood, 1), (talk.small_talk, 1), (talk.first_steps, 1), (talk.roles, 1)),
    *((talk.explain, 3), (talk.aspects, 2), (talk.versus, 1), (talk.figures, 1), (talk.places, 1)),
    *((texts.code, 4), (texts.read_code, 2), (texts.tools, 1)),
    *((texts.shorten, 3), (texts.rewrite, 2), (texts.question, 1), (texts.pick_out, 3)),
    *((texts.tidy, 2), (texts.sort_into, 1)),
    *((texts.translate, 2), (texts.phrases, 1), (texts.grammar, 1)),
    *((talk.story, 1), (talk.verse, 1), (talk.letter, 2), (talk.advert, 1), (talk.lists, 2)),
    *((talk.steps, 2), (talk.sums, 1), (talk.patterns, 1)),
)


def draw(count: int, seed: int) -> list[str]:
    """`count` different prompts, the families taking turns so that any prefix is a fair mix."""
    rng = random.Random(seed)  # no secret hangs on it
    drawn: dict[str, None] = {}
    while len(drawn) < count:
        turn = [family for family, share in SHARES for _ in range(share)]
        rng.shuffle(turn)
        for family in turn:
            drawn.setdefault(family(rng), None)
    return list(drawn)[:count]


# --- no prompt of the measurement -------------------------------------------------------------


def normal_words(text: str) -> list[str]:
    """The words of a prompt, without case and punctuation."""
    return re.findall(r"\w+", text.lower())


def marks(text: str) -> set[tuple[str, ...]]:
    """What two prompts of one template share: the opening words, and each run of seven."""
    split = normal_words(text)
    runs = {tuple(split[at : at + RUN]) for at in range(len(split) - RUN + 1)}
    return runs | {("^", *split[:OPENING])}


def measured_prompts(path: Path) -> list[str]:
    """What users say in prompts.jsonl, both splits."""
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    return [
        str(message["content"])
        for row in rows
        for message in row["messages"]
        if message["role"] == "user"
    ]


def free_of_overlap(prompts: Iterable[str], measured: Iterable[str]) -> list[str]:
    """Those `prompts` that share no template with a measured one."""
    taken = {mark for text in measured for mark in marks(text)}
    return [prompt for prompt in prompts if not marks(prompt) & taken]
