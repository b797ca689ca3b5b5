"""From records to curves: speedup over K with its interval, per concurrency and overall.

Rules: a ratio is formed block by block between arms that ran the same prompts; the denominator is
a launch without speculation, never live K = 0; intervals that compare launches carry the launch
effect; invalid passes never enter, nor do unfair comparisons (core/parity.py).
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from autotune.core.acceptance import AcceptanceProfile, SpecCounters
from autotune.core.arms import Arm, arms, compare
from autotune.core.knee import Knee, find_knee
from autotune.core.parity import fair
from autotune.core.statistics import Estimate, Interval, LaunchEffect, weighted
from autotune.core.study import StudySpec
from autotune.core.trial import BASELINE, Latencies, Pass, Record

TIE_RESOLUTION = 2.0
"""A tie within a launch counts only when its interval is narrower than this many tolerances on
either side: two K that were hardly measured are not equal, they are unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One K of a curve."""

    num_speculative_tokens: int
    speedup: Interval
    estimate: Estimate
    """The same on logarithms, without the launch effect."""
    throughput: float
    """Geometric mean over the blocks that the baseline ran as well, output tokens per second; of
    the primary level for the overall curve."""
    baseline_throughput: float
    """The same of the baseline."""
    blocks: int
    acceptance: AcceptanceProfile | None
    latencies: Latencies | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedupCurve:
    """Speedup over K of one candidate; `concurrency` None is the weighted overall curve."""

    candidate: str
    concurrency: int | None
    points: tuple[Point, ...]
    knee: Knee

    @property
    def ks(self) -> tuple[int, ...]:
        """The K of its points, rising."""
        return tuple(p.num_speculative_tokens for p in self.points)

    def at(self, num_speculative_tokens: int) -> Point:
        """The point of that K."""
        return next(p for p in self.points if p.num_speculative_tokens == num_speculative_tokens)


def overall_ratio(spec: StudySpec, records: Sequence[Record], name: str, k: int) -> float | None:
    """Weighted overall throughput of a point over the baseline's; None where a level is missing."""
    found = arms(fair(spec, records))
    if (name, k) not in found or (BASELINE, 0) not in found:
        return None
    levels = spec.workload.levels
    parts = [compare(found[name, k], found[BASELINE, 0], lv.concurrency) for lv in levels]
    known = [p for p in parts if p is not None]
    if len(known) < len(levels):
        return None
    return weighted(known, [lv.weight for lv in levels]).interval().mean


def level_points(
    spec: StudySpec, records: Sequence[Record], concurrency: int, effect: LaunchEffect
) -> dict[str, list[Point]]:
    """The measured points of every candidate at one level; K = 0 of live launches left out."""
    found = arms(records)
    baseline = found.get((BASELINE, 0))
    points: dict[str, list[Point]] = defaultdict(list)
    if baseline is None:
        return points
    for (name, k), arm in sorted(found.items()):
        estimate = compare(arm, baseline, concurrency)
        if k == 0 or estimate is None:
            continue
        full = effect.on(estimate, arm.launches(concurrency), baseline.launches(concurrency))
        points[name].append(_point((arm, baseline), k, concurrency, estimate, full.interval()))
    return points


def curves(
    spec: StudySpec, records: Sequence[Record], effect: LaunchEffect
) -> tuple[SpeedupCurve, ...]:
    """Every candidate's curve at each level and overall, from records of one split.

    `effect` is that of the whole study: all its equal launches tell how much launches differ.
    The overall curve holds only the K that keep every constraint at every level.
    """
    levels, records = spec.workload.levels, fair(spec, records)
    found = arms(records)
    per_level = {
        lv.concurrency: level_points(spec, records, lv.concurrency, effect) for lv in levels
    }
    result = []
    for candidate in spec.candidates:
        mine = {
            c: points[candidate.name] for c, points in per_level.items() if candidate.name in points
        }
        for concurrency, points in mine.items():
            result.append(_curve(spec, found, candidate.name, concurrency, points))
        overall = _overall(spec, mine, effect, found, candidate.name)
        if overall:
            result.append(_curve(spec, found, candidate.name, None, overall))
    return tuple(result)


def violations(spec: StudySpec, point: Point, concurrency: int) -> list[str]:
    """The constraints that a point breaks at one level, with the figures; such a K cannot win."""
    if point.latencies is None:
        return []
    broken = []
    for constraint in spec.objective.constraints:
        value = getattr(point.latencies, constraint.metric)
        if value > constraint.upper:
            broken.append(
                f"K = {point.num_speculative_tokens} at concurrency {concurrency}: "
                f"{constraint.metric} is {value:.1f}, the constraint {constraint.upper:g}"
            )
    return broken


def _curve(
    spec: StudySpec,
    found: Mapping[tuple[str, int], Arm],
    name: str,
    concurrency: int | None,
    points: Sequence[Point],
) -> SpeedupCurve:
    levels = spec.workload.levels
    chosen = [lv for lv in levels if concurrency is None or lv.concurrency == concurrency]

    def tied(k: int, best: int) -> bool:
        if k == best:
            return True
        parts = [compare(found[name, k], found[name, best], lv.concurrency) for lv in chosen]
        known = [(e, lv.weight) for e, lv in zip(parts, chosen, strict=True) if e is not None]
        if not known:
            return False
        interval = weighted([e for e, _ in known], [w for _, w in known]).interval()
        resolved = interval.half_width <= TIE_RESOLUTION * spec.objective.tolerance
        return resolved and interval.low <= 1.0 <= interval.high

    knee = find_knee(
        {p.num_speculative_tokens: p.speedup.mean for p in points}, tied, spec.objective.tolerance
    )
    return SpeedupCurve(candidate=name, concurrency=concurrency, points=tuple(points), knee=knee)


def _overall(
    spec: StudySpec,
    mine: Mapping[int, Sequence[Point]],
    effect: LaunchEffect,
    found: Mapping[tuple[str, int], Arm],
    name: str,
) -> list[Point]:
    levels = spec.workload.levels
    by_k = [{p.num_speculative_tokens: p for p in mine.get(lv.concurrency, ())} for lv in levels]
    shared = sorted(set.intersection(*(set(points) for points in by_k)))
    result = []
    for k in shared:
        parts = [points[k] for points in by_k]
        if any(violations(spec, p, lv.concurrency) for p, lv in zip(parts, levels, strict=True)):
            continue
        estimate = weighted([p.estimate for p in parts], [lv.weight for lv in levels])
        primary = spec.workload.primary.concurrency
        arm, base = found[name, k], found[BASELINE, 0]
        full = effect.on(estimate, arm.launches(primary), base.launches(primary))
        result.append(_point((arm, base), k, primary, estimate, full.interval(), pooled=True))
    return result


def _point(
    pair: tuple[Arm, Arm],
    k: int,
    concurrency: int,
    estimate: Estimate,
    speedup: Interval,
    *,
    pooled: bool = False,
) -> Point:
    arm, baseline = pair
    passes = [
        p
        for r in arm.records
        if r.measurement
        for p in r.measurement.passes
        if not p.invalid and (pooled or p.concurrency == concurrency)
    ]
    mine, theirs = arm.blocks(concurrency), baseline.blocks(concurrency)
    shared = mine.keys() & theirs.keys()
    return Point(
        num_speculative_tokens=k,
        speedup=speedup,
        estimate=estimate,
        throughput=math.exp(fmean(mine[b] for b in shared)),
        baseline_throughput=math.exp(fmean(theirs[b] for b in shared)),
        blocks=estimate.n,
        acceptance=_pooled_profile(passes),
        latencies=mean_latencies([p for p in passes if p.concurrency == concurrency]),
    )


def mean_latencies(passes: Sequence[Pass]) -> Latencies | None:
    """Mean over the passes of each latency figure; None when no pass has any."""
    known = [p.latencies for p in passes if p.latencies is not None]
    if not known:
        return None
    return Latencies(
        **{name: sum(getattr(x, name) for x in known) / len(known) for name in Latencies.__slots__}
    )


def _pooled_profile(passes: Sequence[Pass]) -> AcceptanceProfile | None:
    counters = [p.spec for p in passes if p.spec is not None]
    return sum(counters, SpecCounters()).profile if counters else None
