"""Whether a reply says anything: a repetition loop is fast to draft and worth nothing.

Rule: a loop is one run of the same words over and over that covers more than half of the reply;
short replies are never called loops.
"""

from collections.abc import Sequence

MIN_UNITS = 16
"""Shorter replies may well repeat a word or two."""
MAX_PERIOD = 48
"""Longest phrase, in words, whose repetition is looked for."""
MIN_REPEATS = 3
LONGEST_WORD = 20
"""Above this mean length the text is not written in words with spaces between them: characters."""


def looping(text: str) -> bool:
    """Whether one phrase, repeated at least three times in a row, is most of the reply."""
    units = _units(text)
    if len(units) < MIN_UNITS:
        return False
    return any(_covers(units, period) for period in range(1, MAX_PERIOD + 1))


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
