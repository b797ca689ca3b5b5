"""From records to curves: speedup over K with its interval, per concurrency and overall.

Rules: a ratio is formed block by block between arms that ran the same prompts; the denominator is
a launch without speculation, never live K = 0; intervals that compare launches carry the launch
effect; invalid passes never enter, nor do unfair comparisons (core/parity.py).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.core.acceptance import AcceptanceProfile, SpecCounters
from autotune.core.arms import Arm, arms
from autotune.core.comparison import PLAIN, Comparer, comparer
from autotune.core.knee import Knee, find_knee
from autotune.core.latency import Latencies, pooled_latencies
from autotune.core.noise import Noise, noise_of
from autotune.core.objective import compared_at, yardstick
from autotune.core.parity import fair
from autotune.core.statistics import Estimate, Interval, bootstrap, weighted
from autotune.core.study import StudySpec
from autotune.core.trial import Pass, Record
from autotune.core.workload import MIN_BLOCKS, Level


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One K of a curve."""

    num_speculative_tokens: int
    speedup: Interval
    """By the estimate that its level goes by (core/comparison.py)."""
    estimate: Estimate
    """The same on logarithms, without the launch effect."""
    by_throughput: Interval
    by_steps: Interval | None
    """None where the level goes by throughput."""
    estimates_apart: bool
    """Whether the two disagree beyond their intervals, the launch effect apart: it is the same."""
    bootstrapped: Interval | None
    """The throughput estimate again, without the launch effect and without assuming a t."""
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
    request_rate: float | None = None
    """Of an open loop, whose speedup is one of mean E2E latency; None overall."""
    compared: str = "output_throughput"
    """The figure that its speedups are ratios of, a key of objective.FIGURES."""

    @property
    def ks(self) -> tuple[int, ...]:
        """The K of its points, rising."""
        return tuple(p.num_speculative_tokens for p in self.points)

    def at(self, num_speculative_tokens: int) -> Point:
        """The point of that K."""
        return next(p for p in self.points if p.num_speculative_tokens == num_speculative_tokens)


def overall_ratio(spec: StudySpec, records: Sequence[Record], name: str, k: int) -> float | None:
    """Weighted overall speed of a point over the baseline's; None where a level is missing."""
    levels = spec.workload.levels
    noise, fairly = noise_of(records, levels), arms(fair(spec, records))
    found = comparer(fairly, levels, noise, yardstick(spec))
    estimate = found.over_levels((name, k), PLAIN, levels)
    return estimate.interval().mean if estimate else None


def level_points(
    spec: StudySpec, records: Sequence[Record], concurrency: int, noise: Noise
) -> dict[str, list[Point]]:
    """The measured points of every candidate at one level; K = 0 of live launches left out."""
    found = comparer(arms(records), spec.workload.levels, noise, yardstick(spec))
    level = next(lv for lv in spec.workload.levels if lv.concurrency == concurrency)
    points: dict[str, list[Point]] = defaultdict(list)
    for name, k in sorted(found.found):
        point = _point(found, (name, k), [level], concurrency) if k > 0 else None
        if point is not None:
            points[name].append(point)
    return points


def curves(spec: StudySpec, records: Sequence[Record], noise: Noise) -> tuple[SpeedupCurve, ...]:
    """Every candidate's curve at each level and overall, from records of one split.

    `noise` is that of the whole study: all its equal launches tell how much launches differ.
    The overall curve holds only the K that keep every constraint at every level.
    """
    levels, records = spec.workload.levels, fair(spec, records)
    found = comparer(arms(records), levels, noise, yardstick(spec))
    per_level = {
        lv.concurrency: level_points(spec, records, lv.concurrency, noise) for lv in levels
    }
    result = []
    for candidate in spec.candidates:
        mine = {
            c: points[candidate.name] for c, points in per_level.items() if candidate.name in points
        }
        for concurrency, points in mine.items():
            result.append(_curve(spec, found, candidate.name, concurrency, points))
        overall = _overall(spec, found, mine, candidate.name)
        if overall:
            result.append(_curve(spec, found, candidate.name, None, overall))
    return tuple(result)


def violations(spec: StudySpec, point: Point, concurrency: int) -> list[str]:
    """The constraints that a point breaks at one level, with the figures; such a K cannot win."""
    return [
        f"K = {point.num_speculative_tokens} at concurrency {concurrency}: {text}"
        for text in broken(spec, point.latencies)
    ]


def broken(spec: StudySpec, latencies: Latencies | None) -> list[str]:
    """The constraints that these latencies break; nothing is known to be broken without any."""
    if latencies is None:
        return []
    values = [(c, getattr(latencies, c.metric)) for c in spec.objective.constraints]
    return [
        f"{c.metric} is {value:.1f}{latencies.remark(c.metric)}, the constraint {c.upper:g}"
        for c, value in values
        if value > c.upper
    ]


def _curve(
    spec: StudySpec,
    found: Comparer,
    name: str,
    concurrency: int | None,
    points: Sequence[Point],
) -> SpeedupCurve:
    chosen = [
        lv for lv in spec.workload.levels if concurrency is None or lv.concurrency == concurrency
    ]

    def tied(k: int, best: int) -> bool:
        if k == best:
            return True
        estimate = found.tie((name, k), (name, best), chosen)
        if estimate is None:
            return False
        interval = estimate.interval()
        # Two K that were hardly measured are not equal, they are unknown.
        resolved = interval.half_width <= spec.objective.tolerance
        return resolved and interval.low <= 1.0 <= interval.high

    # A K of one lucky block is not the best of a curve whose other K have more.
    least = min(MIN_BLOCKS, max(p.blocks for p in points))
    known = {p.num_speculative_tokens: p.speedup.mean for p in points if p.blocks >= least}
    knee = find_knee(known, tied, spec.objective.tolerance)
    return SpeedupCurve(
        candidate=name,
        concurrency=concurrency,
        points=tuple(points),
        knee=knee,
        request_rate=chosen[0].request_rate if concurrency is not None else None,
        compared=compared_at(spec, chosen[0]).name
        if concurrency is not None
        else spec.objective.metric,
    )


def _overall(
    spec: StudySpec, found: Comparer, mine: Mapping[int, Sequence[Point]], name: str
) -> list[Point]:
    levels = spec.workload.levels
    by_k = [{p.num_speculative_tokens: p for p in mine.get(lv.concurrency, ())} for lv in levels]
    shared = sorted(set.intersection(*(set(points) for points in by_k)))
    kept = [
        k
        for k in shared
        if not any(
            violations(spec, points[k], lv.concurrency)
            for points, lv in zip(by_k, levels, strict=True)
        )
    ]
    primary = spec.workload.primary.concurrency
    points = [_point(found, (name, k), levels, primary) for k in kept]
    return [point for point in points if point is not None]


def _point(
    found: Comparer, key: tuple[str, int], levels: Sequence[Level], shown: int
) -> Point | None:
    """A point over these levels; the figures of one level are those of concurrency `shown`."""
    pairs = [found.compare(key, PLAIN, lv.concurrency) for lv in levels]
    known = [pair for pair in pairs if pair is not None]
    estimate = found.over_levels(key, PLAIN, levels)
    if estimate is None or len(known) < len(levels):
        return None
    arm, baseline = found.found[key], found.found[PLAIN]
    shared = arm.passes(shown).keys() & baseline.passes(shown).keys()
    weights = [lv.weight for lv in levels]
    launches = arm.launches(shown, shared), baseline.launches(shown, shared)
    raw = weighted([pair.throughput for pair in known], weights)
    steps = weighted([pair.chosen(by_steps=True) for pair in known], weights)
    by_steps = all(
        found.by_steps[lv.concurrency] and pair.steps
        for pair, lv in zip(known, levels, strict=True)
    )
    passes = _valid(arm, [lv.concurrency for lv in levels])
    return Point(
        num_speculative_tokens=key[1],
        speedup=found.noise.launch.on(estimate, *launches).interval(),
        estimate=estimate,
        by_throughput=found.noise.launch.on(raw, *launches).interval(),
        by_steps=found.noise.launch.on(steps, *launches).interval() if by_steps else None,
        estimates_apart=by_steps and abs(steps.mean - raw.mean) > steps.margin + raw.margin,
        bootstrapped=bootstrap(known[0].log_ratios) if len(levels) == 1 else None,
        throughput=arm.throughput(shown, shared),
        baseline_throughput=baseline.throughput(shown, shared),
        blocks=estimate.n,
        acceptance=_pooled_profile(passes),
        latencies=pooled_latencies(p.times for p in passes if p.concurrency == shown),
    )


def _valid(arm: Arm, concurrencies: Sequence[int]) -> list[Pass]:
    return [p for c in concurrencies for block in arm.passes(c).values() for p in block]


def _pooled_profile(passes: Sequence[Pass]) -> AcceptanceProfile | None:
    counters = [p.spec for p in passes if p.spec is not None]
    return sum(counters, SpecCounters()).profile if counters else None
