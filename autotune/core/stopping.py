"""When measuring may stop: a K is beaten or known, a candidate cannot win, a draft is useless.

Rules: nothing is stopped before it and its rival have `min_blocks` valid blocks in common; a rival
is a fair comparison that keeps the constraints; who is within the tolerance of the best is never
called beaten. A test that is looked at after every block errs more often than its level says, so
the error is spent: each look at each rival, at each level, gets an equal share of `ERROR`, and the
shares add up to it whatever the looks have in common (Bonferroni; Jennison and Turnbull, Group
Sequential Methods, 2000, chapter 7, for spending in general).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy.special import stdtrit

from autotune.core.acceptance import SpecCounters
from autotune.core.arms import arms
from autotune.core.comparison import PLAIN, Comparer, Point, comparer
from autotune.core.latency import pooled_latencies
from autotune.core.noise import Noise
from autotune.core.objective import yardstick
from autotune.core.parity import fair
from autotune.core.speedup import broken
from autotune.core.statistics import Estimate
from autotune.core.study import StudySpec
from autotune.core.trial import Launch, Measurement, Pass, Record
from autotune.core.workload import Level

ERROR = 0.05
"""How often a K, or a candidate, that is as good as the best may be stopped all the same."""
USELESS_AFTER = 200
"""Drafts without a single accepted token, after which nothing more is expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """A K that is measured no further at one concurrency, and why."""

    num_speculative_tokens: int
    concurrency: int
    beaten: bool
    """False: it is known well enough."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A launch so far, beside what was known before it."""

    spec: StudySpec
    launch: Launch
    passes: Sequence[Pass]
    known: Sequence[Record]
    noise: Noise
    fingerprint: str
    """Of the launch: what is compared must have the same."""

    @staticmethod
    def records(launch: Launch, passes: Sequence[Pass], fingerprint: str) -> list[Record]:
        """What the launch has measured, as records."""
        return [
            Record(
                trial=launch.trial(k),
                outcome=Measurement(
                    passes=tuple(p for p in passes if p.num_speculative_tokens == k)
                ),
                launch_id="",
                fingerprint=fingerprint,
                why="",
            )
            for k in launch.num_speculative_tokens
        ]

    @property
    def comparer(self) -> Comparer:
        """All arms of the search; other launches of the same candidate are not mixed in."""
        mine = self.records(self.launch, self.passes, self.fingerprint)
        before = [
            r
            for r in self.known
            if r.trial.stage.prompts == "search" and r.trial.candidate != self.launch.name
        ]
        everything = fair(self.spec, [*before, *mine])
        levels, measure = self.spec.workload.levels, yardstick(self.spec)
        return comparer(arms(everything), levels, self.noise, measure)

    def least(self, level: Level) -> int:
        """Valid blocks below which nothing is stopped at a level."""
        there = self.spec.workload.blocks(self.launch.stage.prompts, level.concurrency)
        return min(self.spec.search.min_blocks, there)


def useless(counters: SpecCounters) -> bool:
    """Whether so many drafts without an accepted token end the candidate."""
    return counters.drafts >= USELESS_AFTER and counters.accepted_tokens == 0


def settle(state: State, level: Level, active: Sequence[int], looks: int) -> list[Stopped]:
    """The K that need no more blocks at one level, of those still measured there.

    `looks` is how often this will have been asked at the most. K = 0 is no rival: live K = 0 is the
    drift reference, it ends with the last K.
    """
    found, name, c = state.comparer, state.launch.name, level.concurrency
    rivals = [k for k in active if k > 0 and found.found[name, k].passes(c)]
    best = _leader(
        state, found, [k for k in rivals if allowed(state.spec, found, (name, k), level)], c
    )
    if best is None:
        return []
    tests = looks * max(len(state.launch.num_speculative_tokens) - 1, 1)
    share = ERROR / (tests * len(state.spec.workload.levels))
    tolerance = state.spec.objective.tolerance
    pairs = {k: found.estimate((name, k), (name, best), c) for k in rivals if k != best}
    stopped = [
        _beaten(k, best, c, estimate)
        for k, estimate in pairs.items()
        if estimate and estimate.n >= state.least(level)
        if is_below(estimate, math.log1p(-tolerance), share)
    ]
    out = {s.num_speculative_tokens for s in stopped}
    left = [estimate for k, estimate in pairs.items() if k not in out]
    enough = [*left, found.estimate((name, best), PLAIN, c)]
    if any(e is None or e.margin > tolerance or e.n < state.least(level) for e in enough):
        return stopped
    why = f"its interval is within the tolerance of {tolerance:.0%}"
    return stopped + [
        Stopped(num_speculative_tokens=k, concurrency=c, beaten=False, why=why)
        for k in rivals
        if k not in out
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """Some K of a candidate at some levels, and whom they are up against."""

    name: str
    ks: Sequence[int]
    levels: Sequence[Level]
    rival: Point | None
    """The best point of the others at these levels."""
    gain: float = 0.0
    """What K that were not measured may bring beyond the best of these, a log ratio."""


SWING = math.log(1.25)
"""What a candidate may gain on another one from the primary level to the rest, a log ratio: the
benefit of the doubt for levels that were not measured."""


def outdone(
    spec: StudySpec, found: Comparer, contest: Contest, *, error: float, least: int
) -> str | None:
    """Why none of these K can be the answer; None while one may, or is not known well enough.

    Every K must be beaten over these levels: by plain decoding with the gain that is asked for, or
    by the rival. The launch effect is part of every such comparison. Against plain decoding the
    benefit of the doubt has no bound at fewer streams, where verification is cheaper: nothing is
    concluded from a level on those below it.
    """
    levels, slack = contest.levels, contest.gain + _doubt(spec, contest.levels)
    rivals: list[tuple[Point, float]] = []
    if not _fewer_streams(spec, levels):
        rivals.append((PLAIN, math.log1p(spec.objective.min_gain) - slack))
    if contest.rival is not None:
        rivals.append((contest.rival, math.log1p(-spec.objective.tolerance) - slack))
    for rival, bar in rivals if contest.ks else ():
        estimates = [found.over_levels((contest.name, k), rival, levels) for k in contest.ks]
        known = [e for e in estimates if e is not None and e.n >= least]
        with_launch = [found.noise.launch.on(e, 1, 1) for e in known]
        if len(with_launch) < len(estimates):
            continue
        if all(is_below(e, bar, error / len(rivals)) for e in with_launch):
            best = max(with_launch, key=lambda e: e.mean).interval().show()
            who = "plain decoding" if rival == PLAIN else f"{rival[0]} at K = {rival[1]}"
            return f"its best K is {best} of {who}{_where(spec, levels)}"
    return None


def _doubt(spec: StudySpec, levels: Sequence[Level]) -> float:
    """What levels that were not measured may give back, by their weight."""
    every = spec.workload.levels
    return SWING * (1 - sum(lv.weight for lv in levels) / sum(lv.weight for lv in every))


def _fewer_streams(spec: StudySpec, levels: Sequence[Level]) -> bool:
    """Whether some other level has fewer streams than these."""
    least = min(lv.concurrency for lv in levels)
    return any(lv.concurrency < least for lv in spec.workload.levels)


def _where(spec: StudySpec, levels: Sequence[Level]) -> str:
    if len(levels) == len(spec.workload.levels):
        return ""
    return f" at concurrency {', '.join(str(lv.concurrency) for lv in levels)}"


def is_below(estimate: Estimate, bar: float, error: float) -> bool:
    """Whether the log ratio is below the bar with this one-sided error (t test)."""
    if estimate.dof <= 0 or estimate.variance <= 0:
        return False
    return (bar - estimate.mean) / math.sqrt(estimate.variance) > float(
        stdtrit(estimate.dof, 1 - error)
    )


def allowed(spec: StudySpec, found: Comparer, point: Point, level: Level) -> bool:
    """Whether what is known of a point keeps every constraint at this level."""
    passes = [p for block in found.found[point].passes(level.concurrency).values() for p in block]
    latencies = pooled_latencies(p.times for p in passes)
    return not broken(spec, latencies)


def _leader(state: State, found: Comparer, ks: Sequence[int], concurrency: int) -> int | None:
    """The K with the best mean over the smallest one; the smallest of equals, None of none."""
    if not ks:
        return None
    first, name = min(ks), state.launch.name
    means: Mapping[int, float] = {
        k: estimate.mean
        for k in ks
        if (estimate := found.estimate((name, k), (name, first), concurrency)) is not None
    }
    return max(means, key=lambda k: (means[k], -k)) if means else first


def champion(
    spec: StudySpec, found: Comparer, others: Sequence[Point], levels: Sequence[Level]
) -> Point | None:
    """The best of these points that was measured at every one of the levels; K = 0 is none."""
    means = {
        point: estimate.mean
        for point in others
        if point[1] > 0
        if all(allowed(spec, found, point, level) for level in levels)
        if (estimate := found.over_levels(point, PLAIN, levels)) is not None
    }
    return max(means, key=lambda point: means[point]) if means else None


def _beaten(k: int, best: int, concurrency: int, estimate: Estimate) -> Stopped:
    why = f"beaten by K = {best}: {estimate.interval().show()} of it"
    return Stopped(num_speculative_tokens=k, concurrency=concurrency, beaten=True, why=why)
