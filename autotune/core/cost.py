"""Where the time of a step goes, and what another draft would make of it: the cost model.

    S(c, K) = L(K) * T(c, 0) / T(c, K)
    T(c, K) = T(c, 0) + overhead(c) + m * (check(c) + draft(c))

S is the speedup of decoding at concurrency c, L the decode tokens per engine step, steps without a
draft included, and m the tokens drafted in a step for each request, which is K where every draft
has K tokens. Without its last term T is T_verify(c, K). Leviathan et al. 2023, theorem 3.8, is the
case of one constant acceptance, no overhead and checking for free (core/expectation.py).

What a drafted token costs is the slope of the measured steps over m. A draft model pays it for
checking and for drafting, a lookup or a parallel drafter for checking alone (`DRAFTS_IN_SLOPE`).
Checking is the target's work and the same for all candidates: core/cost_records.py says whence it
comes. Where nothing tells it the two stay together.

Rules: the model explains, orders what to try next and states ceilings; what is recommended was
measured. T(c, 0) is of launches without speculation. No prediction is ever shown as a measurement.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.core.expectation import tokens_at
from autotune.core.methods import Drafting

DRAFTS_IN_SLOPE: Mapping[Drafting, bool] = {
    Drafting.SEQUENTIAL: True,  # a forward of the draft for each token
    Drafting.PARALLEL: False,  # one for all of them: part of the overhead of a step
    Drafting.LOOKUP: False,  # a search on the host: part of the overhead of a step
}
SPREAD = 0.25
"""Drafted tokens by which the points of a line must differ."""
LEAVE_ONE_OUT = 3
"""K that leaving one out needs: two are a line without an error."""
SURE = 1.645
"""Standard errors of a one-sided 95 % bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The steps of one K at one level, all passes together."""

    num_speculative_tokens: int
    seconds: float
    """Of a decode step, without the prefills of other requests where the passes tell them apart."""
    error_s: float
    """Standard error of that."""
    carried_s: float = 0.0
    """What prefills of other requests add, in the mean over all steps; 0 where not told apart."""
    tokens: float
    """L: decode tokens per step."""
    drafted: float
    """m: tokens drafted per step of a request."""

    def __post_init__(self) -> None:
        if not (self.seconds > 0 and self.error_s > 0):
            raise ValueError(f"a step takes time, known within some error, got {self}")

    @property
    def whole_s(self) -> float:
        """Seconds of a step in the mean, prefills of other requests included."""
        return self.seconds + self.carried_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Seconds with their standard error."""

    seconds: float
    error_s: float
    source: str = ""

    @property
    def low_s(self) -> float:
        """What it surely is, at least."""
        return self.seconds - SURE * self.error_s

    @property
    def high_s(self) -> float:
        """What it surely is, at most."""
        return self.seconds + SURE * self.error_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Steps over drafted tokens: what a step costs without any, and what each of them adds."""

    base: Cost
    slope: Cost

    def at(self, drafted: float) -> float:
        """Seconds of a step with so many drafted tokens."""
        return self.base.seconds + self.slope.seconds * drafted


def fit_line(steps: Sequence[Step]) -> Line | None:
    """The line through these steps by weighted least squares; None where m is all but the same.

    Its errors follow from those of the steps, and are larger where they scatter more about it.
    """
    drafted = np.array([step.drafted for step in steps])
    if len(steps) < 2 or float(np.ptp(drafted)) < SPREAD:  # noqa: PLR2004 - a line needs two
        return None
    weights = 1 / np.array([step.error_s for step in steps])
    design = np.column_stack([weights, weights * drafted])
    values = weights * np.array([step.seconds for step in steps])
    found, *_ = np.linalg.lstsq(design, values, rcond=None)
    dof = len(steps) - 2
    scatter = float(np.sum((values - design @ found) ** 2)) / dof if dof else 1.0
    covariance = np.linalg.pinv(design.T @ design) * max(scatter, 1.0)
    base, slope = (
        Cost(seconds=float(found[i]), error_s=math.sqrt(float(covariance[i, i]))) for i in (0, 1)
    )
    return Line(base=base, slope=slope)


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A measured step taken apart, in seconds; the parts add up to it."""

    target_s: float
    """A step of plain decoding."""
    checking_s: float | None
    """None, like the next one, where the two cannot be told apart."""
    drafting_s: float | None
    together_s: float | None
    """Checking and drafting; None where they are told apart."""
    overhead_s: float | None
    """The rest: what speculating costs whatever K, and what the model does not explain."""
    speculating_s: float | None
    """All three of them, where too few K were measured to tell any apart; else None."""
    carried_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A K as the line through the others has it."""

    num_speculative_tokens: int
    measured_s: float
    predicted_s: float

    @property
    def error(self) -> float:
        """By what share the predicted speedup is above the measured one: L is the same in both."""
        return self.measured_s / self.predicted_s - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """The steps of one candidate at one level, beside those of plain decoding."""

    candidate: str
    drafting: Drafting
    concurrency: int
    plain: Step
    steps: tuple[Step, ...]
    """By K, rising; at least one."""
    first_token: float = 0.0
    """Share of a plain reply's time that goes by before its first token."""
    between_s: float = 0.0
    """Standard error of comparing its launches with plain ones: equal launches differ."""
    standby_s: float | None = None
    """What speculation adds to a step that drafts nothing: live K = 0 less plain decoding."""
    line: Line | None = None
    """None where too few K were measured."""
    check: Cost | None = None
    """Of one drafted token of each request; None where nothing tells it."""

    def __post_init__(self) -> None:
        if not self.steps or list(self.ks) != sorted(set(self.ks)):
            raise ValueError(f"need the steps of one K at least, each once, rising: {self.ks}")

    @property
    def ks(self) -> tuple[int, ...]:
        """The K that were measured, rising."""
        return tuple(step.num_speculative_tokens for step in self.steps)

    def at(self, k: int) -> Step:
        """The step of that K."""
        return next(step for step in self.steps if step.num_speculative_tokens == k)

    @property
    def drafts_in_slope(self) -> bool:
        """Whether each drafted token costs a forward of the draft."""
        return DRAFTS_IN_SLOPE[self.drafting]

    @property
    def draft(self) -> Cost | None:
        """The draft's own step, for each token; None where it is not told apart from checking, or
        is not paid by the token.
        """
        if self.line is None or self.check is None or not self.drafts_in_slope:
            return None
        slope, check = self.line.slope, self.check
        return Cost(
            seconds=max(slope.seconds - check.seconds, 0.0),
            error_s=math.hypot(slope.error_s, check.error_s),
            source=check.source,
        )

    @property
    def overhead(self) -> Cost | None:
        """What speculating adds to a step whatever K: the line at no drafted token less plain."""
        if self.line is None:
            return None
        errors = (self.line.base.error_s, self.plain.error_s, self.between_s)
        seconds = self.line.base.seconds - self.plain.seconds
        return Cost(seconds=seconds, error_s=math.hypot(*errors))

    def of_reply(self, speedup: float) -> float:
        """The speedup of a whole reply, whose first token is as late as before (Amdahl 1967)."""
        return 1 / (self.first_token + (1 - self.first_token) / speedup)

    def speedup(self, k: int) -> float:
        """S of a measured K: decoding alone, from its steps."""
        return self.supposing(k)

    def supposing(self, k: int, *, tokens: float | None = None, saved_s: float = 0.0) -> float:
        """The speedup of a measured K if it gave other tokens per step, or took less time; no step
        takes less than one of plain decoding.
        """
        step = self.at(k)
        seconds = max(step.seconds - saved_s, min(step.seconds, self.plain.seconds))
        given = step.tokens if tokens is None else tokens
        return given * self.plain.whole_s / (seconds + step.carried_s)

    @property
    def ceiling(self) -> tuple[int, float]:
        """The best K and its speedup if drafting and overhead took no time.

        Where the cost of checking is not known it counts as nothing: the ceiling is then
        the highest that there can be.
        """
        best = max(self.steps, key=self._free)
        return best.num_speculative_tokens, self._free(best)

    def _free(self, step: Step) -> float:
        check = self.check.seconds if self.check else 0.0
        seconds = self.plain.seconds + check * step.drafted + step.carried_s
        return step.tokens * self.plain.whole_s / seconds

    def predicted(self, k: int, per_position: Sequence[float]) -> float | None:
        """The speedup at a K that need not have been measured, from acceptance by position.

        Only for a draft that is asked token by token: how often a lookup finds anything depends on
        K, too, and a parallel drafter is trained for one block length.
        """
        if self.line is None or not self.drafts_in_slope or not per_position:
            return None
        seconds = self.line.at(k) + self.steps[-1].carried_s
        return tokens_at(per_position, k) * self.plain.whole_s / seconds

    def split(self, k: int) -> Split:
        """The measured step of a K taken apart."""
        step = self.at(k)
        added = step.seconds - self.plain.seconds
        if self.line is None:
            return self._split(step, speculating_s=added)
        slope = self.line.slope.seconds * step.drafted
        checking = self.check.seconds * step.drafted if self.check else None
        drafting = self.draft.seconds * step.drafted if self.draft else None
        if not self.drafts_in_slope:
            checking, drafting = (slope if checking is None else checking), 0.0
        if checking is None or drafting is None:
            return self._split(step, together_s=slope, overhead_s=added - slope)
        return self._split(
            step,
            checking_s=checking,
            drafting_s=drafting,
            overhead_s=added - checking - drafting,
        )

    def _split(self, step: Step, **parts: float) -> Split:
        names = ("checking_s", "drafting_s", "together_s", "overhead_s", "speculating_s")
        known = {name: parts.get(name) for name in names}
        return Split(target_s=self.plain.seconds, carried_s=step.carried_s, **known)

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """Each K as the others predict it; empty below `LEAVE_ONE_OUT` of them."""
        if len(self.steps) < LEAVE_ONE_OUT:
            return ()
        lines = [(step, fit_line([x for x in self.steps if x is not step])) for step in self.steps]
        return tuple(
            LeftOut(
                num_speculative_tokens=step.num_speculative_tokens,
                measured_s=step.seconds,
                predicted_s=line.at(step.drafted),
            )
            for step, line in lines
            if line is not None and line.at(step.drafted) > 0
        )

    @property
    def left_out_error(self) -> float | None:
        """The largest error of leaving one K out, a share of the speedup; None with too few."""
        return max((abs(one.error) for one in self.left_out), default=None)
