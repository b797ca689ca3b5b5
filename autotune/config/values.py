"""The small languages of the file: durations, percents, latencies, ranges.

Rule: each parser takes what YAML made of the text and returns the value in the unit of the core
(seconds, fractions, milliseconds, rising tuples), or raises ValueError with the rule and a remedy.
"""

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from autotune.config.faults import raise_if_any
from autotune.core.study import Search, check_ks

_DURATION = re.compile(
    r"(?:(?P<h>\d+(?:\.\d+)?)\s*h)?\s*(?:(?P<m>\d+(?:\.\d+)?)\s*m(?:in)?)?"
    r"\s*(?:(?P<s>\d+(?:\.\d+)?)\s*s)?"
)
_LATENCY = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>ms|s)")
_MILLISECONDS = {"ms": 1.0, "s": 1000.0}
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0}

UTILIZATION_STEP = 0.05
"""Between the ends of a range that gives no step."""
LEAST_STEP = 0.001

_K_RULE = "num_speculative_tokens must be whole numbers of at least 1"


def shown(value: object) -> str:
    """A value as the file writes it, cut to fit a line."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004 - a line's worth


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def parse_duration(value: object) -> float:
    """Seconds of `90s`, `18m`, `1h30m` or a number."""
    seconds = _number(value)
    if seconds is None:
        found = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
        parts = {unit: text for unit, text in found.groupdict().items() if text} if found else {}
        if not parts:
            raise ValueError(
                f"a duration is written 90s, 18m or 1h30m (a number is seconds), got {shown(value)}"
            )
        seconds = sum(float(text) * _SECONDS[unit] for unit, text in parts.items())
    if seconds <= 0:
        raise ValueError(f"a duration must be positive, got {shown(value)}")
    return seconds


def parse_fraction(value: object) -> float:
    """The fraction of `2%` or 0.02."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if value > 1:
            raise ValueError(
                f"a fraction or a percent, got {shown(value)}; did you mean {value:g}%?"
            )
        return float(value)
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", value) if isinstance(value, str) else None
    if not found:
        raise ValueError(f"a fraction such as 0.02 or a percent such as 2%, got {shown(value)}")
    return float(Decimal(found[1]) / 100)


def parse_latency(value: object) -> float:
    """Milliseconds of `300 ms` or `0.3 s`; a bare number has a unit that nobody knows."""
    found = _LATENCY.fullmatch(value.strip()) if isinstance(value, str) else None
    if not found:
        raise ValueError(f"a latency needs its unit, as in 300 ms or 0.3 s, got {shown(value)}")
    return float(Decimal(found["number"]) * Decimal(_MILLISECONDS[found["unit"]]))


def parse_ks(value: object) -> tuple[int, ...]:
    """Rising K from one whole number, a list of them, or {low, high}."""
    if isinstance(value, Mapping):
        low, high = (_whole(value[key]) for key in _range_keys(value, ("low", "high")))
        if low > high:
            raise ValueError(f"need low <= high, got [{low}, {high}]")
        ks = tuple(range(low, high + 1))
    else:
        items = value if isinstance(value, list) else [value]
        raise_if_any([((i,), m) for i, item in enumerate(items) if (m := _k_fault(i, item))])
        ks = tuple(_whole(item) for item in items)
    if not ks:
        raise ValueError("num_speculative_tokens needs at least one value, such as [1, 2, 3, 5]")
    check_ks(ks)
    return ks


def _k_fault(index: int, item: object) -> str | None:
    if isinstance(item, bool) or not isinstance(item, int):
        hint = " (vLLM would take it for 1)" if item is True else ""
        return f"{_K_RULE}, element {index + 1} is {shown(item)}{hint}"
    if item < 1:
        hint = ": 0 is plain decoding, which is always measured" if item == 0 else ""
        return f"{_K_RULE}, element {index + 1} is {item}{hint}"
    return None


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"low and high are whole numbers, got {shown(value)}")  # noqa: TRY004
    return value


def _range_keys(
    value: Mapping[str, object], keys: tuple[str, ...], optional: str = ""
) -> tuple[str, ...]:
    if set(value) != set(keys):
        raise ValueError(
            f"a range has the keys {', '.join(keys)}{optional}, got {', '.join(value) or 'none'}"
        )
    return keys


def parse_utilizations(value: object) -> tuple[float, ...]:
    """Rising fractions of the device's memory from one number, a list, or {low, high, step}."""
    if isinstance(value, Mapping):
        shares = _share_range(value)
    else:
        items = value if isinstance(value, list) else [value]
        place = isinstance(value, list)
        raise_if_any(
            [((i,) if place else (), m) for i, x in enumerate(items) if (m := _share_fault(x))]
        )
        shares = [number for item in items if (number := _number(item)) is not None]
    if not shares:
        raise ValueError("gpu_memory_utilization needs at least one number, such as 0.9")
    return Search(gpu_memory_utilization=tuple(shares)).gpu_memory_utilization


def _share_fault(item: object) -> str | None:
    number = _number(item)
    if number is None:
        return f"gpu_memory_utilization must be a number in (0, 1], got {shown(item)}"
    try:
        Search(gpu_memory_utilization=(number,))
    except ValueError as error:
        return str(error)
    return None


def _share_range(value: Mapping[str, object]) -> list[float]:
    """From low in steps to high, which is always among them: the search runs there."""
    given = dict(value)
    step = given.pop("step", UTILIZATION_STEP)
    low, high = (given[key] for key in _range_keys(given, ("low", "high"), optional=", step"))
    raise_if_any([((k,), m) for k, x in (("low", low), ("high", high)) if (m := _share_fault(x))])
    lowest, highest, width = Decimal(str(low)), Decimal(str(high)), _number(step)
    if width is None or not LEAST_STEP <= width <= 1:
        raise ValueError(f"step must be a number in [{LEAST_STEP:g}, 1], got {shown(step)}")
    if lowest > highest:
        raise ValueError(f"need low <= high, got [{lowest}, {highest}]")
    # Decimal: 0.6 + 3 * 0.1 is to be 0.9, the number that a list would have.
    count = int((highest - lowest) / Decimal(str(step)))
    shares = [float(lowest + i * Decimal(str(step))) for i in range(count + 1)]
    return shares if shares[-1] == float(highest) else [*shares, float(highest)]


def parse_text(value: object) -> object:
    """The text of a number, for environment variables; everything else as it is."""
    return value if _number(value) is None else str(value)


def _choice(*schemas: dict[str, object]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": list(schemas)})


_K = {"type": "integer", "minimum": 1, "maximum": 128}
_SHARE = {"type": "number", "exclusiveMinimum": 0, "maximum": 1}


def _list(item: dict[str, object]) -> dict[str, object]:
    return {"type": "array", "items": item, "minItems": 1}


def _range(
    item: dict[str, object], *keys: str, optional: tuple[str, ...] = ()
) -> dict[str, object]:
    properties = dict.fromkeys((*keys, *optional), item)
    return {
        "type": "object",
        "properties": properties,
        "required": list(keys),
        "additionalProperties": False,
    }


Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    _choice({"type": "string", "examples": ["90s", "18m", "1h30m"]}, {"type": "number"}),
]
Fraction = Annotated[
    float,
    BeforeValidator(parse_fraction),
    _choice({"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*%\s*$"}, {"type": "number"}),
]
Milliseconds = Annotated[
    float,
    BeforeValidator(parse_latency),
    WithJsonSchema({"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*(ms|s)\s*$"}),
]
Ks = Annotated[
    tuple[int, ...], BeforeValidator(parse_ks), _choice(_K, _list(_K), _range(_K, "low", "high"))
]
Utilizations = Annotated[
    tuple[float, ...],
    BeforeValidator(parse_utilizations),
    _choice(_SHARE, _list(_SHARE), _range(_SHARE, "low", "high", optional=("step",))),
]
Text = Annotated[str, BeforeValidator(parse_text)]
"""A text; a number is taken as one, as environment variables are."""
