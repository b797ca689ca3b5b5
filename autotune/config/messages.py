"""Pydantic's errors to faults: the rule in plain words, what was given, the nearest known key.

Rule: a reader of the message need know neither pydantic nor Python; `true` is true, a list is a
list, and the place is the key as it stands in the file.
"""

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

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
    "string_pattern_mismatch": "must match {pattern} (letters, digits, dot, dash, underscore)",
    "string_too_short": "must not be empty",
    "too_short": "must not be empty",
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
    if kind == "missing":
        return f"{place[-1]} is missing: {_description(place)}"
    if kind == "extra_forbidden":
        known = list(_model_at(place[:-1]).model_fields)
        hint = did_you_mean(str(place[-1]).replace("-", "_"), known)
        hint = hint or f" (known: {', '.join(known)})"
        return f"unknown key {place[-1]!r}{hint}"
    rule = _RULES.get(kind)
    return f"{rule.format(**context) if rule else fallback}, got {shown(given)}"


def _description(place: Place) -> str:
    field = _model_at(place[:-1]).model_fields[str(place[-1])]
    return " ".join((field.description or "it has no default").split())


def _model_at(place: Place) -> type[BaseModel]:
    """The section at a place that pydantic has named."""
    model: type[BaseModel] = CandidatesFile
    for part in place:
        if isinstance(part, str):
            model = _section_in(model.model_fields[part].annotation)
    return model


def _section_in(annotation: object) -> type[BaseModel]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(_section_in(arg) for arg in get_args(annotation) if _holds_section(arg))


def _holds_section(annotation: object) -> bool:
    if isinstance(annotation, type):
        return issubclass(annotation, BaseModel)
    return any(_holds_section(arg) for arg in get_args(annotation))


def _is_rest(place: Place) -> bool:
    """Whether the place is the hidden field of a section that passes keys on."""
    if not place or not isinstance(place[-1], str) or not _is_section(place[:-1]):
        return False
    model = _model_at(place[:-1])
    return issubclass(model, OpenSection) and model.rest == place[-1]


def _is_section(place: Place) -> bool:
    model: type[BaseModel] = CandidatesFile
    for part in place:
        if isinstance(part, str):
            if part not in model.model_fields:
                return False
            annotation = model.model_fields[part].annotation
            if not _holds_section(annotation):
                return False
            model = _section_in(annotation)
    return True
