"""Latencies of a pass."""

from dataclasses import dataclass

import pytest

from autotune.core.latency import summarise, time_per_output_token_s


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
    assert summarise([request]) is None


def test_summary_is_median_and_p99_in_milliseconds() -> None:
    """Three latencies over 101 requests, each its own index in milliseconds."""
    requests = [
        Timing(sent_s=0.0, chunk_s=(i / 1e3, 3 * i / 1e3), end_s=4 * i / 1e3, output_tokens=3)
        for i in range(101)
    ]
    found = summarise(requests)
    assert found is not None
    assert (found.median_ttft_ms, found.p99_ttft_ms) == pytest.approx((50, 99))
    assert (found.median_tpot_ms, found.p99_tpot_ms) == pytest.approx((50, 99))
    assert (found.median_e2e_ms, found.p99_e2e_ms) == pytest.approx((200, 396))


def test_failed_requests_have_no_latency() -> None:
    """A request that failed fast does not make the pass fast."""
    good = Timing(sent_s=0.0, chunk_s=(1.0, 2.0), end_s=2.0, output_tokens=2)
    failed = Timing(sent_s=0.0, chunk_s=(), end_s=0.003, output_tokens=0, error="HTTP 404")
    found = summarise([failed, good, failed])
    assert found is not None
    assert (found.median_ttft_ms, found.median_e2e_ms) == pytest.approx((1000, 2000))
    assert summarise([failed]) is None
