"""Latencies from the times of requests: of one pass, or pooled over all passes of a point.

Laws: over successful requests only; time per output token is (last - first token) / (tokens - 1)
with the tokens of the usage, because one chunk may carry several; a percentile is taken over all
requests together, never averaged over passes, and says over how many.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Protocol

from autotune.core.counting import counted

DECIMALS = 1
"""Tenths of a millisecond: the times ride along in every record, once for each request."""
ENOUGH_FOR_P99 = 100
"""Below so many requests the 99th percentile is next to the worst of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Median and 99th percentile over some requests, in milliseconds."""

    median_ttft_ms: float
    p99_ttft_ms: float
    median_tpot_ms: float
    p99_tpot_ms: float
    median_e2e_ms: float
    p99_e2e_ms: float
    requests: int
    """How many requests they were taken over."""

    def remark(self, metric: str) -> str:
        """` (next to the worst of 48 requests)` for a p99 that so few cannot give; else nothing."""
        if not metric.startswith("p99") or self.requests >= ENOUGH_FOR_P99:
            return ""
        return f" (next to the worst of {counted(self.requests, 'request')})"


FIGURES = tuple(f.name for f in fields(Latencies) if f.name.endswith("_ms"))
"""The names of the latency figures, in the order in which they are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTimes:
    """The times of each successful request, in milliseconds; the same place is the same request."""

    ttft_ms: tuple[float, ...]
    tpot_ms: tuple[float | None, ...]
    """None for a reply of one token."""
    e2e_ms: tuple[float, ...]

    def __post_init__(self) -> None:
        if not 0 < len(self.ttft_ms) == len(self.tpot_ms) == len(self.e2e_ms):
            raise ValueError(
                "need the same number of TTFT, TPOT and E2E times, and one at least, got "
                f"{len(self.ttft_ms)}, {len(self.tpot_ms)}, {len(self.e2e_ms)}"
            )

    def __iter__(self) -> Iterator[tuple[float, float | None, float]]:
        """TTFT, TPOT and E2E of one request after the other."""
        return zip(self.ttft_ms, self.tpot_ms, self.e2e_ms, strict=True)

    @property
    def mean_e2e_ms(self) -> float:
        """Mean milliseconds from arrival to the end of the reply."""
        return sum(self.e2e_ms) / len(self.e2e_ms)


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


def request_times(requests: Iterable[Timed]) -> RequestTimes | None:
    """The times of the successful requests, in their order; None without any."""
    good = [(r, r.first_token_s) for r in requests if r.error is None]
    timed = [(r, first) for r, first in good if first is not None]
    if not timed:
        return None
    per_token = [time_per_output_token_s(r) for r, _ in timed]
    return RequestTimes(
        ttft_ms=tuple(_ms(first - r.sent_s) for r, first in timed),
        tpot_ms=tuple(None if t is None else _ms(t) for t in per_token),
        e2e_ms=tuple(_ms(r.end_s - r.sent_s) for r, _ in timed),
    )


def pooled_latencies(parts: Iterable[RequestTimes | None]) -> Latencies | None:
    """Median and p99 over the requests of all parts; None without a reply of two tokens."""
    requests = [request for part in parts if part is not None for request in part]
    per_token = [tpot for _, tpot, _ in requests if tpot is not None]
    if not per_token:
        return None
    median_ttft, p99_ttft = _median_and_p99([ttft for ttft, _, _ in requests])
    median_tpot, p99_tpot = _median_and_p99(per_token)
    median_e2e, p99_e2e = _median_and_p99([e2e for _, _, e2e in requests])
    return Latencies(
        median_ttft_ms=median_ttft,
        p99_ttft_ms=p99_ttft,
        median_tpot_ms=median_tpot,
        p99_tpot_ms=p99_tpot,
        median_e2e_ms=median_e2e,
        p99_e2e_ms=p99_e2e,
        requests=len(requests),
    )


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, DECIMALS)


def _median_and_p99(values: Sequence[float]) -> tuple[float, float]:
    ranked = sorted(values)
    return _percentile(ranked, 0.5), _percentile(ranked, 0.99)


def _percentile(ranked: Sequence[float], share: float) -> float:
    """With linear interpolation, as numpy and so vLLM have it; records must load without numpy."""
    place = share * (len(ranked) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (place - low) * (ranked[high] - ranked[low])
