"""What one setting of a candidate may be where it may be more than one thing: values or a range.

Rules: an axis has at least two values; it lists them in order, or says that they are too many (a
range of real numbers without a step); what the engine takes by itself is part of it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, TypeVar

Scalar = str | int | float | bool | None
N = TypeVar("N")
DIGITS = 6
"""Significant digits of a real number that is searched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Some values, in the order in which they were written; None leaves the setting out."""

    values: tuple[Scalar, ...]
    default: Scalar = None
    """What the engine takes where the setting is left out; None: not known."""
    kind: Literal["choices"] = "choices"

    def __post_init__(self) -> None:
        doubles = [v for i, v in enumerate(self.values) if any(same(v, u) for u in self.values[:i])]
        if doubles:
            raise ValueError(f"a list of values has each once, repeated: {doubles[0]!r}")
        if len(self.values) < 2:  # noqa: PLR2004
            raise ValueError(f"a list to choose from needs two values, got {list(self.values)}")

    @property
    def size(self) -> int:
        """How many values there are."""
        return len(self.values)

    @property
    def middle(self) -> Scalar:
        """The middle one of numbers, the first of anything else."""
        ranked = self._ranked
        return ranked[(len(ranked) - 1) // 2] if self._numbers else self.values[0]

    def holds(self, value: object) -> bool:
        """Whether it is one of them."""
        return any(same(value, known) for known in self.values)

    def grid(self, most: int) -> tuple[Scalar, ...]:
        """At most so many of the values, evenly spread."""
        return tuple(_spread(self._ranked, most))

    def place(self, value: Scalar) -> float:
        """Where the value lies between the first, 0, and the last, 1."""
        index = next(i for i, known in enumerate(self._ranked) if same(value, known))
        return index / (self.size - 1)

    @property
    def _numbers(self) -> list[int | float]:
        """The values where all of them are numbers; empty else."""
        found = [v for v in self.values if isinstance(v, int | float) and not isinstance(v, bool)]
        return found if len(found) == len(self.values) else []

    @property
    def _ranked(self) -> Sequence[Scalar]:
        return sorted(self._numbers) or self.values


@dataclass(frozen=True, slots=True, kw_only=True)
class IntRange:
    """Whole numbers from low to high, both included where the step allows."""

    low: int
    high: int
    step: int = 1
    log: bool = False
    default: Scalar = None
    kind: Literal["int_range"] = "int_range"

    def __post_init__(self) -> None:
        _check_ends(self.low, self.high, log=self.log)
        if not 1 <= self.step <= self.high - self.low:
            raise ValueError(
                f"the step of a range lies in [1, high - low], got {self.step} in "
                f"[{self.low}, {self.high}]"
            )
        if self.log and self.step != 1:
            raise ValueError(f"a range on a log scale has no step, got step {self.step}")

    @property
    def values(self) -> range:
        """All of them."""
        return range(self.low, self.high + 1, self.step)

    @property
    def size(self) -> int:
        """How many values there are."""
        return len(self.values)

    @property
    def middle(self) -> int:
        """The value in the middle, of the logarithms where it says so."""
        return self.grid(3)[1] if self.size > 2 else self.low  # noqa: PLR2004

    def holds(self, value: object) -> bool:
        """Whether it is one of them."""
        return isinstance(value, int) and not isinstance(value, bool) and value in self.values

    def grid(self, most: int) -> tuple[int, ...]:
        """At most so many of the values, evenly spread."""
        if not self.log or self.size <= most:
            return tuple(_spread(self.values, most))
        return tuple(sorted({round(x) for x in _geometric(self.low, self.high, most)}))

    def place(self, value: Scalar) -> float:
        """Where the value lies between low, 0, and high, 1."""
        return _place(value, self.low, self.high, log=self.log)


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatRange:
    """Real numbers from low to high; with a step those that it reaches."""

    low: float
    high: float
    step: float | None = None
    log: bool = False
    default: Scalar = None
    kind: Literal["float_range"] = "float_range"

    def __post_init__(self) -> None:
        _check_ends(self.low, self.high, log=self.log)
        if self.step is not None and not 0 < self.step <= self.high - self.low:
            raise ValueError(
                f"the step of a range lies in (0, high - low], got {self.step:g} in "
                f"[{self.low:g}, {self.high:g}]"
            )
        if self.log and self.step is not None:
            raise ValueError(f"a range on a log scale has no step, got step {self.step:g}")

    @property
    def values(self) -> tuple[float, ...] | None:
        """All of them; None without a step."""
        if self.step is None:
            return None
        low, high, step = (Decimal(str(x)) for x in (self.low, self.high, self.step))
        return tuple(float(low + i * step) for i in range(int((high - low) / step) + 1))

    @property
    def size(self) -> int | None:
        """How many values there are; None without a step."""
        return None if self.values is None else len(self.values)

    @property
    def middle(self) -> float:
        """The value in the middle, of the logarithms where it says so."""
        found = self.grid(3)
        return found[(len(found) - 1) // 2]

    def holds(self, value: object) -> bool:
        """Whether it is one of them."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if self.values is None:
            return self.low <= value <= self.high
        return any(math.isclose(value, known, abs_tol=1e-9) for known in self.values)

    def grid(self, most: int) -> tuple[float, ...]:
        """At most so many of the values, evenly spread."""
        if self.values is not None:
            return tuple(_spread(self.values, most))
        if self.log:
            return tuple(map(self.rounded, _geometric(self.low, self.high, most)))
        width = self.high - self.low
        return tuple(self.rounded(self.low + width * i / (most - 1)) for i in range(most))

    def rounded(self, value: float) -> float:
        """The value with as many digits as its name and the engine get, still in the range."""
        return min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)

    def place(self, value: Scalar) -> float:
        """Where the value lies between low, 0, and high, 1."""
        return _place(value, self.low, self.high, log=self.log)


Axis = Choices | IntRange | FloatRange


def start(axis: Axis) -> Scalar:
    """What is tried first: what the engine would take by itself, or the middle."""
    return axis.default if axis.holds(axis.default) else axis.middle


def same(one: object, other: object) -> bool:
    """Whether two values of a file are the same; true is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _check_ends(low: float, high: float, *, log: bool) -> None:
    if not low < high:
        raise ValueError(f"need low < high, got [{low:g}, {high:g}]")
    if log and low <= 0:
        raise ValueError(f"a range on a log scale begins above 0, got low {low:g}")


def _spread(values: Sequence[N], most: int) -> list[N]:
    if len(values) <= most:
        return list(values)
    last = len(values) - 1
    return [values[(i * last) // (most - 1)] for i in range(most)]


def _geometric(low: float, high: float, most: int) -> list[float]:
    inner = [low * (high / low) ** (i / (most - 1)) for i in range(1, most - 1)]
    return [low, *inner, high]


def _place(value: Scalar, low: float, high: float, *, log: bool) -> float:
    if isinstance(value, str) or value is None:
        raise ValueError(f"{value!r} lies in no range of numbers")
    if log:
        low, high, value = math.log(low), math.log(high), math.log(value)
    return (value - low) / (high - low)
