"""The target's own answers, with the feature behind every token: what the drafts learn from.

Answers are greedy, because the demo decodes at temperature 0 and a draft gains nothing from
learning answers that are never given. One batch is one file, written whole or not at all, so a
killed run goes on where it stopped; batches depend on the seed alone, not on where it stopped.
"""

import multiprocessing
import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import distill_prompts as prompts
import torch
from distill_llama import Cache, Llama, load_target, rotation_at
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

SEED = 17
BATCH = 192  # answers at a time; beyond, the cache outgrows what it saves
WINDOW = 1152  # prompts sorted by length within this many: little padding, still a fair mix
LENGTHS = (96, 128, 160)  # answer tokens at most, by batch
CROWDED = 0.9  # of a batch's rows still going: below, the others are dropped from the cache
LONGEST_PROMPT = 224
STOP = 2  # <|im_end|>
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
OTHER_SYSTEMS = ("You are a helpful assistant.", "Answer briefly.", "You are a careful expert.")
PLAIN_SHARE = 0.9  # of the prompts keep the system text that the chat template puts in


@dataclass(frozen=True)
class Sequence:
    """One prompt with its answer; `features[i]` is what the target predicts token i + 1 from."""

    tokens: Tensor
    prompt_length: int
    features: Tensor


def prompt_tokens(tokenizer: Tokenizer, count: int, measured: Path) -> list[list[int]]:
    """The distillation prompts in chat form, as token ids."""
    drawn = prompts.free_of_overlap(prompts.draw(count, SEED), prompts.measured_prompts(measured))
    rng = random.Random(SEED)  # no secret hangs on it
    chats = [_chat(text, rng) for text in drawn]
    ids = [encoding.ids for encoding in tokenizer.encode_batch(chats, add_special_tokens=False)]
    return [row for row in ids if len(row) <= LONGEST_PROMPT]


def _chat(text: str, rng: random.Random) -> str:
    system = SYSTEM if rng.random() < PLAIN_SHARE else rng.choice(OTHER_SYSTEMS)
    return (
        f"<|im_start|>system\n{system}<|im_end|>\n"
        f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    )


def batches(rows: list[list[int]]) -> list[list[list[int]]]:
    """Prompts of like length together, window by window, the batches of a window shuffled."""
    rng = random.Random(SEED)
    found = []
    for start in range(0, len(rows), WINDOW):
        window = sorted(rows[start : start + WINDOW], key=len)
        cut = [window[at : at + BATCH] for at in range(0, len(window), BATCH)]
        rng.shuffle(cut)
        found += cut
    return found


def generate(target_folder: Path, rows: list[list[int]], folder: Path, count: int) -> Iterator[str]:
    """Write the first `count` batches that are not there yet; yield a line for each.

    One process with one thread for each core: threads that share a batch wait for each other
    whenever something else runs on the machine.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tasks = [
        (folder / f"batch-{number:03}.safetensors", batch, LENGTHS[number % len(LENGTHS)])
        for number, batch in enumerate(batches(rows)[:count])
    ]
    missing = [task for task in tasks if not task[0].exists()]
    yield f"{len(tasks) - len(missing)} of {len(tasks)} batches are there"
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(os.cpu_count(), initializer=_enter, initargs=(target_folder,)) as pool:
        yield from pool.imap_unordered(_write_batch, missing)


_target: list[tuple[Llama, Tensor]] = []  # of this process


def _enter(folder: Path) -> None:
    torch.set_num_threads(1)
    _target.append(load_target(folder))


def _write_batch(task: tuple[Path, list[list[int]], int]) -> str:
    path, rows, longest = task
    start = time.monotonic()
    found = answer(*_target[0], rows, longest)
    save(found, path)
    tokens = sum(len(s.tokens) - s.prompt_length for s in found)
    return (
        f"{path.name}: {tokens} answer tokens, {tokens / (time.monotonic() - start):.0f} a second"
    )


# --- one batch --------------------------------------------------------------------------------


@torch.inference_mode()
def answer(
    target: Llama, embeddings: Tensor, rows: list[list[int]], longest: int
) -> list[Sequence]:
    """Greedy answers to `rows`, all at once."""
    wave = Wave(target, embeddings, rows, longest)
    for _ in range(longest - 1):
        if not wave.step():
            break
    return wave.sequences()


class Wave:
    """Prompts answered together: padded on the right, the answers from a common slot on."""

    def __init__(
        self, target: Llama, embeddings: Tensor, rows: list[list[int]], longest: int
    ) -> None:
        self.target, self.embeddings, self.rows = target, embeddings, rows
        self.lengths = torch.tensor([len(row) for row in rows])
        self.width = int(self.lengths.max())
        self.caches = [Cache(len(rows), self.width + longest) for _ in target.layers]
        self.mask = torch.zeros(len(rows), self.width + longest, dtype=torch.bfloat16)
        self.mask[:, : self.width].masked_fill_(
            torch.arange(self.width) >= self.lengths[:, None], float("-inf")
        )
        self.alive = torch.arange(len(rows))  # which prompt each row of the cache belongs to
        self.going = torch.ones(len(rows), dtype=torch.bool)
        self.answers: list[list[int]] = [[] for _ in rows]
        self.features: list[list[Tensor]] = [[] for _ in rows]
        self.slot = self.width
        self._prefill()

    def _prefill(self) -> None:
        padded = torch.tensor([row + [STOP] * (self.width - len(row)) for row in self.rows])
        x = functional.embedding(padded, self.embeddings)
        positions = torch.arange(self.width).expand(len(self.rows), -1)
        attends = [cache.prefill for cache in self.caches]
        features = self.target(x, rotation_at(positions, x.dtype), attends)
        for index, row in enumerate(self.rows):
            self.features[index].append(features[index, : len(row)])
        self._choose(features[torch.arange(len(self.rows)), self.lengths - 1])

    def _choose(self, features: Tensor) -> None:
        """Take the likeliest token of each row that goes on."""
        self.last = (features @ self.embeddings.T).argmax(-1)
        tokens, going = self.last.tolist(), self.going.tolist()
        for row, index in enumerate(self.alive.tolist()):
            if going[row]:
                self.answers[index].append(tokens[row])
        self.going &= self.last != STOP
        if int(self.going.sum()) < CROWDED * len(self.going):
            self._keep(self.going.nonzero()[:, 0])

    def _keep(self, rows: Tensor) -> None:
        """Drop the rows that have ended: a copy of all caches, so not for each one."""
        self.alive, self.last, self.mask = self.alive[rows], self.last[rows], self.mask[rows]
        self.going = self.going[rows]
        for cache in self.caches:
            cache.keep(rows)

    def step(self) -> bool:
        """One more token for each row that goes on; False when none does."""
        if not bool(self.going.any()):
            return False
        x = functional.embedding(self.last[:, None], self.embeddings)
        positions = (self.lengths[self.alive] + self.slot - self.width)[:, None]
        attends = [cache.step(self.slot, self.mask) for cache in self.caches]
        features = self.target(x, rotation_at(positions, x.dtype), attends)[:, 0]
        going = self.going.tolist()
        for row, index in enumerate(self.alive.tolist()):
            if going[row]:
                self.features[index].append(features[row : row + 1])
        self.slot += 1
        self._choose(features)
        return True

    def sequences(self) -> list[Sequence]:
        """What was asked and answered. The last token was never fed: it has no feature."""
        return [
            Sequence(torch.tensor(row + answer), len(row), torch.cat(features))
            for row, answer, features in zip(self.rows, self.answers, self.features, strict=True)
        ]


# --- files ------------------------------------------------------------------------------------


def save(sequences: list[Sequence], path: Path) -> None:
    """Write a batch; the file appears only when it is whole."""
    lengths = [(s.prompt_length, len(s.tokens)) for s in sequences]
    partial = path.with_suffix(".partial")
    content = {
        "lengths": torch.tensor(lengths),
        "tokens": torch.cat([s.tokens for s in sequences]).to(torch.int32),
        "features": torch.cat([s.features for s in sequences]),
    }
    save_file(content, partial)
    partial.rename(path)


def load(path: Path) -> list[Sequence]:
    """Read a batch back."""
    content = load_file(path)
    lengths = content["lengths"].tolist()
    tokens = content["tokens"].long().split([total for _, total in lengths])
    features = content["features"].split([total - 1 for _, total in lengths])
    return [
        Sequence(row, prompt, feature)
        for row, feature, (prompt, _) in zip(tokens, features, lengths, strict=True)
    ]
