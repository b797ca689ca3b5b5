"""One launch, from the config file to its records: the only place where a server is worked with.

Rules: a launch never raises for what the engine does, it yields failures; the server is drained
before K changes; every K of a launch runs every block, in a seeded shuffled order; a pass is on
disk before the next one starts.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from autotune.core.acceptance import SpecCounters
from autotune.core.latency import summarise
from autotune.core.steps import step_stats
from autotune.core.study import JSON, StudySpec
from autotune.core.trial import (
    Cause,
    EngineFacts,
    Failure,
    Launch,
    Measurement,
    Outcome,
    Pass,
    Record,
)
from autotune.core.validity import Observed, k_not_in_force, why_invalid
from autotune.errors import LaunchError
from autotune.ports import (
    Counters,
    Engine,
    LoadGenerator,
    LoadResult,
    Request,
    ServeOrder,
    Server,
)
from autotune.tuning.events import LaunchEnded, LaunchStarted, Listener, PassDone, ServerReady
from autotune.tuning.journal import Journal
from autotune.tuning.paths import StudyPaths
from autotune.tuning.samples import SampleWriter, compact

TRIES_PER_PASS = 2
WARM_UP_TOKENS = 8
OVERTIME = 1.5
"""A launch past its time ends after min_blocks, past this multiple of it after two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """What launches are run with."""

    spec: StudySpec
    engine: Engine
    load_generator: LoadGenerator
    paths: StudyPaths
    fingerprint: str
    notify: Listener


@dataclass(slots=True, kw_only=True)
class _Run:
    """The state of one launch while it runs."""

    launch: Launch
    rig: Rig
    folder: Path
    passes: list[Pass] = field(default_factory=list)
    facts: EngineFacts | None = None
    in_flight: int | None = None
    """The K being measured, to whom a crash belongs."""
    ready: float = 0.0


def run_launch(launch: Launch, rig: Rig, config_file: Path, folder: Path) -> Iterator[Record]:
    """Serve, measure, and yield a record for every K; a failure is a record, too."""
    rig.notify(LaunchStarted(launch=launch, folder=folder))
    run = _Run(launch=launch, rig=rig, folder=folder)
    failure: Failure | None = None
    try:
        _serve(run, config_file)
    except LaunchError as error:
        failure = error.failure
    rig.notify(LaunchEnded(launch=launch, failure=failure))
    for k in launch.num_speculative_tokens:
        outcome = _outcome(run, k, failure)
        if outcome is not None:
            yield Record(
                trial=launch.trial(k),
                outcome=outcome,
                launch_id=folder.name,
                fingerprint=rig.fingerprint,
                why=launch.why,
                facts=run.facts,
            )


def _serve(run: _Run, config_file: Path) -> None:
    target = run.rig.spec.target
    order = ServeOrder(
        config_file=config_file,
        folder=run.folder,
        launcher=target.launcher,
        env=target.env,
        live=run.launch.live,
        model=str(target.engine_args.get("served_model_name", target.model)),
        start_timeout_s=run.rig.spec.search.start_timeout_s,
    )
    samples_file = run.folder / "samples.jsonl"
    with (
        Journal(run.folder, run.launch, run.rig.fingerprint) as journal,
        SampleWriter(samples_file) as samples,
        run.rig.engine.serve(order) as server,
    ):
        run.facts = server.facts
        journal.facts(server.facts)
        run.rig.notify(ServerReady(launch=run.launch, boot_s=server.facts.boot_s))
        _warm_up(run, server)
        run.ready = time.monotonic()
        for index, concurrency, k in _order(run):
            for _ in range(TRIES_PER_PASS):
                run.in_flight = k
                measured, result = _measure(run, server, index, concurrency, k)
                run.passes.append(measured)
                journal.add(measured)
                samples.append(_header(measured), result.samples)
                run.rig.notify(PassDone(launch=run.launch, measured=measured))
                if measured.invalid is None:
                    break
        run.in_flight = None
    compact(samples_file)


def _order(run: _Run) -> Iterator[tuple[int, int, int]]:
    """(block, concurrency, K): block by block, K shuffled anew in each, until time is up."""
    spec, launch = run.rig.spec, run.launch
    dice = Random(f"{spec.search.seed}/{launch.name}/{launch.stage}/{launch.repeat}")
    for index in range(launch.max_blocks):
        for level in spec.workload.levels:
            if index >= spec.workload.blocks(launch.stage.prompts, level.concurrency):
                continue
            ks = list(launch.num_speculative_tokens)
            dice.shuffle(ks)
            for k in ks:
                yield index, level.concurrency, k
        if _time_up(run, done=index + 1):
            return


def _time_up(run: _Run, *, done: int) -> bool:
    allowed = run.launch.measure_s
    if allowed is None:
        return False
    spent = time.monotonic() - run.ready
    another = spent * (done + 1) / done
    if done < run.rig.spec.search.min_blocks:
        return another > allowed * OVERTIME and done > 1
    return another > allowed


def _warm_up(run: _Run, server: Server) -> None:
    workload = replace(run.rig.spec.workload, max_tokens=WARM_UP_TOKENS)
    for level in workload.levels:
        prompts = workload.block(run.launch.stage.prompts, level.concurrency, 0)[
            : level.concurrency
        ]
        for k in run.launch.num_speculative_tokens:
            salt = f"warm-up.{level.concurrency}.{k}"
            requests = [
                Request(prompt=p, cache_salt=salt, xargs=_xargs(run.launch, k)) for p in prompts
            ]
            result = run.rig.load_generator.run(server, workload, requests, level.concurrency)
            server.check_alive()
            errors = [s.error for s in result.samples if s.error]
            if errors:
                raise LaunchError(
                    Cause.LOAD_FAILED,
                    f"warm-up at concurrency {level.concurrency}, K = {k}: {errors[0]}",
                    "the engine answers, but refuses the workload: see its message",
                )
            server.wait_drained()
    if run.launch.live:
        server.steps_by_k()


def _measure(
    run: _Run, server: Server, index: int, concurrency: int, k: int
) -> tuple[Pass, LoadResult]:
    spec, order, split = run.rig.spec, len(run.passes), run.launch.stage.prompts
    # vLLM refuses salts with a slash, an @ or a backslash, and long ones.
    salt = f"{split}.{index}.{concurrency}.{k}.{order}"
    requests = [
        Request(prompt=prompt, cache_salt=salt, xargs=_xargs(run.launch, k))
        for prompt in spec.workload.block(split, concurrency, index)
    ]
    server.wait_drained()
    before = server.counters()
    started = time.monotonic() - run.ready
    result = run.rig.load_generator.run(server, spec.workload, requests, concurrency)
    server.check_alive()
    server.wait_drained()
    after = server.counters()
    steps = server.steps_by_k() if run.launch.live else None
    seen = _observe(run, k, result, before, after, steps)
    if run.launch.live and (why := k_not_in_force(seen)):
        raise LaunchError(
            Cause.LIVE_K_NOT_IN_FORCE, why, "autotune goes on with one launch per K by itself"
        )
    return _as_pass(seen, result, (before, after), (index, concurrency, order, started)), result


def _observe(
    run: _Run,
    k: int,
    result: LoadResult,
    before: Counters,
    after: Counters,
    steps: Mapping[int, int] | None,
) -> Observed:
    errors = [s.error for s in result.samples if s.error]
    queries = after.prefix_queries - before.prefix_queries
    hits = after.prefix_hits - before.prefix_hits
    return Observed(
        num_speculative_tokens=k,
        method=run.launch.candidate.row if run.launch.candidate else None,
        requests=len(result.samples),
        failed=len(errors),
        first_error=errors[0] if errors else "",
        client_tokens=sum(s.output_tokens for s in result.samples),
        server_tokens=after.generation_tokens - before.generation_tokens,
        prefix_hit_rate=hits / queries if queries > 0 else 0.0,
        spec=_spec_delta(run, before, after),
        steps_by_k=steps,
    )


def _spec_delta(run: _Run, before: Counters, after: Counters) -> SpecCounters | None:
    if run.launch.k_max == 0 or after.spec is None or before.spec is None:
        return None
    try:
        return after.spec - before.spec
    except ValueError as error:
        raise LaunchError(
            Cause.CRASHED_RUNTIME, str(error), "the server restarted inside a pass"
        ) from error


def _as_pass(
    seen: Observed,
    result: LoadResult,
    counters: tuple[Counters, Counters],
    place: tuple[int, int, int, float],
) -> Pass:
    (index, concurrency, order, started), (before, after) = place, counters
    return Pass(
        num_speculative_tokens=seen.num_speculative_tokens,
        concurrency=concurrency,
        block=index,
        order=order,
        started_s=started,
        duration_s=result.duration_s,
        requests=seen.requests,
        failed=seen.failed,
        prompt_tokens=sum(s.prompt_tokens for s in result.samples),
        output_tokens=seen.client_tokens,
        latencies=summarise(result.samples),
        spec=seen.spec,
        steps=step_stats(result.samples, seen.num_speculative_tokens),
        prefix_hit_rate=seen.prefix_hit_rate,
        preemptions=after.preemptions - before.preemptions,
        invalid=why_invalid(seen),
    )


def _outcome(run: _Run, k: int, failure: Failure | None) -> Outcome | None:
    """A failure belongs to the K in flight; other K keep what they had measured by then."""
    mine = tuple(p for p in run.passes if p.num_speculative_tokens == k)
    valid = any(p.invalid is None for p in mine)
    if failure is not None:
        if failure.cause is Cause.LIVE_K_NOT_IN_FORCE or run.in_flight in (None, k):
            return failure
        return Measurement(passes=mine, cut_short=True) if valid else None
    if not valid:
        why = f"not one of {len(mine)} passes was valid, the first: {mine[0].invalid}"
        return Failure(cause=Cause.LOAD_FAILED, detail=why, remedy="mend what made it invalid")
    return Measurement(passes=mine)


def _xargs(launch: Launch, k: int) -> Mapping[str, int]:
    return {"num_speculative_tokens": k} if launch.live else {}


def _header(measured: Pass) -> Mapping[str, JSON]:
    return {
        "num_speculative_tokens": measured.num_speculative_tokens,
        "concurrency": measured.concurrency,
        "block": measured.block,
        "order": measured.order,
        "invalid": measured.invalid,
    }
