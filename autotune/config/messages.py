"""Pydantic's errors to faults: the rule in plain words, what was given, the nearest known key.

Rule: a reader of the message need know neither pydantic nor Python; `true` is true, a list is a
list, and the place is the key as it stands in the file.
"""

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from autotune.config.faults import Place, Said, SeveralFaultsError
from autotune.config.schema import CandidatesFile
from autotune.config.sections import OpenSection, did_you_mean
from autotune.config.values import shown

_RULES: Mapping[str, str] = {
    "string_type": "must be a text (quote it)",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "dict_type": "must be a mapping of keys to values",
    "model_type": "must be a mapping of keys to values",
    "model_attributes_type": "must be a mapping of keys to values",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "literal_error": "must be {expected}",
    "string_pattern_mismatch": "must match {pattern}",
    "string_too_short": "must not be empty",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "finite_number": "must be finite",
}


def said(error: ValidationError, at: Place = ()) -> Iterator[Said]:
    """Every fault of a validation, with places below `at`."""
    for one in error.errors(include_url=False):
        context: Mapping[str, Any] = one.get("ctx", {})
        place = (*at, *one["loc"])
        cause = context.get("error")
        if isinstance(cause, SeveralFaultsError):
            home = place[:-1] if _is_rest(place) else place
            yield from (((*home, *below), message) for below, message in cause.faults)
        elif cause is not None:
            yield place, str(cause)
        else:
            yield place, _message(one["type"], place, one["input"], context, one["msg"])


def _message(
    kind: str, place: Place, given: object, context: Mapping[str, Any], fallback: str
) -> str:
    fields = _fields_at(place[:-1])
    if kind == "missing":
        return f"{place[-1]} is missing. {_flat(fields[str(place[-1])].description or '')}"
    if kind == "extra_forbidden":
        hint = did_you_mean(str(place[-1]).replace("-", "_"), fields)
        return f"unknown key {place[-1]!r}{hint or f' (known: {_listed(fields)})'}"
    rule = _RULES.get(kind)
    return f"{rule.format(**context) if rule else fallback}, got {shown(given)}"


def _flat(text: str) -> str:
    return " ".join(text.split())


def _listed(fields: Mapping[str, FieldInfo]) -> str:
    return ", ".join(fields)


def _is_rest(place: Place) -> bool:
    """Whether the place is the hidden field of a section that passes keys on."""
    section = _section_at(place[:-1])
    return section is not None and issubclass(section, OpenSection) and section.rest == place[-1]


def _fields_at(place: Place) -> Mapping[str, FieldInfo]:
    section = _section_at(place)
    return section.model_fields if section else {}


def _section_at(place: Place) -> type[BaseModel] | None:
    """The section that stands at a place; None where something else does."""
    section: type[BaseModel] | None = CandidatesFile
    for part in place:
        if isinstance(part, str):
            field = section.model_fields.get(part) if section else None
            section = _section_in(field.annotation) if field else None
    return section


def _section_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((s for arg in get_args(annotation) if (s := _section_in(arg))), None)
