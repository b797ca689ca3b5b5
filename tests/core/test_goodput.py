"""Goodput: which requests are good, how many a second, and how sure the share is."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from autotune.core.goodput import good, goodput
from autotune.core.latency import RequestTimes
from autotune.core.proportion import wilson
from autotune.core.trial import Pass
from autotune.core.workload import Slo
from tests.builders import make_pass

TIMES = RequestTimes(
    ttft_ms=(100.0, 300.0, 300.1, 100.0),
    tpot_ms=(20.0, 50.0, 20.0, None),
    e2e_ms=(900.0, 2000.0, 900.0, 100.0),
)


def passed(times: RequestTimes | None = TIMES) -> Pass:
    """A pass of four requests in two seconds."""
    return replace(make_pass(k=0, concurrency=1), times=times, requests=4, duration_s=2.0)


@pytest.mark.parametrize(
    ("slo", "count"),
    [
        (Slo(ttft_ms=300.0), 3),
        (Slo(tpot_ms=49.9), 3),
        (Slo(e2e_ms=899.0), 1),
        (Slo(ttft_ms=300.0, tpot_ms=50.0, e2e_ms=2000.0), 3),
        (Slo(ttft_ms=99.0), 0),
    ],
)
def test_a_good_request_keeps_every_objective(slo: Slo, count: int) -> None:
    """A bound may be met exactly; a reply of one token keeps any time per further token."""
    assert good(passed(), slo) == count


def test_goodput_is_counted_over_all_passes() -> None:
    """Good requests over seconds, both summed before they are divided."""
    long = replace(passed(), duration_s=6.0)
    found = goodput([passed(), long], Slo(ttft_ms=300.0))
    assert found is not None
    assert (found.good, found.requests, found.rate) == (6, 8, 0.75)
    assert found.share.mean == 0.75
    assert found.show() == "0.75 req/s, 75% [41%, 93%]"


def test_without_objectives_or_times_there_is_no_goodput() -> None:
    """Unknown is not zero; a pass in which every request failed is."""
    assert goodput([passed()], None) is None
    assert goodput([], Slo(ttft_ms=1.0)) is None
    assert goodput([passed(), passed(None)], Slo(ttft_ms=1.0)) is None
    failed = replace(passed(None), failed=4)
    assert good(failed, Slo(ttft_ms=1.0)) == 0


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_is_that_of_scipy(counts: tuple[int, int]) -> None:
    """The same interval as scipy's binomtest, which is slow to import."""
    successes, trials = counts
    low, high = wilson(successes, trials)
    theirs = binomtest(successes, trials).proportion_ci(method="wilson")
    assert (low, high) == pytest.approx((theirs.low, theirs.high), abs=1e-9)
    assert 0 <= low <= (successes / trials) <= high <= 1


def test_a_share_of_nothing_is_refused() -> None:
    """No request, no share."""
    with pytest.raises(ValueError, match="got 0/0"):
        wilson(0, 0)
