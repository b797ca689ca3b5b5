"""Measured numbers as best-config.yaml has them.

Rule: what is not a finite number is unknown, and an unknown end of an interval is left out.
"""

import math

from autotune.core.statistics import Interval
from autotune.exporters._yaml import without_nulls


def interval(found: Interval) -> dict[str, object]:
    """Mean, low, high; an end without a bound is left out."""
    ends = {"mean": found.mean, "low": found.low, "high": found.high}
    return without_nulls({name: figure(value) for name, value in ends.items()})


def figure(value: float | None) -> float | None:
    """Six figures are more than any measurement has; not-a-number and infinity are unknown."""
    return float(f"{value:.6g}") if value is not None and math.isfinite(value) else None
