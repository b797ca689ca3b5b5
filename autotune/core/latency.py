"""Latencies of a pass from the times of its requests.

Laws: over successful requests only; time per output token is (last - first token) / (tokens - 1)
with the tokens of the usage, because one chunk may carry several.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from autotune.core.trial import Latencies


class Timed(Protocol):
    """What is asked of a request: its times, in seconds on one clock, and its tokens."""

    @property
    def sent_s(self) -> float: ...
    @property
    def first_token_s(self) -> float | None: ...
    @property
    def end_s(self) -> float: ...
    @property
    def output_tokens(self) -> int: ...
    @property
    def chunk_s(self) -> Sequence[float]: ...
    @property
    def error(self) -> str | None: ...


def time_per_output_token_s(request: Timed) -> float | None:
    """The mean time between output tokens after the first; None for a reply of one token."""
    if request.output_tokens < 2 or request.first_token_s is None:  # noqa: PLR2004 - a pair
        return None
    return (request.chunk_s[-1] - request.first_token_s) / (request.output_tokens - 1)


def summarise(requests: Iterable[Timed]) -> Latencies | None:
    """Median and p99 of a pass; None without a successful request of two tokens or more."""
    good = [r for r in requests if r.error is None]
    first = [r.first_token_s - r.sent_s for r in good if r.first_token_s is not None]
    per_token = [t for t in map(time_per_output_token_s, good) if t is not None]
    if not per_token:
        return None
    median_ttft, p99_ttft = _median_and_p99_ms(first)
    median_tpot, p99_tpot = _median_and_p99_ms(per_token)
    median_e2e, p99_e2e = _median_and_p99_ms([r.end_s - r.sent_s for r in good])
    return Latencies(
        median_ttft_ms=median_ttft,
        p99_ttft_ms=p99_ttft,
        median_tpot_ms=median_tpot,
        p99_tpot_ms=p99_tpot,
        median_e2e_ms=median_e2e,
        p99_e2e_ms=p99_e2e,
    )


def _median_and_p99_ms(seconds: Sequence[float]) -> tuple[float, float]:
    median, p99 = np.percentile(seconds, [50, 99]) * 1e3
    return float(median), float(p99)
