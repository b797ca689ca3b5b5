"""What must not leave the machine: values of settings that look like credentials.

Rule: the name decides, never the value; the name is shown, so that a reader knows what to set.
"""

import re
from collections.abc import Mapping

_SECRET = re.compile(
    r"(api|access|private|auth)[_-]?key|secret|passw(or)?d|credential|(^|[_-])token$",
    re.IGNORECASE,
)


def is_secret(name: str) -> bool:
    """Whether a variable or argument of this name holds a credential."""
    return _SECRET.search(name) is not None


def shown(values: Mapping[str, str]) -> dict[str, str]:
    """The values that may be shown, by name."""
    return {name: values[name] for name in sorted(values) if not is_secret(name)}


def withheld(values: Mapping[str, str]) -> list[str]:
    """The names whose values must not be shown."""
    return sorted(name for name in values if is_secret(name))
