"""One launch, from the config file to its records: the only place where a server is worked with.

Rules: a launch never raises for what the engine does, it yields failures, and says so at its end
when no other launch would escape this one; the server is drained before K changes; which pass is
next is decided in rounds.py; a pass is on disk before the next one starts; no request finds another
one's prompt in the prefix cache.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from autotune.core.causes import of_one_k, stops_study
from autotune.core.counting import counted
from autotune.core.jsontype import JSON
from autotune.core.study import StudySpec
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
from autotune.core.validity import k_not_in_force
from autotune.core.workload import Level
from autotune.errors import LaunchError, StudyStoppedError
from autotune.ports import (
    Arrivals,
    Engine,
    LoadGenerator,
    LoadResult,
    ServeOrder,
    Server,
)
from autotune.tuning.disk import disk_full
from autotune.tuning.events import LaunchEnded, LaunchStarted, Listener, PassDone, ServerReady
from autotune.tuning.journal import Journal
from autotune.tuning.passes import Place, Readings, as_pass, observe
from autotune.tuning.paths import StudyPaths
from autotune.tuning.replies import reply_key
from autotune.tuning.rounds import Rounds
from autotune.tuning.samples import SampleWriter, compact
from autotune.tuning.sending import accepted_greedily, check_useful, requests_of

TRIES_PER_PASS = 2
WARM_UP_TOKENS = 8
LATER_START = 5.0
"""How much longer than the longest start seen of the same candidate a later one may take: it finds
its weights downloaded and most of its code compiled."""
LEAST_START_S = 300.0


class Phase(StrEnum):
    """How far a launch has come."""

    STARTING = "starting"  # warm-up included
    MEASURING = "measuring"
    MEASURED = "measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """What launches are run with."""

    spec: StudySpec
    engine: Engine
    load_generators: Mapping[str, LoadGenerator]
    """By the name that a level asks for: open or closed loop."""
    paths: StudyPaths
    fingerprint: str
    notify: Listener


@dataclass(slots=True, kw_only=True)
class _Run:
    """The state of one launch while it runs."""

    launch: Launch
    rig: Rig
    folder: Path
    rounds: Rounds
    passes: list[Pass] = field(default_factory=list)
    facts: EngineFacts | None = None
    phase: Phase = Phase.STARTING
    in_hand: int
    """The K being measured or warmed up; K_max while the server starts."""
    ready: float = 0.0


def run_launch(
    launch: Launch, rig: Rig, config_file: Path, folder: Path, known: Sequence[Record] = ()
) -> Iterator[Record]:
    """Serve, measure, and yield a record for every K; a failure is a record, too.

    `known` is what the study has measured before: what cannot win against it is stopped. Raises
    StudyStoppedError after the last record when no other launch would escape the failure.
    """
    rig.notify(LaunchStarted(launch=launch, folder=folder))
    passes: list[Pass] = []
    rounds = Rounds(
        spec=rig.spec,
        launch=launch,
        known=known,
        fingerprint=rig.fingerprint,
        passes=passes,
        notify=rig.notify,
    )
    run = _Run(
        launch=launch, rig=rig, folder=folder, rounds=rounds, passes=passes, in_hand=launch.k_max
    )
    failure: Failure | None = None
    try:
        _serve(run, config_file)
    except LaunchError as error:
        failure = _in_time(run, error.failure)
    except OSError as error:
        failure = disk_full(error)
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
    if failure is not None and stops_study(failure):
        raise StudyStoppedError(failure)


def _serve(run: _Run, config_file: Path) -> None:
    known = run.rounds.known
    order = serve_order(run.rig.spec, run.launch, config_file, run.folder, known)
    samples_file = run.folder / "samples.jsonl"
    with (
        Journal(run.folder, run.launch, run.rig.fingerprint) as journal,
        SampleWriter(samples_file, reply_key(run.rig.paths)) as samples,
        run.rig.engine.serve(order) as server,
    ):
        run.facts = server.facts
        journal.facts(server.facts)
        run.rig.notify(ServerReady(launch=run.launch, boot_s=server.facts.boot_s))
        _warm_up(run, server)
        run.ready, run.phase = time.monotonic(), Phase.MEASURING
        for index, concurrency, k in run.rounds.order():
            run.in_hand = k
            for _ in range(TRIES_PER_PASS):
                measured, result, read = _measure(run, server, index, concurrency, k)
                run.passes.append(measured)
                journal.add(measured, read)
                samples.append(_header(measured), result.samples)
                run.rig.notify(PassDone(launch=run.launch, measured=measured))
                if measured.invalid is None:
                    break
            if run.launch.candidate is None:
                continue
            check_useful(
                run.passes,
                run.launch.candidate.row,
                lambda: accepted_greedily(
                    run.launch, run.rig.spec, run.rig.load_generators["closed_loop"], server
                ),
                run.rig.spec.workload.sampling.temperature,
            )
        run.phase = Phase.MEASURED
    compact(samples_file)


def serve_order(
    spec: StudySpec,
    launch: Launch,
    config_file: Path,
    folder: Path,
    known: Sequence[Record] = (),
) -> ServeOrder:
    """What the engine is told to start for a launch, after what is known of its candidate."""
    mine = [r for r in known if r.trial.candidate == launch.name]
    return ServeOrder(
        config_file=config_file,
        folder=folder,
        launcher=spec.target.launcher,
        env=spec.target.env,
        live=launch.live,
        model=spec.target.served_name,
        start_timeout_s=min(_allowed_s(spec, mine), launch.start_timeout_s or math.inf),
        fresh_cache=any(_of_cache(r) for r in mine),
    )


def _allowed_s(spec: StudySpec, mine: Sequence[Record]) -> float:
    """How long a start may take: less than the search allows once starts have been seen."""
    seen = max((r.facts.boot_s for r in mine if r.facts), default=math.inf)
    return min(spec.search.start_timeout_s, max(LATER_START * seen, LEAST_START_S))


def _of_cache(record: Record) -> bool:
    outcome = record.outcome
    return isinstance(outcome, Failure) and outcome.cause is Cause.COMPILE_CACHE


def _in_time(run: _Run, failure: Failure) -> Failure:
    """A start that only the budget cut short says nothing about the configuration."""
    mine = [r for r in run.rounds.known if r.trial.candidate == run.launch.name]
    left = run.launch.start_timeout_s
    if (
        failure.cause is not Cause.START_TIMEOUT
        or left is None
        or left >= _allowed_s(run.rig.spec, mine)
    ):
        return failure
    detail = f"{failure.detail}, which was all that the budget had left"
    return Failure(cause=Cause.NO_TIME, detail=detail, remedy="go on with a larger budget")


def _warm_up(run: _Run, server: Server) -> None:
    workload = replace(run.rig.spec.workload, max_tokens=WARM_UP_TOKENS)
    # Also where requests come at a rate: only a closed loop is sure to fill every slot once.
    closed_loop = run.rig.load_generators["closed_loop"]
    for level in workload.levels:
        prompts = workload.block(run.launch.stage.prompts, level.concurrency, 0)[
            : level.concurrency
        ]
        for k in run.launch.num_speculative_tokens:
            run.in_hand = k
            requests = requests_of(run.launch, prompts, k, f"warm-up.{level.concurrency}.{k}")
            result = closed_loop.run(server, workload, requests, level.concurrency)
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
) -> tuple[Pass, LoadResult, Readings]:
    spec, order, split = run.rig.spec, len(run.passes), run.launch.stage.prompts
    prompts = spec.workload.block(split, concurrency, index)
    requests = requests_of(run.launch, prompts, k, f"{split}.{index}.{concurrency}.{k}.{order}")
    server.wait_drained()
    before, watch = server.counters(), server.watch()
    started = time.monotonic() - run.ready
    level = spec.workload.level(concurrency)
    generator = run.rig.load_generators[level.load_generator]
    arrivals = _arrivals(run, level, index)
    result = generator.run(server, spec.workload, requests, concurrency, arrivals)
    server.check_alive()
    server.wait_drained()
    read = Readings(
        before=before,
        after=server.counters(),
        steps_by_k=server.steps_by_k() if run.launch.live else None,
        around=watch.end(),
    )
    place = Place(
        num_speculative_tokens=k,
        concurrency=concurrency,
        block=index,
        order=order,
        started_s=started,
        request_rate=level.request_rate,
    )
    seen = observe(run.launch, place, result, read)
    if run.launch.live and (why := k_not_in_force(seen)):
        raise LaunchError(
            Cause.LIVE_K_NOT_IN_FORCE, why, "autotune goes on with one launch per K by itself"
        )
    return as_pass(place, result, read, seen), result, read


def _arrivals(run: _Run, level: Level, index: int) -> Arrivals | None:
    """The arrivals of a block: the same at every K and in every launch, so that pairs are pairs."""
    if level.request_rate is None:
        return None
    split = run.launch.stage.prompts
    seed = f"{split}/{level.concurrency}/{index}"
    return Arrivals(request_rate=level.request_rate, seed=seed)


def _outcome(run: _Run, k: int, failure: Failure | None) -> Outcome | None:
    """What one K gets: its measurement, the failure if it is its own, or nothing yet."""
    mine = tuple(p for p in run.passes if p.num_speculative_tokens == k)
    valid = any(p.invalid is None for p in mine)
    # Whatever a server does after its last pass, what it was to measure is measured.
    if failure is not None and run.phase is not Phase.MEASURED:
        alone = of_one_k(failure.cause, measuring=run.phase is Phase.MEASURING)
        if k == run.in_hand or not alone:
            return failure
        return Measurement(passes=mine, cut_short=True) if valid else None
    if not mine:
        return None
    if not valid:
        passes = counted(len(mine), "pass", "passes")
        why = f"not one of {passes} was valid, the first: {mine[0].invalid}"
        return Failure(cause=Cause.LOAD_FAILED, detail=why, remedy=mine[0].remedy)
    return Measurement(passes=mine, cut_short=run.rounds.cut_short, pruned=run.rounds.pruned(k))


def _header(measured: Pass) -> Mapping[str, JSON]:
    return {
        "num_speculative_tokens": measured.num_speculative_tokens,
        "concurrency": measured.concurrency,
        "request_rate": measured.request_rate,
        "block": measured.block,
        "order": measured.order,
        "invalid": measured.invalid,
    }
