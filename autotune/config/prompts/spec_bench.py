"""Spec-Bench's question.jsonl (and MT-Bench's): questions of one or several turns.

Rule: every turn is asked; a later one after the reply to the one before, in the same conversation.
"""

from autotune.config.prompts._row import id_of, mapping, text_of, user, words
from autotune.config.values import shown
from autotune.core.jsontype import JSON
from autotune.core.workload import Prompt


def prompt(row: JSON) -> Prompt:
    """The conversation of a question."""
    found = mapping(row, "turns")
    turns = found.get("turns")
    if not isinstance(turns, list) or not turns:
        raise ValueError(f'"turns" is a list of at least one text, got {shown(turns)}')
    first, *later = (words(turn, "a turn") for turn in turns)
    messages = (user(first),)
    return Prompt(
        id=id_of(found, "question_id" if "question_id" in found else "id", messages, later),
        messages=messages,
        task=text_of(found, "category"),
        later_turns=tuple(later),
    )
