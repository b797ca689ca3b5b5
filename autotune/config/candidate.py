"""One entry of `candidates`: a method, its draft, and fields of vLLM's SpeculativeConfig.

Rule: what vLLM would refuse, ignore or silently change is a fault; the n-gram window is held as
vLLM resolves it, so that a candidate says what is launched. Whether vLLM has a field at all is for
checks.py, which knows the installed version.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar, Self

from pydantic import ConfigDict, Field, JsonValue, ValidationInfo, field_validator, model_validator

from autotune.config.faults import Said, raise_if_any
from autotune.config.ranges import axis_fault, axis_of, schema, setting_faults
from autotune.config.sections import OpenSection, VllmArgs, did_you_mean
from autotune.config.values import Ks
from autotune.config.vllm_fields import (
    ENGINE_ARGS,
    LOSSY,
    LOSSY_WORDS,
    OWNED_ENGINE_ARGS,
    REFUSED_SETTINGS,
    SETTINGS,
    UNKNOWN,
    Setting,
)
from autotune.core.axes import Axis, Scalar
from autotune.core.jsontype import JSON
from autotune.core.methods import METHODS, find_method
from autotune.core.settings import resolved
from autotune.core.space import ENGINE_ARGS as ENGINE_ARGS_PREFIX
from autotune.core.study import Candidate

Defaults = Mapping[str, JSON]
NONE: Defaults = {}


def _schema(section: dict[str, Any]) -> None:
    """Show the fields of SpeculativeConfig as keys of the candidate, as they are written."""
    properties = section["properties"]
    properties.pop("settings")
    for name, setting in SETTINGS.items():
        properties[name] = _row(setting)
    args = {name: _row(setting) for name, setting in ENGINE_ARGS.items()}
    described = {"type": "object", "properties": args, "additionalProperties": False}
    properties["engine_args"] = described | {
        "description": properties["engine_args"]["description"]
    }
    section["additionalProperties"] = False


def _row(setting: Setting) -> dict[str, object]:
    base: dict[str, object] = {"type": setting.kind}
    base |= {"minimum": setting.minimum} if setting.minimum is not None else {}
    base |= {"maximum": setting.maximum} if setting.maximum is not None else {}
    base |= {"enum": list(setting.choices)} if setting.choices else {}
    default = {"default": setting.default} if setting.default is not None else {}
    return {"description": _summary(setting), **default, "anyOf": schema(base, setting)}


def _summary(setting: Setting) -> str:
    methods = f" ({', '.join(setting.methods)})" if setting.methods else ""
    return f"{setting.summary.removesuffix('.')}{methods}."


class CandidateSection(OpenSection):
    """One way to draft. Further keys are fields of vLLM's SpeculativeConfig, each one value, a list
    of values, or a range {low, high, step, log}: what stands in lists and ranges is searched."""

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
    engine_args: VllmArgs = Field(default={})
    """Engine arguments of this candidate's launches, before those of the target; one value, a list
    or a range each. Plain decoding keeps the target's, so the speedup is that of both changes."""
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

    @field_validator("engine_args")
    @classmethod
    def _own_arguments(cls, args: dict[str, JsonValue]) -> dict[str, JsonValue]:
        faults: list[Said] = []
        for key, value in args.items():
            setting = ENGINE_ARGS.get(key)
            found = _faults(key, value, setting) if setting else [_not_its_own(key)]
            faults += [((key,), message) for message in found]
        raise_if_any(faults)
        return args

    @field_validator("settings")
    @classmethod
    def _sound_settings(
        cls, settings: dict[str, JsonValue], info: ValidationInfo
    ) -> dict[str, JsonValue]:
        method = info.data.get("method")
        faults: list[Said] = [
            ((key,), message)
            for key, value in settings.items()
            for message in _setting_faults(key, value, method)
        ]
        raise_if_any(faults)
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

    def value(
        self, model: str | None, target_args: Defaults = NONE, installed: Defaults = NONE
    ) -> Candidate:
        """The core's value, with the model as it was resolved.

        `target_args` and the defaults of the `installed` fields are what the engine takes for what
        a variant leaves out.
        """
        usual: dict[str, JSON] = {name: setting.default for name, setting in SETTINGS.items()}
        usual |= {name: default for name, default in installed.items() if default is not None}
        found = {n: axis_of(v, _with_default(SETTINGS, n, usual)) for n, v in self.settings.items()}
        args = {
            name: axis_of(value, _with_default(ENGINE_ARGS, name, target_args))
            for name, value in self.engine_args.items()
        }
        axes = found | {f"{ENGINE_ARGS_PREFIX}{name}": value for name, value in args.items()}
        space = {name: axis for name, axis in axes.items() if isinstance(axis, Axis)}
        return Candidate(
            name=self.label,
            method=self.method,
            model=model,
            num_speculative_tokens=self.num_speculative_tokens,
            settings=resolved(find_method(self.method), _fixed(found), space),
            engine_args=_fixed(args),
            space=space,
        )

    def identity(self, model: str | None) -> tuple[object, ...]:
        """What the engine makes of it: equal for candidates that are the same engine."""
        made = self.value(model)
        changed = {
            key: value
            for key, value in made.settings.items()
            if key not in SETTINGS or value != SETTINGS[key].default
        }
        parts = (changed, made.engine_args, made.space)
        return self.method, model, *(tuple(sorted(p.items(), key=_by_name)) for p in parts)


def field_fault(key: str, method: object, installed: Defaults) -> str | None:
    """What is wrong with a further key of a candidate by its name alone.

    `installed` are the fields of the engine's own version; where nobody could ask, the table's.
    """
    known = installed or SETTINGS
    if key in REFUSED_SETTINGS:
        return None
    if key in known:
        unknown = key not in SETTINGS and any(word in key for word in LOSSY_WORDS)
        return f"{key} cannot be set: {LOSSY}" if unknown else None
    if key in SETTINGS:
        return (
            f"the installed vLLM's SpeculativeConfig has no field {key!r}, which is one of another "
            "version: remove it"
        )
    allowed = [name for name in known if name not in REFUSED_SETTINGS]
    hint = did_you_mean(key, [*CandidateSection.model_fields, *allowed])
    return f"vLLM's SpeculativeConfig has no field {key!r}{hint or _listed(method, allowed)}"


def _listed(method: object, names: list[str]) -> str:
    own = [n for n in names if n not in CandidateSection.model_fields]
    read = [n for n in own if method in (SETTINGS.get(n, UNKNOWN).methods or (method,))]
    return f" (known: {', '.join(read)})"


def _setting_faults(key: str, value: JsonValue, method: str | None) -> list[str]:
    """What is wrong with what a further key says."""
    if key in REFUSED_SETTINGS:
        return [f"{key} cannot be set: {REFUSED_SETTINGS[key]}"]
    setting = SETTINGS.get(key, UNKNOWN)
    if setting.methods and method is not None and method not in setting.methods:
        return [f"{key} is read by {' and '.join(setting.methods)} only: remove it"]
    return _faults(key, value, setting)


def _faults(key: str, value: JsonValue, setting: Setting) -> list[str]:
    found = list(setting_faults(key, value, setting))
    wrong = None if found else axis_fault(key, value, setting)
    return [*found, wrong] if wrong else found


def _not_its_own(key: str) -> str:
    if key in OWNED_ENGINE_ARGS:
        return f"{key} cannot be set: {OWNED_ENGINE_ARGS[key]}"
    hint = did_you_mean(key, ENGINE_ARGS)
    allowed = " and ".join(ENGINE_ARGS)
    return f"a candidate has {allowed} of its own, {key} stands in target.engine_args{hint}"


def _with_default(table: Mapping[str, Setting], name: str, defaults: Defaults) -> Setting:
    default = defaults.get(name)
    usable = default if not isinstance(default, list | dict) else None
    return replace(table.get(name, UNKNOWN), default=usable)


def _fixed(values: Mapping[str, Axis | Scalar]) -> dict[str, JSON]:
    return {n: v for n, v in values.items() if not isinstance(v, Axis) and v is not None}


def _by_name(item: tuple[str, object]) -> str:
    return item[0]
