"""The evidence for a finalist: what was measured at each level, winner against baseline.

Rule: both figures of a pair come from the same blocks; nothing is derived that was not measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.core.acceptance import AcceptanceProfile
from autotune.core.arms import arms
from autotune.core.speedup import SpeedupCurve, mean_latencies
from autotune.core.statistics import Interval
from autotune.core.study import Level, StudySpec
from autotune.core.trial import BASELINE, Latencies, Record


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
    baseline_throughput: float
    throughput: float
    blocks: int
    acceptance: AcceptanceProfile | None
    baseline_latencies: Latencies | None
    latencies: Latencies | None


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
        _row(level, curve, finalist, records)
        for level in spec.workload.levels
        for curve in mine
        if curve.concurrency == level.concurrency and finalist.num_speculative_tokens in curve.ks
    ]
    return tuple(rows)


def _row(
    level: Level, curve: SpeedupCurve, finalist: Finalist, records: Sequence[Record]
) -> LevelEvidence:
    point = curve.at(finalist.num_speculative_tokens)
    passes = [
        p
        for r in arms(records)[BASELINE, 0].records
        if r.measurement
        for p in r.measurement.at(level.concurrency)
    ]
    return LevelEvidence(
        concurrency=level.concurrency,
        weight=level.weight,
        speedup=point.speedup,
        baseline_throughput=point.baseline_throughput,
        throughput=point.throughput,
        blocks=point.blocks,
        acceptance=point.acceptance,
        baseline_latencies=mean_latencies(passes),
        latencies=point.latencies,
    )
