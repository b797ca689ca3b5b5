"""One entry of `candidates`: a method, its draft, and fields of vLLM's SpeculativeConfig.

Rule: what vLLM would refuse, ignore or silently change is a fault here; the n-gram window is held
as vLLM resolves it, so that a candidate says what is launched.
"""

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar, Self

from pydantic import ConfigDict, Field, JsonValue, ValidationInfo, field_validator, model_validator

from autotune.config.faults import Said, raise_if_any
from autotune.config.sections import OpenSection, did_you_mean, thawed
from autotune.config.values import Ks, shown
from autotune.config.vllm_fields import REFUSED_SETTINGS, SETTINGS, Setting
from autotune.core.methods import METHODS, find_method
from autotune.core.study import JSON, Candidate

_WINDOW = ("prompt_lookup_min", "prompt_lookup_max")
_KINDS: dict[str, type | tuple[type, ...]] = {
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "string": str,
}


def _schema(schema: dict[str, Any]) -> None:
    """Show the fields of SpeculativeConfig as keys of the candidate, as they are written."""
    properties = schema["properties"]
    properties.pop("settings")
    for name, setting in SETTINGS.items():
        row: dict[str, object] = {"type": setting.kind, "description": _summary(setting)}
        row |= {"default": setting.default} if setting.default is not None else {}
        row |= {"minimum": setting.minimum} if setting.minimum is not None else {}
        row |= {"enum": list(setting.choices)} if setting.choices else {}
        properties[name] = row
    schema["additionalProperties"] = False


def _summary(setting: Setting) -> str:
    methods = f" ({', '.join(setting.methods)})" if setting.methods else ""
    return f"{setting.summary.removesuffix('.')}{methods}."


class CandidateSection(OpenSection):
    """One way to draft. Further keys are fields of vLLM's SpeculativeConfig."""

    model_config = ConfigDict(json_schema_extra=_schema)
    rest: ClassVar[str] = "settings"

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] | None = None
    """What the reports call it; default: the method, with the last part of `model`."""
    method: str = Field(json_schema_extra={"enum": list(METHODS)})
    """vLLM's speculative method."""
    model: Annotated[str, Field(min_length=1)] | None = None
    """The draft: a local folder (relative to this file) or a hub id; lookup methods have none."""
    num_speculative_tokens: Ks = ()
    """The K to try for this candidate; default: those of `search`."""
    settings: dict[str, JsonValue] = Field(default={})

    @field_validator("model")
    @classmethod
    def _has_model(cls, model: str | None, info: ValidationInfo) -> str | None:
        method = info.data.get("method")
        if model is not None and method in METHODS and not METHODS[method].has_weights:
            raise ValueError(f"method {method!r} drafts without a model: remove it")
        return model

    @field_validator("method")
    @classmethod
    def _known_method(cls, method: str) -> str:
        if method.endswith("_mtp") and method not in METHODS:
            raise ValueError(f"vLLM has folded {method!r} into 'mtp': write method: mtp")
        return find_method(method).name

    @field_validator("settings")
    @classmethod
    def _known_settings(
        cls, settings: dict[str, JsonValue], info: ValidationInfo
    ) -> dict[str, JsonValue]:
        method = info.data.get("method")
        faults: list[Said] = [
            ((key,), message)
            for key, value in settings.items()
            if (message := _setting_fault(key, value, method))
        ]
        raise_if_any(faults or list(_contradictions(settings)))
        return settings

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self.value(self.model)
        return self

    @property
    def label(self) -> str:
        """The name given, or one made of the method and the model's last part."""
        if self.name is not None:
            return self.name
        last = PurePosixPath(self.model).name if self.model else ""
        return f"{self.method}-{last}" if last else self.method

    def value(self, model: str | None) -> Candidate:
        """The core's value, with the model as it was resolved."""
        return Candidate(
            name=self.label,
            method=self.method,
            model=model,
            num_speculative_tokens=self.num_speculative_tokens,
            settings=self._resolved(),
        )

    def identity(self, model: str | None) -> tuple[object, ...]:
        """What the engine makes of it: equal for candidates that are the same engine."""
        changed = {
            key: value
            for key, value in self._resolved().items()
            if key not in SETTINGS or value != SETTINGS[key].default
        }
        return self.method, model, tuple(sorted(changed.items(), key=lambda item: item[0]))

    def _resolved(self) -> dict[str, JSON]:
        given = {key: value for key, value in self.settings.items() if value is not None}
        if self.method not in SETTINGS[_WINDOW[0]].methods:
            return thawed(given)
        window: dict[str, JSON] = dict(zip(_WINDOW, _window(self.settings), strict=True))
        return window | {key: value for key, value in thawed(given).items() if key not in window}


def _window(settings: Mapping[str, JsonValue]) -> tuple[int, int]:
    """The n-gram window as vLLM 0.32 resolves it from both bounds, one, or none."""
    bounds = [settings.get(key) for key in _WINDOW]
    given = [bound for bound in bounds if isinstance(bound, int)]
    return (given[0], given[-1]) if given else (5, 5)


def _contradictions(settings: Mapping[str, JsonValue]) -> Iterator[Said]:
    low, high = _window(settings)
    if low > high:
        rule = "need prompt_lookup_min <= prompt_lookup_max"
        yield ("prompt_lookup_min",), f"{rule}, got {low} > {high}"
    vocab, sampling = "use_heterogeneous_vocab", "draft_sample_method"
    if settings.get(vocab) and settings.get(sampling, "greedy") != "greedy":
        yield (sampling,), f"with {vocab} the draft must sample greedily: remove it"


def _setting_fault(key: str, value: JsonValue, method: str | None) -> str | None:
    """What is wrong with one further key of a candidate."""
    if key in REFUSED_SETTINGS:
        return f"{key} cannot be set: {REFUSED_SETTINGS[key]}"
    if key not in SETTINGS:
        hint = did_you_mean(key, [*CandidateSection.model_fields, *SETTINGS])
        return f"vLLM's SpeculativeConfig has no field {key!r}{hint or _known(method)}"
    setting = SETTINGS[key]
    if setting.methods and method is not None and method not in setting.methods:
        return f"{key} is read by {' and '.join(setting.methods)} only: remove it"
    if isinstance(value, dict | list):
        return f"{key} takes one value; ranges are not searched yet: write a candidate for each"
    return _value_fault(key, value, setting)


def _known(method: str | None) -> str:
    names = [n for n, row in SETTINGS.items() if not row.methods or method in row.methods]
    return f" (known: {', '.join(names)})"


def _value_fault(key: str, value: JsonValue, setting: Setting) -> str | None:
    if value is None:
        return None
    wrong_kind = not isinstance(value, _KINDS[setting.kind])
    if wrong_kind or (isinstance(value, bool) and setting.kind != "boolean"):
        return f"{key} is of type {setting.kind}, got {shown(value)}"
    if setting.choices and value not in setting.choices:
        return f"{key} is one of {', '.join(setting.choices)}, got {shown(value)}"
    if setting.minimum is not None and isinstance(value, int) and value < setting.minimum:
        return f"{key} must be at least {setting.minimum}, got {shown(value)}"
    return None
