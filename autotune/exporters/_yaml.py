"""YAML that every safe loader reads back as it was written.

Rules: plain scalars only (a numpy number becomes a Python one, anything else is refused); the
order of the keys is the caller's; what is handed out has been read back and compared.
"""

from collections.abc import Mapping
from numbers import Integral, Real

import yaml

from autotune.core.jsontype import JSON


def plain(value: object) -> JSON:
    """The same value in Python's own types; raises TypeError for what YAML could not carry."""
    match value:
        case None | bool() | str():
            return value
        case Integral():
            return int(value)
        case Real():
            return float(value)
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case _:
            raise TypeError(f"{type(value).__name__} {value!r} cannot be written to YAML")


def without_nulls(values: Mapping[str, object]) -> dict[str, object]:
    """The entries that are set: vLLM's parser reads a null as the word `None`."""
    return {key: value for key, value in values.items() if value is not None}


def dump(values: Mapping[str, object], *, head: str) -> str:
    """One document with `head` as comment lines; keys in the order given."""
    document = plain(values)
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=10_000)
    if yaml.safe_load(text) != document:
        raise ValueError(f"YAML does not carry these values: {document!r}")
    return "".join(f"# {line}\n" for line in head.splitlines()) + text
