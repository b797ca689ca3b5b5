"""What a speedup is a ratio of: the figure that an objective compares, and how it is paired.

Rules: larger is better whatever the figure, so a latency enters as its reciprocal and a speedup of
1.2 in mean TPOT is a TPOT 1.2 times lower. Under output_throughput a level with a request rate
compares the mean E2E latency, see `Pass.log_speed`.

Goodput can be 0, which has no logarithm. Good requests are counts, so their ratio is that of the
pooled counts, each with a half added (Haldane 1956; Anscombe 1956), per second. Its variance is the
binomial one of the two shares or that of the blocks, whichever is larger: requests of one queue are
not independent. Where nothing is good on either side that is an interval which says nothing.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from autotune.core.goodput import good, goodput
from autotune.core.statistics import Estimate, mean_of
from autotune.core.study import StudySpec
from autotune.core.trial import Pass
from autotune.core.workload import Level, Slo

HALF = 0.5
Paired = Sequence[tuple[Sequence[Pass], Sequence[Pass]]]
"""The passes of both arms, block by block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One figure, as a row of `FIGURES`."""

    name: str
    """The word of candidates.yaml."""
    gain: str
    """What a speedup is said to be in."""
    key: str
    """The figure in best-config.yaml and MLflow."""
    unit: str
    value: Callable[[Pass, Slo | None], float | None]
    """The figure of a pass; None where it has none."""
    less_is_better: bool = True
    by_steps: bool = False
    """Whether a closed loop may go by steps, which know the time of a reply and no other figure."""

    def shown(self, value: float) -> str:
        """`12.3 ms TPOT`."""
        return f"{value:.1f} {self.unit}"


def _throughput(measured: Pass, slo: Slo | None) -> float | None:
    return measured.output_throughput


def _tpot(measured: Pass, slo: Slo | None) -> float | None:
    told = [t for t in measured.times.tpot_ms if t is not None] if measured.times else []
    return fmean(told) if told else None


def _e2e(measured: Pass, slo: Slo | None) -> float | None:
    return measured.mean_e2e_ms


def _goodput(measured: Pass, slo: Slo | None) -> float | None:
    count = good(measured, slo) if slo else None
    return None if count is None else (count + HALF) / measured.duration_s


FIGURES: Mapping[str, Compared] = {
    row.name: row
    for row in (
        Compared(
            name="output_throughput",
            gain="time per reply",
            key="output_throughput",
            unit="tok/s",
            value=_throughput,
            less_is_better=False,
            by_steps=True,
        ),
        Compared(name="tpot", gain="mean TPOT", key="mean_tpot_ms", unit="ms TPOT", value=_tpot),
        Compared(name="e2e", gain="mean E2E latency", key="mean_e2e_ms", unit="ms E2E", value=_e2e),
        Compared(
            name="goodput",
            gain="goodput",
            key="goodput",
            unit="good req/s",
            value=_goodput,
            less_is_better=False,
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Yardstick:
    """What a study compares."""

    figure: Compared
    slo: Slo | None = None

    def log_speed(self, measured: Pass) -> float | None:
        """Larger is faster, a difference is a log ratio; None where the pass has no such figure."""
        if self.figure.by_steps:
            return measured.log_speed
        value = self.figure.value(measured, self.slo)
        if value is None or value <= 0:
            return None
        return -math.log(value) if self.figure.less_is_better else math.log(value)

    def mean_log_speed(self, passes: Sequence[Pass]) -> float | None:
        """The mean over the launches that ran a block; None where one of them has no figure."""
        logs = [self.log_speed(p) for p in passes]
        known = [x for x in logs if x is not None]
        return fmean(known) if known and len(known) == len(logs) else None

    def log_ratios(self, pairs: Paired) -> tuple[float, ...]:
        """One arm over the other, of each block that both have a figure for."""
        both = [(self.mean_log_speed(a), self.mean_log_speed(b)) for a, b in pairs]
        return tuple(a - b for a, b in both if a is not None and b is not None)

    def estimate(self, pairs: Paired) -> Estimate | None:
        """The log ratio of one arm over the other; None without a block that has both."""
        ratios = self.log_ratios(pairs)
        if not ratios:
            return None
        blocks = mean_of(ratios)
        if self.figure.name != "goodput" or self.slo is None:
            return blocks
        mine, theirs = (_counts([p for pair in pairs for p in pair[i]], self.slo) for i in (0, 1))
        variance = max(blocks.variance, mine.variance + theirs.variance)
        return Estimate(
            mean=math.log(mine.rate / theirs.rate), variance=variance, dof=blocks.dof, n=blocks.n
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counts:
    """Good requests of one arm, pooled."""

    good: int
    requests: int
    duration_s: float

    @property
    def rate(self) -> float:
        return (self.good + HALF) / self.duration_s

    @property
    def variance(self) -> float:
        """Of the logarithm of the share (Walter 1975); it stays finite at 0 and at all."""
        return 1 / (self.good + HALF) - 1 / (self.requests + HALF)


def _counts(passes: Sequence[Pass], slo: Slo) -> _Counts:
    return _Counts(
        good=sum(good(p, slo) or 0 for p in passes),
        requests=sum(p.requests for p in passes),
        duration_s=sum(p.duration_s for p in passes),
    )


def typical(figure: Compared, slo: Slo | None, passes: Sequence[Pass]) -> float | None:
    """The figure of some passes together: their geometric mean, of goodput the pooled rate."""
    if figure.name == "goodput":
        found = goodput(passes, slo)
        return found.rate if found else None
    values = [figure.value(p, slo) for p in passes]
    logs = [math.log(v) for v in values if v]
    return math.exp(fmean(logs)) if logs else None


SPEED = Yardstick(figure=FIGURES["output_throughput"])
"""How fast replies come: what is compared unless an objective says otherwise."""


def yardstick(spec: StudySpec) -> Yardstick:
    """What this study compares."""
    return Yardstick(figure=FIGURES[spec.objective.metric], slo=spec.workload.slo)


def compared_at(spec: StudySpec, level: Level) -> Compared:
    """The figure that is shown for a level."""
    name = spec.objective.metric
    if name == "output_throughput" and level.request_rate is not None:
        name = "e2e"
    return FIGURES[name]
