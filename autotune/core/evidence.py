"""The evidence for a finalist: what was measured at each level, winner against baseline.

Rule: throughputs and speedups of a pair come from the same blocks, latencies and acceptance from
all passes of each arm; nothing is derived that was not measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.core.acceptance import AcceptanceProfile
from autotune.core.arms import Arm, arms
from autotune.core.goodput import Goodput, goodput
from autotune.core.latency import Latencies, pooled_latencies
from autotune.core.objective import compared_at, typical
from autotune.core.speedup import SpeedupCurve
from autotune.core.statistics import Interval
from autotune.core.study import StudySpec
from autotune.core.trial import BASELINE, Pass, Record
from autotune.core.workload import Level


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalist:
    """A candidate at its knee, as the search sees it."""

    candidate: str
    num_speculative_tokens: int
    gpu_memory_utilization: float
    speedup: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelEvidence:
    """What was measured at one concurrency, winner against baseline."""

    concurrency: int
    weight: float
    speedup: Interval
    by_throughput: Interval
    by_steps: Interval | None
    """The two estimates beside each other; `speedup` is one of them (core/comparison.py)."""
    baseline_throughput: float
    throughput: float
    blocks: int
    acceptance: AcceptanceProfile | None
    baseline_latencies: Latencies | None
    latencies: Latencies | None
    request_rate: float | None = None
    """Requests per second of an open loop."""
    compared: str = "output_throughput"
    """What the speedup is a ratio of, a key of objective.FIGURES."""
    baseline_value: float | None = None
    """That of the baseline, over the blocks that both ran."""
    value: float | None = None
    baseline_queued: float = 0.0
    """Share of the requests that found no free slot on arrival, a fraction; open loop only."""
    queued: float = 0.0
    baseline_goodput: Goodput | None = None
    """None without service level objectives."""
    goodput: Goodput | None = None


def evidence(
    spec: StudySpec,
    records: Sequence[Record],
    found: Sequence[SpeedupCurve],
    finalist: Finalist | None,
) -> tuple[LevelEvidence, ...]:
    """One row for each level that the finalist was measured at; `records` of one split only."""
    if finalist is None or (BASELINE, 0) not in arms(records):
        return ()
    mine = [c for c in found if c.candidate == finalist.candidate]
    rows = [
        _row(spec, level, curve, finalist, records)
        for level in spec.workload.levels
        for curve in mine
        if curve.concurrency == level.concurrency and finalist.num_speculative_tokens in curve.ks
    ]
    return tuple(rows)


def _row(
    spec: StudySpec,
    level: Level,
    curve: SpeedupCurve,
    finalist: Finalist,
    records: Sequence[Record],
) -> LevelEvidence:
    slo, figure = spec.workload.slo, compared_at(spec, level)
    point = curve.at(finalist.num_speculative_tokens)
    found = arms(records)
    baseline = found[BASELINE, 0]
    arm = found[finalist.candidate, finalist.num_speculative_tokens]
    theirs, mine = (_passes(one, level.concurrency) for one in (baseline, arm))
    both = _shared(level, baseline, arm)
    return LevelEvidence(
        concurrency=level.concurrency,
        weight=level.weight,
        speedup=point.speedup,
        by_throughput=point.by_throughput,
        by_steps=point.by_steps,
        baseline_throughput=point.baseline_throughput,
        throughput=point.throughput,
        blocks=point.blocks,
        acceptance=point.acceptance,
        baseline_latencies=pooled_latencies(p.times for p in theirs),
        latencies=point.latencies,
        request_rate=level.request_rate,
        compared=figure.name,
        baseline_value=typical(figure, slo, both[0]),
        value=typical(figure, slo, both[1]),
        baseline_queued=_queued(theirs),
        queued=_queued(mine),
        baseline_goodput=goodput(theirs, slo),
        goodput=goodput(mine, slo),
    )


def _passes(arm: Arm, concurrency: int) -> list[Pass]:
    return [p for r in arm.records if r.measurement for p in r.measurement.at(concurrency)]


def _queued(passes: Sequence[Pass]) -> float:
    return sum(p.queued for p in passes) / sum(p.requests for p in passes)


def _shared(level: Level, baseline: Arm, arm: Arm) -> tuple[list[Pass], list[Pass]]:
    """The passes of both arms on the blocks that both ran."""
    theirs, mine = (a.passes(level.concurrency) for a in (baseline, arm))
    shared = sorted(theirs.keys() & mine.keys())
    return [p for b in shared for p in theirs[b]], [p for b in shared for p in mine[b]]
