"""Where a fault is said to be: places in the file, and errors that name several at once.

Rule: a place is the chain of keys and list positions as pydantic writes it; dashes and underscores
are the same; a place that the file does not have is shown at the nearest one that it has.
"""

import re
from collections.abc import Mapping, Sequence

from autotune.errors import Fault

Place = tuple[str | int, ...]
Said = tuple[Place, str]
"""A place relative to some section, and what is wrong there."""


class SeveralFaultsError(ValueError):
    """What a validator raises when more than one thing is wrong, each at its own place."""

    def __init__(self, faults: Sequence[Said]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(message for _, message in faults))


def raise_if_any(faults: Sequence[Said]) -> None:
    """Raise the faults together, if there are any."""
    if faults:
        raise SeveralFaultsError(faults)


def dotted(place: Place) -> str:
    """`candidates[2].model`, as people write it."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return text.removeprefix(".")


def plain(place: Place) -> Place:
    """The place with underscores for dashes, under which its line is kept as well."""
    return tuple(p.replace("-", "_") if isinstance(p, str) else p for p in place)


def line_of(lines: Mapping[Place, int], place: Place) -> int | None:
    """The line of a place or of the nearest one around it."""
    for end in range(len(place), -1, -1):
        for known in (place[:end], plain(place[:end])):
            if known in lines:
                return lines[known]
    return None


def fault_at(lines: Mapping[Place, int], place: Place, message: str) -> Fault:
    """A fault with its line; a rule about a section points at the key that it names first."""
    exact = _named_key(lines, place, message) or place
    return Fault(path=dotted(exact), line=line_of(lines, exact), message=message)


def _named_key(lines: Mapping[Place, int], place: Place, message: str) -> Place | None:
    rule = message.partition(":")[0]
    keys = [k[-1] for k in lines if len(k) == len(place) + 1 and k[:-1] == place]
    found = {
        hit.start(): key
        for key in keys
        if isinstance(key, str) and (hit := re.search(rf"\b{re.escape(key)}\b", rule))
    }
    return (*place, found[min(found)]) if found else None
