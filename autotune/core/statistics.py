"""Estimates of log ratios, and the intervals they allow.

Rule: everything is computed on natural logarithms of speed and leaves as a ratio.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from autotune.core.proportion import CONFIDENCE

BOOTSTRAP_LEAST = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A ratio with its two-sided confidence interval."""

    mean: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.mean <= self.high:
            raise ValueError(f"need low <= mean <= high, got {self}")

    def show(self) -> str:
        """`1.31x [1.27, 1.35]`."""
        return f"{self.mean:.2f}x [{self.low:.2f}, {self.high:.2f}]"

    @property
    def half_width(self) -> float:
        """Half the width relative to the mean, a fraction."""
        return (self.high - self.low) / (2 * self.mean)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean of log ratios with the variance of that mean and its degrees of freedom."""

    mean: float
    variance: float
    dof: float
    n: int

    @property
    def margin(self) -> float:
        """Half the width of the t interval, on logarithms; infinite below two observations."""
        if self.dof <= 0:
            return math.inf
        return float(stdtrit(self.dof, (1 + CONFIDENCE) / 2)) * math.sqrt(self.variance)

    def interval(self) -> Interval:
        """The ratio with its t interval; infinitely wide below two observations."""
        low = math.exp(self.mean - self.margin)
        high = math.exp(self.mean + self.margin) if self.margin < math.inf else math.inf
        return Interval(mean=math.exp(self.mean), low=low, high=high)

    def plus_variance(self, variance: float, dof: float) -> "Estimate":
        """The same mean with an independent source of variance added (Welch-Satterthwaite)."""
        total = self.variance + variance
        if self.dof <= 0 or total == 0:
            return self
        denominator = self.variance**2 / self.dof + (variance**2 / dof if dof > 0 else 0.0)
        joint = total**2 / denominator if denominator > 0 else self.dof
        return Estimate(mean=self.mean, variance=total, dof=joint, n=self.n)


def mean_of(log_ratios: Sequence[float]) -> Estimate:
    """The mean of paired log ratios, one per block; needs at least one."""
    if not log_ratios:
        raise ValueError("no blocks in common: nothing to average")
    values = np.asarray(log_ratios, dtype=float)
    n = len(values)
    variance = float(values.var(ddof=1)) / n if n > 1 else 0.0
    return Estimate(mean=float(values.mean()), variance=variance, dof=n - 1, n=n)


def weighted(estimates: Sequence[Estimate], weights: Sequence[float]) -> Estimate:
    """A weighted mean of independent estimates; the weights are normalised to 1."""
    total = sum(weights)
    shares = [w / total for w in weights]
    variance = sum(s**2 * e.variance for s, e in zip(shares, estimates, strict=True))
    parts = [
        (s**2 * e.variance) ** 2 / e.dof
        for s, e in zip(shares, estimates, strict=True)
        if e.dof > 0
    ]
    dof = min(e.dof for e in estimates)
    if dof > 0 and sum(parts) > 0:
        dof = variance**2 / sum(parts)
    return Estimate(
        mean=sum(s * e.mean for s, e in zip(shares, estimates, strict=True)),
        variance=variance,
        dof=dof,
        n=min(e.n for e in estimates),
    )


RESAMPLES = 2000


def bootstrap(log_ratios: Sequence[float]) -> Interval | None:
    """The percentile bootstrap of the mean, a cross-check of the t interval; None below five.

    Fewer values have too few different resamples for it to say anything; its draws are seeded, so
    the same values always give the same interval.
    """
    if len(log_ratios) < BOOTSTRAP_LEAST:
        return None
    values = np.asarray(log_ratios, dtype=float)
    dice = np.random.default_rng(0)
    means = dice.choice(values, (RESAMPLES, len(values))).mean(axis=1)
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    mean = float(values.mean())
    return Interval(
        mean=math.exp(mean), low=math.exp(min(low, mean)), high=math.exp(max(high, mean))
    )
