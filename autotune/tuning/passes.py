"""From what client and server saw of a pass to a `Pass`: differences, and whether it may count.

Rules: pure; a counter is only ever used as the difference of two readings; what the engine does
not count is None, and no check is made of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.core.acceptance import SpecCounters
from autotune.core.latency import request_times
from autotune.core.methods import Method
from autotune.core.steps import step_stats
from autotune.core.trial import Cause, Launch, Pass
from autotune.core.validity import Observed, first_flaw
from autotune.errors import LaunchError
from autotune.ports import Counters, LoadResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a pass stands in its launch."""

    num_speculative_tokens: int
    concurrency: int
    block: int
    order: int
    started_s: float
    request_rate: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """What was read of the engine around a pass."""

    before: Counters
    after: Counters
    steps_by_k: Mapping[int, int] | None
    """Live launches only."""


def observe(launch: Launch, place: Place, result: LoadResult, read: Readings) -> Observed:
    """What the checks of a pass look at."""
    k, before, after = place.num_speculative_tokens, read.before, read.after
    errors = [s.error for s in result.samples if s.error]
    return Observed(
        num_speculative_tokens=k,
        method=_method(launch),
        requests=len(result.samples),
        failed=len(errors),
        first_error=errors[0] if errors else "",
        client_tokens=sum(s.output_tokens for s in result.samples),
        server_tokens=after.generation_tokens - before.generation_tokens,
        prefix_hit_rate=_hit_rate(before, after),
        client_lag_s=result.event_loop_lag_s,
        spec=_spec(launch, before, after),
        steps_by_k=read.steps_by_k,
        steps=step_stats(result.samples, k, place.concurrency),
    )


def as_pass(place: Place, result: LoadResult, read: Readings, seen: Observed) -> Pass:
    """The pass as it is kept, with its flaw if it has one."""
    flaw = first_flaw(seen)
    return Pass(
        num_speculative_tokens=place.num_speculative_tokens,
        concurrency=place.concurrency,
        block=place.block,
        order=place.order,
        started_s=place.started_s,
        duration_s=result.duration_s,
        requests=seen.requests,
        failed=seen.failed,
        prompt_tokens=sum(s.prompt_tokens for s in result.samples),
        output_tokens=seen.client_tokens,
        spec=seen.spec,
        steps=seen.steps,
        prefix_hit_rate=seen.prefix_hit_rate,
        preemptions=_moved(read.before.preemptions, read.after.preemptions),
        client_lag_ms=result.event_loop_lag_s * 1e3,
        request_rate=place.request_rate,
        times=request_times(result.samples),
        # What waited no longer than the client was late at worst may have waited for the client.
        queued=sum(s.waited_s > result.event_loop_lag_s for s in result.samples),
        invalid=flaw.why if flaw else None,
        remedy=flaw.remedy if flaw else "",
    )


def _method(launch: Launch) -> Method | None:
    return launch.candidate.row if launch.candidate else None


def _hit_rate(before: Counters, after: Counters) -> float | None:
    queries = _moved(before.prefix_queries, after.prefix_queries)
    hits = _moved(before.prefix_hits, after.prefix_hits)
    if queries is None or hits is None:
        return None
    return hits / queries if queries > 0 else 0.0


def _moved(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def _spec(launch: Launch, before: Counters, after: Counters) -> SpecCounters | None:
    if launch.k_max == 0 or after.spec is None or before.spec is None:
        return None
    try:
        return after.spec - before.spec
    except ValueError as error:
        raise LaunchError(
            Cause.CRASHED_RUNTIME, str(error), "the server restarted inside a pass"
        ) from error
