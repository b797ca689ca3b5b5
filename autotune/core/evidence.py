"""The evidence for a finalist: what was measured at each level, winner against baseline.

Rule: throughputs and speedups of a pair come from the same blocks, latencies and acceptance from
all passes of each arm; nothing is derived that was not measured.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from autotune.core.acceptance import AcceptanceProfile
from autotune.core.arms import Arm, arms
from autotune.core.goodput import Goodput, goodput
from autotune.core.latency import Latencies, pooled_latencies
from autotune.core.speedup import SpeedupCurve
from autotune.core.statistics import Interval
from autotune.core.study import Level, Slo, StudySpec
from autotune.core.trial import BASELINE, Pass, Record


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
    """Requests per second of an open loop: the speedup is then one of mean E2E latency."""
    baseline_mean_e2e_ms: float | None = None
    """Open loop only: geometric mean over the blocks that both ran; their ratio is the speedup."""
    mean_e2e_ms: float | None = None
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
        _row(level, curve, finalist, records, spec.workload.slo)
        for level in spec.workload.levels
        for curve in mine
        if curve.concurrency == level.concurrency and finalist.num_speculative_tokens in curve.ks
    ]
    return tuple(rows)


def _row(
    level: Level,
    curve: SpeedupCurve,
    finalist: Finalist,
    records: Sequence[Record],
    slo: Slo | None,
) -> LevelEvidence:
    point = curve.at(finalist.num_speculative_tokens)
    found = arms(records)
    baseline = found[BASELINE, 0]
    arm = found[finalist.candidate, finalist.num_speculative_tokens]
    theirs, mine = (_passes(one, level.concurrency) for one in (baseline, arm))
    baseline_e2e, e2e = _mean_e2e(level, baseline, arm)
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
        baseline_mean_e2e_ms=baseline_e2e,
        mean_e2e_ms=e2e,
        baseline_queued=_queued(theirs),
        queued=_queued(mine),
        baseline_goodput=goodput(theirs, slo),
        goodput=goodput(mine, slo),
    )


def _passes(arm: Arm, concurrency: int) -> list[Pass]:
    return [p for r in arm.records if r.measurement for p in r.measurement.at(concurrency)]


def _queued(passes: Sequence[Pass]) -> float:
    return sum(p.queued for p in passes) / sum(p.requests for p in passes)


def _mean_e2e(level: Level, baseline: Arm, arm: Arm) -> tuple[float | None, float | None]:
    """Milliseconds of both arms, over the blocks that both ran; None in the closed loop."""
    if level.request_rate is None:
        return None, None
    theirs, mine = (a.passes(level.concurrency) for a in (baseline, arm))
    shared = theirs.keys() & mine.keys()
    log_speeds = [[fmean(p.log_speed for p in side[b]) for b in shared] for side in (theirs, mine)]
    return math.exp(-fmean(log_speeds[0])), math.exp(-fmean(log_speeds[1]))
