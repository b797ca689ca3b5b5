"""What two arms say of each other: two estimates of the same log ratio of speeds.

By throughput: the mean over the blocks of log(tokens / seconds) of one arm less the other's. It
needs no model, and carries everything: the timing of every second, the idle ends of each pass.

By steps: each pass by the time that its steady part would take for a reply (core/steps.py), the
mean over the blocks likewise. Its error has two sources that are known apart. The text: replies of
one pass need more or fewer steps for their tokens; these deviations are seen reply by reply, in
both arms on the same prompts, so a block of four requests tells four times, not once. The timing:
the pass effect of the study (core/noise.py), which is smaller between passes side by side.

Rules: only blocks that both arms ran; several launches of one arm are averaged first; two arms that
ran in the same launch are compared in there alone, where no launch effect is. A level goes by steps
where every point of it has them: that estimate is the narrower one, and at more than one stream the
only unbiased one. To take the narrower of the two case by case would pick those that are too narrow
by chance.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

import numpy as np
import numpy.typing as npt

from autotune.core.arms import Arm
from autotune.core.noise import Noise, PassEffect
from autotune.core.objective import SPEED, Yardstick
from autotune.core.statistics import Estimate, weighted
from autotune.core.steps import StepStats
from autotune.core.trial import BASELINE, Pass
from autotune.core.workload import Level

Vector = npt.NDArray[np.float64]
Point = tuple[str, int]
"""Candidate and K."""
PLAIN: Point = (BASELINE, 0)
"""The point that every speedup is over: launches without speculation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One arm over another at one concurrency, without the launch effect."""

    throughput: Estimate
    """Block by block, of the figure that the objective compares: throughput unless it says else."""
    log_ratios: tuple[float, ...]
    """That of each block."""
    steps: Estimate | None
    """None where a pass has no step times, or the load is not a closed loop."""

    def chosen(self, *, by_steps: bool) -> Estimate:
        """The estimate in use."""
        return self.steps if by_steps and self.steps is not None else self.throughput


@dataclass(frozen=True, slots=True)
class Comparer:
    """All arms of one split, and which estimate each level goes by."""

    found: Mapping[Point, Arm]
    noise: Noise
    by_steps: Mapping[int, bool]
    yardstick: Yardstick = SPEED
    known: dict[tuple[Point, Point, int], Comparison | None] = field(
        default_factory=dict, repr=False, compare=False
    )
    """What has been asked: a search asks for the same pair many times between two passes."""

    def compare(self, one: Point, other: Point, concurrency: int) -> Comparison | None:
        """The comparison of two points; None unless both ran a block in common."""
        if one not in self.found or other not in self.found:
            return None
        asked = one, other, concurrency
        if asked not in self.known:
            arms = self.found[one], self.found[other]
            self.known[asked] = compare(*arms, concurrency, self.noise, self.yardstick)
        return self.known[asked]

    def estimate(self, one: Point, other: Point, concurrency: int) -> Estimate | None:
        """The estimate in use at this level."""
        pair = self.compare(one, other, concurrency)
        return pair.chosen(by_steps=self.by_steps[concurrency]) if pair else None

    def tie(self, one: Point, other: Point, levels: Sequence[Level]) -> Estimate | None:
        """The mean over the levels for two points that may be of one launch, or of several."""
        estimate = self.over_levels(one, other, levels)
        if estimate is None or self.found[one].launch_ids & self.found[other].launch_ids:
            return estimate
        return self.noise.launch.on(estimate, 1, 1)

    def over_levels(self, one: Point, other: Point, levels: Sequence[Level]) -> Estimate | None:
        """The weighted mean over these levels; None where one of them is missing."""
        parts = [self.estimate(one, other, lv.concurrency) for lv in levels]
        known = [part for part in parts if part is not None]
        if not known or len(known) < len(levels):
            return None
        return weighted(known, [lv.weight for lv in levels])


def comparer(
    found: Mapping[Point, Arm],
    levels: Sequence[Level],
    noise: Noise,
    yardstick: Yardstick = SPEED,
) -> Comparer:
    """Decide for each level by which estimate it goes: by steps where every point has them."""
    told = Comparer(found, noise, by_steps={}, yardstick=yardstick)
    over_plain = {
        lv.concurrency: [told.compare(p, PLAIN, lv.concurrency) for p in found if p != PLAIN]
        for lv in levels
    }
    by_steps = {c: all(pair.steps for pair in pairs if pair) for c, pairs in over_plain.items()}
    return replace(told, by_steps=by_steps)


def compare(
    arm: Arm, other: Arm, concurrency: int, noise: Noise, yardstick: Yardstick = SPEED
) -> Comparison | None:
    """The log ratio arm / other over their common blocks; None without one that has figures."""
    together = arm.launch_ids & other.launch_ids
    if together:
        arm, other = arm.within(together), other.within(together)
    mine, theirs = arm.passes(concurrency), other.passes(concurrency)
    shared = sorted(mine.keys() & theirs.keys())
    if not shared:
        return None
    pairs = [(mine[b], theirs[b]) for b in shared]
    estimate = yardstick.estimate(pairs)
    if estimate is None:
        return None
    effects = [
        noise.side_by_side(concurrency)
        if together
        else noise.of_passes(concurrency, speculating=side.speculates)
        for side in (arm, other)
    ]
    return Comparison(
        throughput=estimate,
        log_ratios=yardstick.log_ratios(pairs),
        steps=_by_steps(pairs, effects) if yardstick.figure.by_steps else None,
    )


def _by_steps(
    pairs: Sequence[tuple[Sequence[Pass], Sequence[Pass]]], effects: Sequence[PassEffect]
) -> Estimate | None:
    means, text = [], []
    for mine, theirs in pairs:
        ours = [p.steps for p in mine if p.steps]
        others = [p.steps for p in theirs if p.steps]
        if any(p.request_rate is not None for p in (*mine, *theirs)):
            return None  # what waits in a queue is no step
        shapes = {len(s.reply_tokens) for s in (*ours, *others)}
        if len(ours) < len(mine) or len(others) < len(theirs) or len(shapes) != 1 or 0 in shapes:
            return None
        tokens = fmean(p.output_tokens / p.requests for p in (*mine, *theirs))
        means.append(_log_seconds(others, tokens) - _log_seconds(ours, tokens))
        text.append(_deviations(others, tokens) - _deviations(ours, tokens))
    requests = sum(len(block) for block in text)
    dof = requests - len(text)
    variance = float(sum(np.sum(block**2) for block in text)) / dof / requests if dof > 0 else 0.0
    estimate = Estimate(mean=fmean(means), variance=variance, dof=dof, n=len(means))
    return estimate.plus_variance(*_timing(pairs, effects))


def _timing(
    pairs: Sequence[tuple[Sequence[Pass], Sequence[Pass]]], effects: Sequence[PassEffect]
) -> tuple[float, float]:
    """Variance of the pass effects of both sides, and its degrees of freedom.

    Those of the larger part: both sides may go by one and the same estimate of the effect.
    """
    counts = [sum(len(pair[side]) for pair in pairs) for side in (0, 1)]
    parts = [effect.sd**2 / count for effect, count in zip(effects, counts, strict=True)]
    return sum(parts), effects[parts.index(max(parts))].dof


def _log_seconds(stats: Sequence[StepStats], tokens: float) -> float:
    return fmean(math.log(s.seconds_of(tokens)) for s in stats)


def _deviations(stats: Sequence[StepStats], tokens: float) -> Vector:
    """Each reply's deviation, the mean over the launches that sent it."""
    each: Vector = np.array([s.deviations(tokens) for s in stats], dtype=np.float64)
    found: Vector = each[0] if len(each) == 1 else each.mean(axis=0)
    return found
