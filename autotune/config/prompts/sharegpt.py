"""ShareGPT: conversations of {from, value}; the first turn of the human is the prompt.

Rule: as in vLLM's loader (ShareGPTDataset in vllm/benchmarks/datasets/datasets.py) a conversation
of fewer than two turns is passed over; so is one in which no human says anything.
"""

from autotune.config.prompts._row import id_of, mapping, user
from autotune.config.values import shown
from autotune.core.jsontype import JSON
from autotune.core.workload import Prompt

_HUMAN = ("human", "user")
_TURNS = 2


def prompt(row: JSON) -> Prompt | None:
    """The prompt of a conversation; None if there is none in it."""
    found = mapping(row, "conversations")
    turns = found.get("conversations")
    if not isinstance(turns, list):
        raise ValueError(  # noqa: TRY004 - a fault of the file
            f'"conversations" is a list of {{"from": ..., "value": ...}}, got {shown(turns)}'
        )
    said = [_human(turn) for turn in turns]
    first = next((text for text in said if text), None)
    if first is None or len(turns) < _TURNS:
        return None
    messages = (user(first),)
    return Prompt(id=id_of(found, "id", messages), messages=messages)


def _human(turn: JSON) -> str:
    """What the human says in a turn; nothing in those of others."""
    if not isinstance(turn, dict) or "from" not in turn or not isinstance(turn.get("value"), str):
        raise ValueError(f'a turn has "from" and "value", got {shown(turn)}')
    text = str(turn["value"])
    return text if turn["from"] in _HUMAN and text.strip() else ""
