"""Estimates of log ratios, and the intervals they allow.

Rules: everything is computed on natural logarithms of throughput and leaves as a ratio; the
variance within a launch (blocks) and between launches (a launch effect) are kept apart until the
interval is asked for, because they shrink with different numbers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

CONFIDENCE = 0.95


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

    def interval(self) -> Interval:
        """The ratio with its t interval; infinitely wide below two observations."""
        if self.dof <= 0:
            return Interval(mean=math.exp(self.mean), low=0.0, high=math.inf)
        t = float(stdtrit(self.dof, (1 + CONFIDENCE) / 2))
        spread = t * math.sqrt(self.variance)
        return Interval(
            mean=math.exp(self.mean),
            low=math.exp(self.mean - spread),
            high=math.exp(self.mean + spread),
        )

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchEffect:
    """How much equal launches differ: the standard deviation of their mean log throughput."""

    sd: float
    dof: float
    launches: int
    """How many launches of this study went into it, beyond the prior."""

    def on(self, estimate: Estimate, launches: int, baselines: int) -> Estimate:
        """Add the launch effect to an estimate that compares launches with baseline launches."""
        variance = self.sd**2 * (1 / launches + 1 / baselines)
        return estimate.plus_variance(variance, self.dof)


# Prior of the launch effect: its standard deviation and the weight it gets, in degrees of freedom.
# Five equal launches of the demo's baseline, one after the other on a quiet machine, had 1.2 %
# (studies/smollm2-135m/results/equal-launches.json); hours are less quiet than minutes, so it is
# taken for 2 %.
PRIOR_SD = 0.02
PRIOR_DOF = 4.0


def launch_effect(groups: Sequence[Sequence[float]]) -> LaunchEffect:
    """The launch effect from groups of equal launches, each given by its mean log throughput.

    Groups of one tell nothing and are ignored; the prior counts as `PRIOR_DOF` degrees of freedom.
    """
    squares, dof, launches = PRIOR_DOF * PRIOR_SD**2, PRIOR_DOF, 0
    for group in groups:
        if len(group) > 1:
            squares += float(np.var(group, ddof=1)) * (len(group) - 1)
            dof += len(group) - 1
            launches += len(group)
    return LaunchEffect(sd=math.sqrt(squares / dof), dof=dof, launches=launches)
