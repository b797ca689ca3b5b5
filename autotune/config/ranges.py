"""One value, a list of values or a range of numbers, as a candidate's settings may be written.

Rule: whatever stands there is checked value by value against what vLLM takes for the field; a list
or a range with one value is that value.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import JsonValue

from autotune.config.sections import did_you_mean
from autotune.config.values import shown
from autotune.config.vllm_fields import Kind, Setting
from autotune.core.axes import Axis, Choices, FloatRange, IntRange, Scalar

_KINDS: Mapping[Kind, tuple[type, ...]] = {
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "any": (bool, int, float, str),
}
_RANGE = ("low", "high", "step", "log")


def setting_faults(key: str, value: JsonValue, setting: Setting) -> Iterator[str]:
    """What is wrong with the value, the values or the range of one field."""
    if isinstance(value, list):
        for item in value:
            yield from _value_faults(key, item, setting)
        yield from () if value else (f"{key}: an empty list, give at least one value",)
    elif isinstance(value, dict):
        yield from _range_faults(key, value, setting)
    else:
        yield from _value_faults(key, value, setting)


def axis_fault(key: str, value: JsonValue, setting: Setting) -> str | None:
    """What is wrong with sound values as a range, such as ends in the wrong order."""
    try:
        axis_of(value, setting)
    except ValueError as error:
        return f"{key}: {error}"
    return None


def axis_of(value: JsonValue, setting: Setting) -> Axis | Scalar:
    """The axis that a list or a range stands for; the value where there is but one."""
    if isinstance(value, list):
        items = [item for item in value if not isinstance(item, list | dict)]
        only_one = len(items) == 1
        return items[0] if only_one else Choices(values=tuple(items), default=setting.default)
    if isinstance(value, dict):
        return _range(value, setting)
    return value


def schema(base: Mapping[str, object], setting: Setting) -> list[dict[str, object]]:
    """The JSON Schemas of one value, of a list and, for numbers, of a range."""
    found: list[dict[str, object]] = [
        dict(base),
        {"type": "array", "items": dict(base), "minItems": 1},
    ]
    if setting.kind in ("integer", "number"):
        found.append(
            {
                "type": "object",
                "properties": {
                    **{key: dict(base) for key in _RANGE[:3]},
                    "log": {"type": "boolean"},
                },
                "required": ["low", "high"],
                "additionalProperties": False,
            }
        )
    return found


def _range(value: Mapping[str, JsonValue], setting: Setting) -> Axis | Scalar:
    low, high, step = (value.get(key) for key in _RANGE[:3])
    log = value.get("log") is True
    if low == high and isinstance(low, int | float):
        return low
    whole = setting.kind != "number" and all(isinstance(x, int | None) for x in (low, high, step))
    if whole and isinstance(low, int) and isinstance(high, int):
        steps = step if isinstance(step, int) else 1
        return IntRange(low=low, high=high, step=steps, log=log, default=setting.default)
    if isinstance(low, int | float) and isinstance(high, int | float):
        width = float(step) if isinstance(step, int | float) else None
        ends = float(low), float(high)
        return FloatRange(low=ends[0], high=ends[1], step=width, log=log, default=setting.default)
    raise ValueError(f"a range is written {{low: 1, high: 4}}, got {shown(dict(value))}")


def _range_faults(key: str, value: Mapping[str, Any], setting: Setting) -> Iterator[str]:
    if setting.kind in ("boolean", "string"):
        yield f"{key} has no range, it is of type {setting.kind}: give a list of values"
        return
    unknown = [name for name in value if name not in _RANGE]
    for name in unknown:
        hint = did_you_mean(name, _RANGE)
        yield f"{key}: a range has low, high, step and log, got {shown(name)}{hint}"
    missing = [name for name in _RANGE[:2] if name not in value]
    if missing and not unknown:
        yield f"{key}: a range needs low and high, {' and '.join(missing)} is missing"
    for name in _RANGE[:2]:
        if name in value and value[name] is None:
            yield f"{key}: {name} is a number, got null"
        elif name in value:
            yield from _value_faults(key, value[name], setting)
    step = value.get("step")
    if step is not None and (isinstance(step, bool) or not isinstance(step, int | float)):
        yield f"{key}: the step of a range is a number, got {shown(step)}"
    elif setting.kind == "integer" and isinstance(step, float):
        yield f"{key}: the step of a range of whole numbers is one, got {shown(step)}"
    if not isinstance(value.get("log", False), bool):
        yield f"{key}: log is true or false, got {shown(value['log'])}"


def _value_faults(key: str, value: Any, setting: Setting) -> Iterator[str]:  # noqa: ANN401
    if value is None:
        return
    wrong_kind = not isinstance(value, _KINDS[setting.kind])
    if wrong_kind or (isinstance(value, bool) and setting.kind not in ("boolean", "any")):
        kind = "one value, a list or a range" if setting.kind == "any" else setting.kind
        yield f"{key} is of type {kind}, got {shown(value)}"
    elif setting.choices and value not in setting.choices:
        yield f"{key} is one of {', '.join(setting.choices)}, got {shown(value)}"
    elif setting.minimum is not None and value < setting.minimum:
        yield f"{key} must be at least {setting.minimum}, got {shown(value)}"
    elif setting.maximum is not None and value > setting.maximum:
        yield f"{key} must be at most {setting.maximum}, got {shown(value)}"
