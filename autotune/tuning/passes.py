"""From what client and server saw of a pass to a `Pass`: differences, and whether it may count.

Rules: pure; a counter is only ever used as the difference of two readings; what the engine does
not count is None, and no check is made of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.core.acceptance import SpecCounters
from autotune.core.latency import request_times
from autotune.core.methods import Method
from autotune.core.schedule import ranges_of
from autotune.core.steps import step_stats
from autotune.core.texts import is_json, looping
from autotune.core.trial import Launch, Pass
from autotune.core.validity import Observed, first_flaw
from autotune.ports import Counters, LoadResult, RequestSample, Surroundings


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
    around: Surroundings = field(default_factory=Surroundings)


def observe(launch: Launch, place: Place, result: LoadResult, read: Readings) -> Observed:
    """What the checks of a pass look at."""
    k, before, after = place.num_speculative_tokens, read.before, read.after
    errors = [s.error for s in result.samples if s.error]
    backwards = _backwards(before, after)
    scheduled = launch.candidate is not None and bool(ranges_of(launch.candidate.settings))
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
        # Of counters that began anew not even those that did not fall say what happened.
        spec=None if backwards else _spec(launch, before, after),
        steps_by_k=read.steps_by_k,
        # Where batches are smaller, at the ends of a pass, a schedule has another K in force.
        steps=step_stats(result.samples, k, place.concurrency, full_only=scheduled),
        concurrency=place.concurrency,
        duration_s=result.duration_s,
        client_cpu_s=result.client_cpu_s,
        backwards=backwards,
        disturbances=read.around.disturbances,
        warnings=read.around.warnings,
        looping=sum(looping(s.text) for s in result.samples if not s.error),
        scheduled=scheduled,
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
        kv_cache_peak=read.around.kv_cache_peak,
        client_lag_ms=result.event_loop_lag_s * 1e3,
        client_cpu=result.client_cpu_s / result.duration_s,
        looping=seen.looping,
        host=read.around.host,
        warnings=seen.warnings,
        request_rate=place.request_rate,
        times=request_times(result.samples),
        # What waited no longer than the client was late at worst may have waited for the client.
        queued=sum(s.waited_s > result.event_loop_lag_s for s in result.samples),
        not_json=sum(map(_not_json, result.samples)),
        invalid=flaw.why if flaw else None,
        remedy=flaw.remedy if flaw else "",
    )


def _not_json(sample: RequestSample) -> bool:
    """Whether a reply that ended by itself was to be JSON and is none."""
    if sample.json_text is None or sample.error or sample.finish_reason == "length":
        return False
    return not is_json(sample.json_text)


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
    """What was drafted; None without speculation: its counters may be shown all the same."""
    if launch.k_max == 0 or after.spec is None or before.spec is None:
        return None
    return after.spec - before.spec


def _backwards(before: Counters, after: Counters) -> tuple[str, ...]:
    """The counters that are lower after the pass than before."""
    names = ("generation_tokens", "prompt_tokens", "prefix_queries", "prefix_hits", "preemptions")
    moved = {name: _moved(getattr(before, name), getattr(after, name)) for name in names}
    found = [name for name, by in moved.items() if by is not None and by < 0]
    return (*found, *_spec_backwards(before.spec, after.spec))


def _spec_backwards(before: SpecCounters | None, after: SpecCounters | None) -> tuple[str, ...]:
    if before is None or after is None:
        return ()
    try:
        _ = after - before
    except ValueError:
        return ("the counters of speculation",)
    return ()
