"""What is compared: each figure larger-is-better, and goodput that may be 0."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.core.arms import arms
from autotune.core.comparison import PLAIN, comparer
from autotune.core.noise import noise_of
from autotune.core.objective import FIGURES, SPEED, Yardstick, compared_at, typical, yardstick
from autotune.core.recommendation import recommend
from autotune.core.study import METRICS, Objective, StudySpec
from autotune.core.trial import Pass
from autotune.core.wording import headline, over_levels
from autotune.core.workload import Slo
from tests.builders import make_pass, make_spec, make_workload
from tests.builders_study import make_open_spec, make_study_records

SLO = Slo(ttft_ms=100.0)


def spec_for(metric: str, slo: Slo | None = SLO) -> StudySpec:
    """The study with another objective."""
    return make_spec(workload=replace(make_workload(), slo=slo), objective=Objective(metric=metric))


def with_good(count: int, requests: int = 16, *, block: int = 0, seconds: float = 8.0) -> Pass:
    """A pass of which so many requests keep TTFT <= 100 ms."""
    base = make_pass(k=0, concurrency=4, block=block)
    assert base.times
    ttft = (50.0,) * count + (500.0,) * (requests - count)
    times = replace(base.times, ttft_ms=ttft)
    return replace(base, times=times, requests=requests, duration_s=seconds)


def slower(measured: Pass, factor: float) -> Pass:
    """The same pass with every time longer."""
    assert measured.times
    times = replace(
        measured.times,
        tpot_ms=tuple(None if t is None else t * factor for t in measured.times.tpot_ms),
        e2e_ms=tuple(t * factor for t in measured.times.e2e_ms),
    )
    return replace(measured, times=times, duration_s=measured.duration_s * factor)


def test_every_metric_has_a_row() -> None:
    """The file's words and the table's are the same."""
    assert tuple(FIGURES) == METRICS


@pytest.mark.parametrize("metric", ["output_throughput", "tpot", "e2e"])
@given(factor=st.floats(1.01, 20.0))
def test_twice_as_fast_is_twice_whatever_is_compared(metric: str, factor: float) -> None:
    """A latency enters as its reciprocal."""
    measure = Yardstick(figure=FIGURES[metric])
    fast = make_pass(k=0, concurrency=4)
    found = measure.log_ratios([([fast], [slower(fast, factor)])])
    assert found == pytest.approx((math.log(factor),), rel=1e-9)


def test_a_pass_without_the_figure_is_left_out() -> None:
    """Replies of one token have no TPOT; the other blocks count."""
    good = make_pass(k=0, concurrency=4)
    assert good.times
    bare = replace(good, times=replace(good.times, tpot_ms=(None,) * 16))
    measure = Yardstick(figure=FIGURES["tpot"])
    assert measure.log_ratios([([bare], [good]), ([slower(good, 2.0)], [good])]) == pytest.approx(
        (-math.log(2),)
    )
    assert measure.estimate([([bare], [good])]) is None


def goodput_of(mine: Sequence[Pass], theirs: Sequence[Pass]) -> tuple[float, float, float]:
    """Ratio and interval of two arms of the same blocks."""
    measure = Yardstick(figure=FIGURES["goodput"], slo=SLO)
    estimate = measure.estimate([([a], [b]) for a, b in zip(mine, theirs, strict=True)])
    assert estimate
    interval = estimate.interval()
    return interval.mean, interval.low, interval.high


def test_goodput_is_the_ratio_of_good_requests_per_second() -> None:
    """Twice as many in the same time."""
    mine = [with_good(8, block=b) for b in range(4)]
    theirs = [with_good(4, block=b) for b in range(4)]
    mean, low, high = goodput_of(mine, theirs)
    assert mean == pytest.approx(32.5 / 16.5)
    assert low < mean < high


def test_no_good_request_at_all_says_nothing() -> None:
    """0 over 0 is no gain: the interval holds everything that anybody would call one."""
    none = [with_good(0, block=b) for b in range(4)]
    _, low, high = goodput_of(none, none)
    assert low < 0.1
    assert high > 10


def test_some_against_none_is_a_gain_with_a_finite_end() -> None:
    """All against none, over four blocks: surely better, and not infinitely."""
    mean, low, high = goodput_of(
        [with_good(16, block=b) for b in range(4)], [with_good(0, block=b) for b in range(4)]
    )
    assert 1 < low < mean < high < math.inf


def test_blocks_that_differ_more_than_counts_do_widen_the_interval() -> None:
    """Requests of one queue are good together or not at all."""
    theirs = [with_good(8, block=b) for b in range(4)]
    even = goodput_of([with_good(8, block=b) for b in range(4)], theirs)
    ragged = goodput_of([with_good(n, block=b) for b, n in enumerate((16, 0, 16, 0))], theirs)
    assert even[0] == pytest.approx(ragged[0])
    assert ragged[2] / ragged[1] > even[2] / even[1]


def test_steps_are_for_the_speed_of_replies_alone() -> None:
    """They know the time of a reply, and nothing of the mean TPOT of a pass."""
    records = make_study_records(confirmed=False)
    for metric in METRICS:
        spec = spec_for(metric)
        levels = spec.workload.levels
        found = comparer(arms(records), levels, noise_of(records, levels), yardstick(spec))
        pair = found.compare(("eagle", 2), PLAIN, 4)
        assert pair
        assert FIGURES[metric].by_steps or pair.steps is None


def test_what_a_level_compares() -> None:
    """At a rate the throughput is the rate's."""
    closed, at = make_open_spec().workload.levels
    assert compared_at(make_open_spec(), closed).name == "output_throughput"
    assert compared_at(make_open_spec(), at).name == "e2e"
    assert compared_at(spec_for("tpot"), closed).name == "tpot"


@pytest.mark.parametrize(
    ("metric", "words"),
    [("tpot", "mean TPOT"), ("e2e", "mean E2E latency"), ("goodput", "goodput")],
)
def test_the_verdict_says_what_the_ratio_is_of(metric: str, words: str) -> None:
    """Never a bare speedup of something else."""
    spec = spec_for(metric)
    where = f"weighted over {words} at concurrency 1 and {words} at concurrency 4"
    assert over_levels(spec) == where
    assert where in headline(spec, recommend(spec, make_study_records()))
    assert "mean" not in over_levels(spec_for("output_throughput"))


def test_the_figures_shown_are_those_compared() -> None:
    """TPOT of both arms; their ratio is the speedup shown."""
    level = recommend(spec_for("tpot"), make_study_records()).levels[0]
    assert level.compared == "tpot"
    assert level.value
    assert level.baseline_value
    assert level.baseline_value / level.value == pytest.approx(level.speedup.mean)
    assert level.by_steps is None
    assert typical(FIGURES["goodput"], None, []) is None
    assert SPEED.figure.by_steps


def test_an_objective_needs_something_to_measure() -> None:
    """Goodput without objectives of service, TPOT of single tokens, a word nobody knows."""
    with pytest.raises(ValueError, match=r"write workload\.slo"):
        spec_for("goodput", None)
    with pytest.raises(ValueError, match="two tokens and more"):
        make_spec(workload=make_workload(max_tokens=1), objective=Objective(metric="tpot"))
    with pytest.raises(ValueError, match="one of output_throughput, tpot"):
        Objective(metric="speed")
