"""Whether the machine kept its pace: within a launch, and between the launches of the baseline.

Rules: only plain steps without a prefill are looked at (K = 0), whose time owes next to nothing to
the prompts; what is called drift is beyond what equal passes and equal launches differ by; a
confirmation whose baselines differ that much is measured once more.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from scipy.special import fdtr, stdtrit

from autotune.core.noise import PRIOR_DOF, PRIOR_SD, LaunchEffect
from autotune.core.statistics import Estimate, Interval
from autotune.core.trial import BASELINE, Pass, Record, Stage

SURE = 0.99
"""Confidence of what is called drift in a launch: a study has many launches to be wrong about."""
SURE_BETWEEN = 0.95
"""Of what is called drift of the baseline, or a restless confirmation: there is one of each."""
NOTABLE = 0.03
"""Changes of less than this are not told, however sure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """A change of the speed of plain steps."""

    where: str
    change: Interval
    """Speed at the end over speed at the start, with its interval."""

    def told(self) -> str:
        """`launch 004: plain steps were 0.93x [0.91, 0.95] as fast at its end as at its start`."""
        return f"{self.where}: plain steps were {self.change.show()} as fast at the end"


def drifts(records: Sequence[Record], effect: LaunchEffect) -> list[Drift]:
    """Every launch that changed its pace, and the baseline's change over the study."""
    found = [drift for launch in _launches(records) if (drift := _within(launch))]
    between = _between(records, effect)
    return [*found, between] if between else found


def restless(records: Sequence[Record]) -> bool:
    """Whether the baselines of the confirmation differ by more than equal launches do (F test)."""
    means = [
        value
        for r in records
        if r.trial.candidate == BASELINE and r.trial.stage is Stage.CONFIRM
        if (value := _pace(r)) is not None
    ]
    if len(means) < 2:  # noqa: PLR2004 - two are the least that can differ
        return False
    ratio = float(np.var(means, ddof=1)) / PRIOR_SD**2
    return float(fdtr(len(means) - 1, PRIOR_DOF, ratio)) > SURE_BETWEEN


def _launches(records: Sequence[Record]) -> Iterator[list[Record]]:
    groups: dict[str, list[Record]] = defaultdict(list)
    for r in records:
        if r.measurement and r.trial.num_speculative_tokens == 0:
            groups[r.launch_id].append(r)
    yield from groups.values()


def _within(launch: Sequence[Record]) -> Drift | None:
    """A straight line through the log pace of the passes, each level with a height of its own."""
    passes = [
        (p.concurrency, p.started_s, pace)
        for r in launch
        if r.measurement
        for p in r.measurement.passes
        if (pace := _log_steps(p)) is not None
    ]
    levels = sorted({c for c, _, _ in passes})
    dof = len(passes) - len(levels) - 1
    if dof < 2:  # noqa: PLR2004 - a line through all points has no scatter
        return None
    times = np.array([at for _, at, _ in passes])
    rows = [[float(c == level) for level in levels] for c, _, _ in passes]
    design = np.column_stack([np.array(rows), times / max(times.max() - times.min(), 1e-9)])
    values = np.array([pace for _, _, pace in passes])
    fitted, *_ = np.linalg.lstsq(design, values, rcond=None)
    scatter = float(np.sum((values - design @ fitted) ** 2)) / dof
    variance = scatter * float(np.linalg.pinv(design.T @ design)[-1, -1])
    estimate = Estimate(mean=float(fitted[-1]), variance=variance, dof=dof, n=len(passes))
    return _notable(f"launch {launch[0].launch_id}", estimate, SURE)


def _between(records: Sequence[Record], effect: LaunchEffect) -> Drift | None:
    """The last baselines over the first one, by their step times: the prompts are others."""
    plain = [r for r in records if r.trial.candidate == BASELINE and _pace(r) is not None]
    first = [_pace(r) for r in plain if r.trial.stage is Stage.BASELINE]
    last = [_pace(r) for r in plain if r.trial.stage is Stage.CONFIRM]
    old, new = ([x for x in side if x is not None] for side in (first, last))
    if not old or not new:
        return None
    still = Estimate(mean=fmean(new) - fmean(old), variance=1e-12, dof=1e6, n=len(new))
    moved = effect.on(still, len(new), len(old))
    return _notable("the baseline over the study", moved, SURE_BETWEEN)


def _pace(record: Record) -> float | None:
    """Mean log of plain steps per second over the levels; None without step times."""
    by_level: dict[int, list[float]] = defaultdict(list)
    for p in record.measurement.passes if record.measurement else ():
        if (pace := _log_steps(p)) is not None:
            by_level[p.concurrency].append(pace)
    return fmean(fmean(values) for values in by_level.values()) if by_level else None


def _log_steps(measured: Pass) -> float | None:
    """Log of pure decode steps per second; None at a request rate, where the batch varies."""
    if measured.invalid or measured.request_rate is not None or measured.steps is None:
        return None
    return -math.log(measured.steps.decode_step_s or measured.steps.step_s)


def _notable(where: str, estimate: Estimate, sure: float) -> Drift | None:
    spread = float(stdtrit(estimate.dof, (1 + sure) / 2)) * math.sqrt(estimate.variance)
    low, high = estimate.mean - spread, estimate.mean + spread
    if abs(estimate.mean) < NOTABLE or low <= 0.0 <= high:
        return None
    change = Interval(mean=math.exp(estimate.mean), low=math.exp(low), high=math.exp(high))
    return Drift(where=where, change=change)
