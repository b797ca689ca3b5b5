"""Latencies of a pass."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.core.latency import (
    FIGURES,
    Latencies,
    RequestTimes,
    pooled_latencies,
    request_times,
    time_per_output_token_s,
)


@dataclass(frozen=True)
class Timing:
    """The times of one request."""

    sent_s: float
    chunk_s: tuple[float, ...]
    end_s: float
    output_tokens: int
    error: str | None = None

    @property
    def first_token_s(self) -> float | None:
        """When the first token came."""
        return self.chunk_s[0] if self.chunk_s else None


def test_time_per_token_divides_by_tokens_not_chunks() -> None:
    """Eleven tokens in three chunks over one second are 100 ms per token after the first."""
    request = Timing(sent_s=1.0, chunk_s=(1.5, 2.0, 2.5), end_s=2.6, output_tokens=11)
    assert time_per_output_token_s(request) == pytest.approx(0.1)


def test_one_token_has_no_time_per_token() -> None:
    """There is nothing after the first token."""
    request = Timing(sent_s=0.0, chunk_s=(0.5,), end_s=0.6, output_tokens=1)
    assert time_per_output_token_s(request) is None
    times = request_times([request])
    assert times == RequestTimes(ttft_ms=(500.0,), tpot_ms=(None,), e2e_ms=(600.0,))
    assert pooled_latencies([times]) is None


def test_summary_is_median_and_p99_in_milliseconds() -> None:
    """Three latencies over 101 requests, each its own index in milliseconds."""
    requests = [
        Timing(sent_s=0.0, chunk_s=(i / 1e3, 3 * i / 1e3), end_s=4 * i / 1e3, output_tokens=3)
        for i in range(101)
    ]
    found = pooled_latencies([request_times(requests)])
    assert found is not None
    assert (found.median_ttft_ms, found.p99_ttft_ms) == pytest.approx((50, 99))
    assert (found.median_tpot_ms, found.p99_tpot_ms) == pytest.approx((50, 99))
    assert (found.median_e2e_ms, found.p99_e2e_ms) == pytest.approx((200, 396))


def test_failed_requests_have_no_latency() -> None:
    """A request that failed fast does not make the pass fast."""
    good = Timing(sent_s=0.0, chunk_s=(1.0, 2.0), end_s=2.0, output_tokens=2)
    failed = Timing(sent_s=0.0, chunk_s=(), end_s=0.003, output_tokens=0, error="HTTP 404")
    found = pooled_latencies([request_times([failed, good, failed])])
    assert found is not None
    assert (found.median_ttft_ms, found.median_e2e_ms) == pytest.approx((1000, 2000))
    assert found.requests == 1
    assert request_times([failed]) is None


def of(*ttft_ms: float) -> RequestTimes:
    """Requests of these TTFTs, all else equal."""
    n = len(ttft_ms)
    return RequestTimes(ttft_ms=ttft_ms, tpot_ms=(10.0,) * n, e2e_ms=(900.0,) * n)


def test_a_percentile_is_taken_over_all_passes_together() -> None:
    """One slow request among two hundred is beyond the 99th percentile; a mean of p99s is not."""
    quiet, slow = of(*[100.0] * 100), of(*[100.0] * 99, 5000.0)
    found = pooled_latencies([quiet, None, slow])
    assert found is not None
    assert found.requests == 200
    assert found.p99_ttft_ms == pytest.approx(100)
    alone = pooled_latencies([slow])
    assert alone is not None
    assert alone.p99_ttft_ms > 140


def test_without_any_times_there_is_no_latency() -> None:
    """Nothing measured is nothing, never zero."""
    assert pooled_latencies([]) is None
    assert pooled_latencies([None, None]) is None


@pytest.mark.parametrize(("count", "said"), [(99, "99 requests"), (100, "")])
def test_a_p99_of_few_requests_says_so(count: int, said: str) -> None:
    """Below a hundred it is next to the worst request, and a median never is."""
    found = pooled_latencies([of(*map(float, range(count)))])
    assert found is not None
    assert said in found.remark("p99_ttft_ms")
    assert bool(found.remark("p99_ttft_ms")) == bool(said)
    assert found.remark("median_ttft_ms") == ""


def test_the_figures_are_all_but_the_count() -> None:
    """What is shown as a latency is one."""
    assert set(Latencies.__slots__) - set(FIGURES) == {"requests"}


def test_times_must_be_of_the_same_requests() -> None:
    """Three columns of one table, and not an empty one."""
    with pytest.raises(ValueError, match="got 1, 2, 1"):
        RequestTimes(ttft_ms=(1.0,), tpot_ms=(1.0, 2.0), e2e_ms=(1.0,))
    with pytest.raises(ValueError, match="got 0, 0, 0"):
        RequestTimes(ttft_ms=(), tpot_ms=(), e2e_ms=())


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=300))
def test_percentiles_are_those_of_numpy(values: list[float]) -> None:
    """The same figures as `vllm bench serve` makes of the same times."""
    found = pooled_latencies([of(*values)])
    assert found is not None
    expected = [float(x) for x in np.percentile(values, [50, 99])]
    assert [found.median_ttft_ms, found.p99_ttft_ms] == pytest.approx(expected)
