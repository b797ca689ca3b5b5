"""What every section of the file shares: unknown keys are faults, values do not change.

Rule: a key is never dropped silently. A section that passes keys on to vLLM keeps them in one
field (`rest`), after its table has been asked about each of them.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import Annotated, ClassVar, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    Strict,
    model_validator,
)

from autotune.config.faults import Said
from autotune.core.jsontype import JSON

T = TypeVar("T")
Several = Annotated[tuple[T, ...], Strict(strict=False)]
"""A YAML list; what stands in it is checked as strictly as anything else."""

Positive = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """A mapping of the file; the texts under its fields become the schema and the docs."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )


class OpenSection(Section):
    """A section whose further keys go to vLLM, with dashes or underscores."""

    rest: ClassVar[str]

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        keys = {underscored(key): value for key, value in data.items()}
        own = set(cls.model_fields) - {cls.rest}
        passed = {key: value for key, value in keys.items() if key not in own}
        return {key: value for key, value in keys.items() if key in own} | {cls.rest: passed}


def underscored(key: str) -> str:
    """The key as vLLM holds it."""
    return key.replace("-", "_")


def _underscore_keys(data: object) -> object:
    if not isinstance(data, Mapping):
        return data
    return {underscored(key): value for key, value in data.items()}


VllmArgs = Annotated[dict[str, JsonValue], BeforeValidator(_underscore_keys)]
"""vLLM's own arguments, dashes or underscores alike."""


def not_empty(items: tuple[T, ...]) -> tuple[T, ...]:
    """Refuse an empty list; asked only when its items are sound."""
    if not items:
        raise ValueError("needs at least one entry, got []")
    return items


def refused(given: Iterable[str], reasons: Mapping[str, str]) -> list[Said]:
    """Each key that the table refuses, with its reason."""
    return [((key,), f"{key} cannot be set: {reasons[key]}") for key in given if key in reasons]


def did_you_mean(key: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or nothing."""
    near = difflib.get_close_matches(key, list(known), n=1, cutoff=0.7)
    return f"; did you mean {near[0]!r}?" if near else ""


def thawed(values: Mapping[str, JsonValue]) -> dict[str, JSON]:
    """Pydantic's JSON values as the core's: the same values under another name."""
    return dict(values)
