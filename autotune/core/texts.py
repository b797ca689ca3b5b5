"""Whether a reply says anything: a repetition loop, or broken JSON, is fast and worth nothing.

Rules: a loop is one run of the same words over and over that covers more than half of the reply;
short replies are never called loops. JSON is what Python's parser takes, whatever schema was asked.
"""

import json
from collections.abc import Mapping, Sequence

from autotune.core.jsontype import JSON

MIN_UNITS = 16
"""Shorter replies may well repeat a word or two."""
MAX_PERIOD = 48
"""Longest phrase, in words, whose repetition is looked for."""
MIN_REPEATS = 3
LONGEST_WORD = 20
"""Above this mean length the text is not written in words with spaces between them: characters."""
_JSON_FORMATS = ("json_object", "json_schema")


def looping(text: str) -> bool:
    """Whether one phrase, repeated at least three times in a row, is most of the reply."""
    units = _units(text)
    if len(units) < MIN_UNITS:
        return False
    return any(_covers(units, period) for period in range(1, MAX_PERIOD + 1))


def asks_for_json(response_format: Mapping[str, JSON] | None) -> bool:
    """Whether replies in this format, as vLLM takes it, are JSON."""
    return response_format is not None and response_format.get("type") in _JSON_FORMATS


def is_json(text: str) -> bool:
    """Whether a parser takes the whole text."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):  # nested deeper than any reader follows
        return False
    return True


def _units(text: str) -> Sequence[str]:
    words = text.split()
    return list(text) if words and len(text) > LONGEST_WORD * len(words) else words


def _covers(units: Sequence[str], period: int) -> bool:
    """Whether a run of repetitions of so many units is long enough."""
    need = max(MIN_REPEATS * period, len(units) // 2 + 1)
    if need > len(units):
        return False
    run = period
    for i in range(period, len(units)):
        run = run + 1 if units[i] == units[i - period] else period
        if run >= need:
            return True
    return False
