"""Intervals that cover as often as they say, and variances that are kept apart."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from autotune.core.noise import LaunchEffect
from autotune.core.statistics import Estimate, Interval, bootstrap, mean_of, weighted

logs = st.lists(st.floats(-1, 1), min_size=1, max_size=10)
estimates = st.builds(
    Estimate,
    mean=st.floats(-1, 1),
    variance=st.floats(1e-8, 1),
    dof=st.floats(1, 50),
    n=st.integers(2, 50),
)


def coverage(sd_launch: float, *, launches: int, aware: bool) -> float:
    """How often the interval holds the true ratio, 1, over simulated studies."""
    dice = np.random.default_rng(7)
    effect = LaunchEffect(sd=sd_launch, dof=1000, launches=0)
    hits = 0
    for _ in range(500):
        own = dice.normal(0, sd_launch, (launches, 1)).mean()
        base = dice.normal(0, sd_launch, (launches, 1)).mean()
        found = mean_of(list(own - base + dice.normal(0, 0.02, 4)))
        interval = (effect.on(found, launches, launches) if aware else found).interval()
        hits += interval.low <= 1.0 <= interval.high
    return hits / 500


def test_blocks_alone_cover_when_launches_are_equal() -> None:
    """The t interval of four blocks holds the truth in 95 of 100 studies."""
    assert coverage(0.0, launches=1, aware=False) == pytest.approx(0.95, abs=0.025)


def test_launch_effect_is_what_makes_intervals_honest() -> None:
    """Where launches differ, blocks alone cover far too seldom; with the effect they do again."""
    assert coverage(0.05, launches=1, aware=False) < 0.6
    for launches in (1, 2):
        # Satterthwaite errs a little on the safe side when one source dominates.
        assert 0.92 <= coverage(0.05, launches=launches, aware=True) <= 0.99


@given(logs)
def test_mean_of_blocks_is_the_textbook_interval(values: list[float]) -> None:
    """Mean, standard error and t quantile, leaving as a ratio."""
    found = mean_of(values)
    interval = found.interval()
    assert interval.mean == pytest.approx(math.exp(np.mean(values)))
    assert found.n == len(values)
    if len(values) == 1:
        assert (interval.low, interval.high) == (0.0, math.inf)
        return
    error = np.std(values, ddof=1) / math.sqrt(len(values))
    spread = stats.t.ppf(0.975, len(values) - 1) * error
    assert math.log(interval.high / interval.mean) == pytest.approx(spread, abs=1e-9)
    assert interval.low * interval.high == pytest.approx(interval.mean**2)


@given(logs, st.floats(-1, 1))
def test_scale_moves_the_ratio_and_nothing_else(values: list[float], shift: float) -> None:
    """A faster machine multiplies the ratio; the relative width stays."""
    moved = mean_of([v + shift for v in values])
    assert moved.mean == pytest.approx(mean_of(values).mean + shift, abs=1e-9)
    assert moved.variance == pytest.approx(mean_of(values).variance, abs=1e-9)


def test_nothing_to_average() -> None:
    """No block in common is an error, not a ratio of one."""
    with pytest.raises(ValueError, match="no blocks in common"):
        mean_of([])


@given(estimates, st.floats(1e-8, 1), st.floats(1, 50))
def test_added_variance_is_welch_satterthwaite(
    found: Estimate, variance: float, dof: float
) -> None:
    """Variances add; the degrees of freedom lie between the smaller one and their sum."""
    joint = found.plus_variance(variance, dof)
    assert joint.variance == pytest.approx(found.variance + variance)
    assert min(found.dof, dof) * (1 - 1e-9) <= joint.dof <= (found.dof + dof) * (1 + 1e-9)
    assert joint.mean == found.mean
    expected = (found.variance + variance) ** 2 / (
        found.variance**2 / found.dof + variance**2 / dof
    )
    assert joint.dof == pytest.approx(expected)


def test_one_block_stays_unknown() -> None:
    """A launch effect does not make an interval out of a single block."""
    interval = mean_of([0.3]).plus_variance(0.01, 4).interval()
    assert (interval.low, interval.high) == (0.0, math.inf)


@given(st.lists(estimates, min_size=1, max_size=4), st.data())
def test_weights_are_shares(found: list[Estimate], data: st.DataObject) -> None:
    """Doubling every weight changes nothing; the mean lies among the parts."""
    size = len(found)
    weights = data.draw(st.lists(st.floats(0.1, 10), min_size=size, max_size=size))
    joint = weighted(found, weights)
    double = weighted(found, [2 * w for w in weights])
    assert joint.mean == pytest.approx(double.mean)
    assert joint.variance == pytest.approx(double.variance)
    means = [e.mean for e in found]
    assert min(means) - 1e-9 <= joint.mean <= max(means) + 1e-9
    assert joint.variance <= max(e.variance for e in found) * (1 + 1e-9)
    assert min(e.dof for e in found) * (1 - 1e-9) <= joint.dof


@given(estimates, st.floats(0.1, 10))
def test_one_level_is_its_own_mean(found: Estimate, weight: float) -> None:
    """The weighted mean of one estimate is that estimate."""
    alone = weighted([found], [weight])
    assert alone.mean == pytest.approx(found.mean)
    assert alone.variance == pytest.approx(found.variance)
    assert alone.dof == pytest.approx(found.dof)


def test_an_unknown_level_makes_the_whole_unknown() -> None:
    """One level of a single block leaves the overall interval infinitely wide."""
    joint = weighted([mean_of([0.1, 0.2, 0.1]), mean_of([0.2])], [1, 1]).interval()
    assert joint.high == math.inf


@pytest.mark.parametrize(("mean", "low", "high"), [(1, 1.1, 2), (1, 0, 0.9), (math.nan, 0, 1)])
def test_what_is_no_interval(mean: float, low: float, high: float) -> None:
    """A mean outside its bounds, or no number at all, cannot pass for an interval."""
    with pytest.raises(ValueError, match="low <= mean <= high"):
        Interval(mean=mean, low=low, high=high)


def test_interval_in_words() -> None:
    """A ratio is shown with its bounds, and its width is relative."""
    interval = Interval(mean=1.25, low=1.0, high=1.5)
    assert interval.show() == "1.25x [1.00, 1.50]"
    assert interval.half_width == pytest.approx(0.2)


def test_the_bootstrap_agrees_with_the_t_interval_on_many_blocks() -> None:
    """On forty blocks both say the same; on four the bootstrap says nothing."""
    dice = np.random.default_rng(5)
    values = list(dice.normal(0.2, 0.1, 40))
    again, textbook = bootstrap(values), mean_of(values).interval()
    assert again
    assert again.low == pytest.approx(textbook.low, rel=0.01)
    assert again.high == pytest.approx(textbook.high, rel=0.01)
    assert bootstrap(values) == again
    assert bootstrap(values[:4]) is None
