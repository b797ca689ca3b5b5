"""A whole plausible study for tests: baseline, three curves, a failure, a confirmation.

The eagle head wins at K = 2 with about 1.28x overall; n-gram gains at concurrency 1 and loses
at 4; the four-layer draft is not worth it.
"""

from dataclasses import replace

from autotune.core.study import StudySpec
from autotune.core.trial import BASELINE, Cause, Failure, Measurement, Record, Stage
from autotune.core.workload import Level, Slo, Workload
from tests.builders import BASE, make_record, make_spec, make_workload

SPEEDUPS: dict[str, dict[int, dict[int, float]]] = {
    "eagle": {
        1: {1: 1.20, 2: 1.34, 3: 1.31, 5: 1.19},
        4: {1: 1.12, 2: 1.19, 3: 1.12, 5: 0.97},
    },
    "draft-4l": {
        1: {1: 1.04, 2: 1.15, 3: 0.96, 5: 0.83},
        4: {1: 0.97, 2: 1.01, 3: 0.86, 5: 0.71},
    },
    "ngram": {
        1: {1: 1.05, 2: 1.12, 3: 1.16, 5: 1.18},
        4: {1: 0.93, 2: 0.88, 3: 0.82, 5: 0.73},
    },
}
"""candidate -> concurrency -> K -> speedup."""


def tput_of(candidate: str, k: int, *, scale: float = 1.0) -> dict[int, float]:
    """Tokens per second by concurrency; `scale` moves the gain of every candidate.

    A K that is not in the table is slower than the next one below it.
    """
    if k == 0:
        return dict(BASE)
    below = max(known for known in SPEEDUPS[candidate][1] if known <= k)
    slower = scale * 0.97 ** (k - below)
    return {c: BASE[c] * SPEEDUPS[candidate][c][below] * slower for c in BASE}


def make_screen(candidate: str, launch_id: str, *, scale: float = 1.0) -> list[Record]:
    """The records of one live launch: every K of the curve and live K = 0."""
    return [
        make_record(
            candidate,
            k,
            Stage.SCREEN,
            tput=tput_of(candidate, k, scale=scale),
            launch_id=launch_id,
            why=f"the curve of {candidate} over K = 1, 2, 3, 5 in one launch (live K)",
            live=True,
            invalid={1: "the text degenerated into a loop"}
            if (candidate, k) == ("ngram", 5)
            else {},
        )
        for k in (0, 1, 2, 3, 5)
    ]


def make_confirmation(
    candidate: str, k: int, *, scale: float = 1.0, rounds: int = 2, first_id: int = 5
) -> list[Record]:
    """Baseline and winner in the order A B A B."""
    records = []
    for repeat in range(rounds):
        for place, (name, number) in enumerate(((BASELINE, 0), (candidate, k))):
            records.append(
                make_record(
                    name,
                    number,
                    Stage.CONFIRM,
                    tput=tput_of(name, number, scale=scale),
                    launch_id=f"{first_id + 2 * repeat + place:03d}",
                    why="a fresh baseline beside the winner, on prompts the search has not seen"
                    if number == 0
                    else f"{name} at K = {number} exactly as it would be deployed",
                    repeat=repeat,
                )
            )
    return records


def make_study_records(*, confirmed: bool = True, scale: float = 1.0) -> list[Record]:
    """All records of a finished study, in the order in which they came about."""
    records = [
        make_record(stage=Stage.BASELINE, launch_id="000", why="the denominator of every speedup"),
        make_record(
            "ngram",
            5,
            Stage.SCREEN,
            launch_id="001",
            why="ngram at K = 5, one launch per K",
            outcome=Failure(
                cause=Cause.PORT_TAKEN,
                detail="port 8123 is in use | by another process",
                remedy="tried once more with another port",
            ),
        ),
    ]
    for launch_id, candidate in (("002", "eagle"), ("003", "draft-4l"), ("004", "ngram")):
        records += make_screen(candidate, launch_id, scale=scale)
    if confirmed:
        records += make_confirmation("eagle", 2, scale=scale)
    return records


def at_rate(record: Record, request_rate: float | None, concurrency: int = 4) -> Record:
    """The record with the passes of one concurrency as an open loop's."""
    if not isinstance(record.outcome, Measurement):
        return record
    passes = tuple(
        replace(p, request_rate=request_rate) if p.concurrency == concurrency else p
        for p in record.outcome.passes
    )
    return replace(record, outcome=replace(record.outcome, passes=passes))


def make_open_spec(request_rate: float = 2.5, slo: Slo | None = None) -> StudySpec:
    """The study with concurrency 4 as an open loop."""
    workload: Workload = make_workload()
    levels = (Level(concurrency=1, weight=2.0), Level(concurrency=4, request_rate=request_rate))
    return make_spec(workload=replace(workload, levels=levels, slo=slo))


def make_open_records(request_rate: float = 2.5, *, confirmed: bool = True) -> list[Record]:
    """The records of that study."""
    return [at_rate(r, request_rate) for r in make_study_records(confirmed=confirmed)]
