"""What the search knows of one candidate, and from it the K that are worth measuring.

Rules: coarse K first, at the primary level; then the K around the best and around those as good,
all of them where the gap is small (curves have cliffs), and every level; K beyond those asked for
only while the curve rises; a K that cannot be the answer is spared the other levels. The same
records give the same K, whether a launch asks while its server is up or the plan asks between two
launches.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from autotune.core.arms import arms
from autotune.core.comparison import PLAIN, Comparer, Point, comparer
from autotune.core.noise import noise_of
from autotune.core.objective import yardstick
from autotune.core.parity import fair
from autotune.core.stages.points import enough, given_up, of_point, of_search, stopped
from autotune.core.stages.ranges import DOUBLINGS, WINDOW, around, coarse, doubled, universe
from autotune.core.stopping import Contest, allowed, champion, is_below, outdone
from autotune.core.study import Candidate, StudySpec
from autotune.core.trial import TRIES, Record
from autotune.core.workload import MIN_BLOCKS, Level

LIKELY = 0.5
"""Error of what is called beaten between launches, where a start has to be worth its while: what is
probably beaten gets none. A launch that is up asks for confidence (core/stopping.py)."""

Levels = tuple[Level, ...]


@dataclass(frozen=True, kw_only=True)
class Survey:
    """One candidate beside all others, as the search has measured them so far."""

    spec: StudySpec
    candidate: Candidate
    records: Sequence[Record]
    """Those of the search."""
    found: Comparer
    live: bool
    error: float = LIKELY
    """How sure it must be that a K is beaten."""
    exhausted: frozenset[tuple[int, int]] = frozenset()
    """(concurrency, K) that the launch under way can give no more blocks."""
    begun: frozenset[tuple[int, int]] = frozenset()
    """(concurrency, K) that it has measured, and not stopped: what looked worth a first block gets
    enough of them, even if it looks so no more. One block alone says next to nothing, and of many
    such the luckiest would be taken for the best."""

    @property
    def ks(self) -> tuple[int, ...]:
        """The K asked for, rising."""
        return self.spec.ks(self.candidate)

    @property
    def primary(self) -> Level:
        """The level that the screening is at."""
        return self.spec.workload.primary

    @cached_property
    def universe(self) -> tuple[int, ...]:
        """All K that may ever be measured, rising."""
        return universe(self.candidate, self.ks)

    @cached_property
    def given_up(self) -> frozenset[int]:
        """The K that were tried in vain."""
        return frozenset(k for k in self.universe if given_up(self.spec, self._of(k)))

    @cached_property
    def screened(self) -> bool:
        """Whether the coarse K are known at the primary level."""
        return all(self.done(k, self.primary) for k in coarse(self.ks))

    @cached_property
    def lead(self) -> Levels:
        """The levels by which the best K is judged: all, once the coarse K are known there."""
        levels = self.spec.workload.levels
        known = all(self._settled(k, lv) for k in coarse(self.ks) for lv in levels)
        return levels if known else (self.primary,)

    @cached_property
    def asked(self) -> tuple[int, ...]:
        """The coarse K, and from them towards the best as far as is known; rising."""
        return self._followed(self.lead, further=True)

    @property
    def leader(self) -> int | None:
        """The best K known."""
        return self.best(self.asked, self.lead)

    @property
    def best_mean(self) -> float | None:
        """The log speedup of the best K; None before any is known."""
        leader = self.leader
        return self._mean(leader, self.lead) if leader is not None else None

    def done(self, k: int, level: Level) -> bool:
        """Whether nothing more has to be known of a K at a level."""
        key = (level.concurrency, k)
        if key not in self._done:
            self._done[key] = (
                key in self.exhausted
                or k in self.given_up
                or stopped(self._of(k)) >= TRIES
                or enough(self.spec, self._of(k), level)
            )
        return self._done[key]

    def grid(self, level: Level) -> tuple[int, ...]:
        """The K to be measured at a level, as far as can be told by now; rising."""
        if not self.screened:
            return coarse(self.ks) if level == self.primary else ()
        asked = {*self.asked}
        if all(self._settled(k, level) for k in coarse(self.ks)):
            asked |= {*self._followed((level,), further=False)}
        return tuple(sorted(k for k in asked if not self._spared(k, level)))

    def lacking(self) -> dict[int, tuple[int, ...]]:
        """By concurrency: the K that are to be measured, or are begun, and are not done."""
        wanted = {
            lv: {*self.grid(lv), *(k for c, k in self.begun if c == lv.concurrency)}
            for lv in self.spec.workload.levels
        }
        return {
            lv.concurrency: tuple(sorted(k for k in ks if not self.done(k, lv)))
            for lv, ks in wanted.items()
        }

    def best(self, ks: Sequence[int], levels: Levels) -> int | None:
        """The K with the best mean over these levels that keeps the constraints; None of none."""
        means = {
            k: mean
            for k in ks
            if (mean := self._mean(k, levels)) is not None
            if all(allowed(self.spec, self.found, self._point(k), lv) for lv in levels)
        }
        return max(means, key=lambda k: (means[k], -k)) if means else None

    @property
    def ahead(self) -> tuple[int, ...]:
        """The ends of the extended range that the rising curve leads to, not measured yet."""
        ends = [k for k in doubled(self.candidate, self.ks) if k in self.asked]
        return tuple(k for k in ends if not all(self._settled(k, lv) for lv in self.lead))

    def contest(self) -> Contest | None:
        """What decides whether the candidate may still win; None before that can be told."""
        if not self.screened or not self.may_end_at(self.lead):
            return None
        ks = tuple(k for k in self.asked if self._mean(k, self.lead) is not None)
        rise = self._rise(ks, self.lead) if self.ahead else None
        return Contest(
            name=self.candidate.name,
            ks=ks,
            levels=self.lead,
            rival=self.rival(self.lead),
            gain=DOUBLINGS * (rise or 0.0),
        )

    def may_end_at(self, levels: Levels) -> bool:
        """Whether a candidate may be dropped by these levels alone.

        Not the first one: its figures at every level are the answer if none is any good.
        """
        every = self.spec.workload.levels
        return len(levels) == len(every) or self.rival(every) is not None

    @property
    def beaten(self) -> str | None:
        """Why the candidate is worth no further launch; None while it is."""
        contest = self.contest()
        if contest is None:
            return None
        return outdone(self.spec, self.found, contest, error=self.error, least=MIN_BLOCKS)

    def _followed(self, levels: Levels, *, further: bool) -> tuple[int, ...]:
        asked, window = coarse(self.ks), WINDOW if self.live else 1
        while all(self._settled(k, lv) for k in asked for lv in levels):
            best = self.best(asked, levels)
            if best is None:
                break
            new = self._further(asked, best, levels) if further else ()
            good = self._as_good(asked, best, levels) if self.live else {best}
            new = new or tuple(around(self.universe, asked, good, window=window))
            if not new:
                break
            asked = tuple(sorted({*asked, *new}))
        return asked

    def _as_good(self, ks: Sequence[int], best: int, levels: Levels) -> set[int]:
        """The K within the tolerance of the best: on a flat curve the best may be beside any."""
        means = {k: mean for k in ks if (mean := self._mean(k, levels)) is not None}
        bar = means[best] + math.log1p(-self.spec.objective.tolerance)
        return {k for k, mean in means.items() if mean >= bar}

    def _further(self, asked: Sequence[int], best: int, levels: Levels) -> tuple[int, ...]:
        """The next end of the range, if the curve still rises at the last one."""
        ends = [k for k in doubled(self.candidate, self.ks) if k > asked[-1]]
        ends = [k for k in ends if k in self.universe and k not in self.given_up]
        rises = ends and best == asked[-1] and self._rise(asked, levels) is not None
        return (ends[0],) if rises else ()

    def _rise(self, asked: Sequence[int], levels: Levels) -> float | None:
        """What the last step of the range brought, if it is a gain that may lead to the answer."""
        tried = [k for k in asked if self._mean(k, levels) is not None]
        if len(tried) < 2:  # noqa: PLR2004 - a step has two ends
            return None
        last = self._mean(tried[-1], levels)
        step = self.found.tie(self._point(tried[-1]), self._point(tried[-2]), levels)
        if last is None or step is None or step.n < MIN_BLOCKS:
            return None
        tolerated = math.log1p(self.spec.objective.tolerance)
        if step.mean <= max(math.sqrt(step.variance), tolerated):
            return None
        rival = self.rival(levels)
        bar = self.found.over_levels(rival, PLAIN, levels) if rival else None
        return step.mean if bar is None or last + DOUBLINGS * step.mean >= bar.mean else None

    def _spared(self, k: int, level: Level) -> bool:
        return level != self.primary and k in self._hopeless.get(level.concurrency, ())

    @cached_property
    def _hopeless(self) -> dict[int, frozenset[int]]:
        """By concurrency: the K of which the primary level has said enough.

        The more streams, the dearer the verification of a draft, so the best K falls with them: a
        K on the far side of the best is not measured where it can only be worse. Nor is one that
        cannot be the answer, whatever it did at the other levels.
        """
        best = self.best(coarse(self.ks), (self.primary,))
        others = [k for k in self.universe if best is not None and k != best]
        outdone_ks = {k for k in others if self._cannot_be(k)}
        beaten = {k for k in others if best is not None and self._beaten_by(best, k)}
        at = self.primary.concurrency
        return {
            lv.concurrency: frozenset(
                outdone_ks | {k for k in beaten if (k > (best or 0)) == (lv.concurrency > at)}
            )
            for lv in self.spec.workload.levels
        }

    def _cannot_be(self, k: int) -> bool:
        levels = (self.primary,)
        contest = Contest(
            name=self.candidate.name, ks=(k,), levels=levels, rival=self.rival(levels)
        )
        return bool(outdone(self.spec, self.found, contest, error=self.error, least=MIN_BLOCKS))

    def _beaten_by(self, best: int, k: int) -> bool:
        estimate = self.found.estimate(self._point(k), self._point(best), self.primary.concurrency)
        if estimate is None or estimate.n < MIN_BLOCKS:
            return False
        return is_below(estimate, math.log1p(-self.spec.objective.tolerance), self.error)

    def _settled(self, k: int, level: Level) -> bool:
        return self.done(k, level) or self._spared(k, level)

    def _mean(self, k: int, levels: Levels) -> float | None:
        key = (k, levels)
        if key not in self._means:
            estimate = self.found.over_levels(self._point(k), PLAIN, levels)
            self._means[key] = estimate.mean if estimate else None
        return self._means[key]

    def rival(self, levels: Levels) -> Point | None:
        """The best point of the other candidates that has all these levels."""
        if levels not in self._rivals:
            name = self.candidate.name
            others = [point for point in self.found.found if point[0] != name]
            self._rivals[levels] = champion(self.spec, self.found, others, levels)
        return self._rivals[levels]

    def _of(self, k: int) -> list[Record]:
        return of_point(self.records, self.candidate.name, k)

    def _point(self, k: int) -> Point:
        return self.candidate.name, k

    @cached_property
    def _done(self) -> dict[tuple[int, int], bool]:
        return {}

    @cached_property
    def _means(self) -> dict[tuple[int, Levels], float | None]:
        return {}

    @cached_property
    def _rivals(self) -> dict[Levels, Point | None]:
        return {}


def compared(spec: StudySpec, records: Sequence[Record]) -> Comparer:
    """All fair arms of the search, with its own noise."""
    mine, levels = of_search(records), spec.workload.levels
    return comparer(arms(fair(spec, mine)), levels, noise_of(mine, levels), yardstick(spec))
