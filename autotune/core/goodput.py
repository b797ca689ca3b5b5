"""Goodput: how many requests per second kept every service level objective.

Rules: a request is good only if it keeps all of them, and every request sent counts in the share;
it is computed from the times in the record, so other objectives need no other measurement.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.core.proportion import wilson
from autotune.core.statistics import Interval
from autotune.core.trial import Pass
from autotune.core.workload import Slo


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """The good requests among all that were sent."""

    good: int
    requests: int
    duration_s: float

    @property
    def rate(self) -> float:
        """Good requests per second."""
        return self.good / self.duration_s

    @property
    def share(self) -> Interval:
        """Good over all requests, a fraction, with its Wilson interval.

        It takes requests for independent; those of one queue are not, so it is rather too narrow.
        """
        low, high = wilson(self.good, self.requests)
        return Interval(mean=self.good / self.requests, low=low, high=high)

    def show(self) -> str:
        """`2.31 req/s, 94% [86%, 98%]`."""
        share = self.share
        return f"{self.rate:.2f} req/s, {share.mean:.0%} [{share.low:.0%}, {share.high:.0%}]"


def good(measured: Pass, slo: Slo) -> int | None:
    """How many requests of a pass kept every objective; None when their times were not kept."""
    if measured.times is None:
        return None if measured.failed < measured.requests else 0
    return sum(slo.kept(ttft_ms=a, tpot_ms=b, e2e_ms=c) for a, b, c in measured.times)


def goodput(passes: Sequence[Pass], slo: Slo | None) -> Goodput | None:
    """The goodput of several passes together; None without an objective or without times."""
    if slo is None or not passes:
        return None
    known = [n for n in (good(p, slo) for p in passes) if n is not None]
    if len(known) < len(passes):
        return None
    return Goodput(
        good=sum(known),
        requests=sum(p.requests for p in passes),
        duration_s=sum(p.duration_s for p in passes),
    )
