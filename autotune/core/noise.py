"""What makes equal measurements differ: the pass and the launch; how much, and how well known.

Rules: an effect is estimated from everything in the study that ought to be equal, on top of a
stated prior from recorded launches; each shrinks with a number of its own (passes, launches), so
they are kept apart until an interval is asked for. The third source, the text, is seen in every
comparison itself (core/comparison.py).
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from autotune.core.statistics import Estimate
from autotune.core.study import Level
from autotune.core.trial import Pass, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchEffect:
    """How much equal launches differ: the standard deviation of their mean log speed."""

    sd: float
    dof: float
    launches: int
    """How many launches of this study went into it, beyond the prior."""

    def on(self, estimate: Estimate, launches: float, baselines: float) -> Estimate:
        """Add the launch effect to an estimate that compares launches with baseline launches."""
        variance = self.sd**2 * (1 / launches + 1 / baselines)
        return estimate.plus_variance(variance, self.dof)


# Prior of the launch effect: its standard deviation and the weight it gets, in degrees of freedom.
# On a quiet machine the recorded demo's equal launches differ by 1.3 % (fitted by
# studies/benchmarks/fitting.py), five others, one after the other, by 1.2 %
# (studies/smollm2-135m/results/equal-launches.json).
PRIOR_SD = 0.0135
PRIOR_DOF = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PassEffect:
    """How much the speed of equal passes of one launch differs: timing alone, the text apart."""

    sd: float
    dof: float

    def on(self, estimate: Estimate, passes: int, others: int) -> Estimate:
        """Add it to an estimate that compares so many passes with so many others."""
        return estimate.plus_variance(self.sd**2 * (1 / passes + 1 / others), self.dof)


# Prior of the pass effect: the recorded demo's passes without speculation differ by 2.5 % at
# concurrency 1 and 1.5 % at 4 (studies/benchmarks/fitting.py on studies/smollm2-135m/results).
PASS_PRIOR_SD = 0.02
PASS_PRIOR_DOF = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Both effects of a study."""

    launch: LaunchEffect
    passes: Mapping[int, PassEffect] = field(default_factory=dict)
    """By concurrency."""

    def of_passes(self, concurrency: int) -> PassEffect:
        """The effect at one level; the prior where nothing is known."""
        return self.passes.get(concurrency, PassEffect(sd=PASS_PRIOR_SD, dof=PASS_PRIOR_DOF))


def noise_of(records: Sequence[Record], levels: Sequence[Level]) -> Noise:
    """The noise from all records of a study, every split and stage.

    A machine whose passes scatter more than those that the priors come from is taken to start its
    launches less alike, too, by the same factor, until its own launches tell.
    """
    passes = {lv.concurrency: pass_effect(passes_at(records, lv.concurrency)) for lv in levels}
    scatter_sd = sum(effect.sd for effect in passes.values()) / max(len(passes), 1)
    prior_sd = PRIOR_SD * max(scatter_sd / PASS_PRIOR_SD, 1.0)
    return Noise(launch=launch_effect(equal_launches(records, levels), prior_sd), passes=passes)


def launch_effect(groups: Sequence[Sequence[float]], prior_sd: float = PRIOR_SD) -> LaunchEffect:
    """The launch effect from groups of equal launches, each given by its mean log throughput.

    Groups of one tell nothing and are ignored; the prior counts as `PRIOR_DOF` degrees of freedom.
    """
    squares, dof, launches = PRIOR_DOF * prior_sd**2, PRIOR_DOF, 0
    for group in groups:
        if len(group) > 1:
            squares += float(np.var(group, ddof=1)) * (len(group) - 1)
            dof += len(group) - 1
            launches += len(group)
    return LaunchEffect(sd=math.sqrt(squares / dof), dof=dof, launches=launches)


Passes = Sequence[tuple[str, str, float]]
"""(launch, block, log speed) of passes without speculation."""


def pass_effect(observed: Passes) -> PassEffect:
    """The pass effect from passes of several launches; the prior counts as `PASS_PRIOR_DOF`."""
    squares, dof = scatter(observed)
    dof += PASS_PRIOR_DOF
    return PassEffect(sd=math.sqrt((PASS_PRIOR_DOF * PASS_PRIOR_SD**2 + squares) / dof), dof=dof)


def scatter(observed: Passes) -> tuple[float, float]:
    """Sum of squares, and its degrees of freedom, of what launch and block do not explain.

    What the passes of a launch, or of a block, have in common is fitted and taken away (two-way
    layout, least squares).
    """
    if not observed:
        return 0.0, 0.0
    launches = sorted({launch for launch, _, _ in observed})
    blocks = sorted({block for _, block, _ in observed})
    design = np.zeros((len(observed), len(launches) + len(blocks)))
    for row, (launch, block, _) in enumerate(observed):
        design[row, launches.index(launch)] = 1.0
        design[row, len(launches) + blocks.index(block)] = 1.0
    values = np.array([value for _, _, value in observed])
    fitted, _, rank, _ = np.linalg.lstsq(design, values, rcond=None)
    return float(np.sum((values - design @ fitted) ** 2)), float(len(observed) - int(rank))


def passes_at(records: Sequence[Record], concurrency: int) -> Passes:
    """The passes at K = 0: they give one token a step, so their text makes no noise."""
    plain = [
        (r, p)
        for r in records
        if r.measurement and r.trial.num_speculative_tokens == 0
        for p in r.measurement.at(concurrency)
        if p.steps is not None and p.request_rate is None
    ]
    tokens = sum(p.output_tokens for _, p in plain) / max(sum(p.requests for _, p in plain), 1)
    return [(r.launch_id, f"{r.trial.stage.prompts}/{p.block}", _log(p, tokens)) for r, p in plain]


def _log(measured: Pass, tokens: float) -> float:
    steps = measured.steps
    return -math.log(steps.seconds_of(tokens)) if steps else 0.0


def equal_launches(records: Sequence[Record], levels: Sequence[Level]) -> list[list[float]]:
    """The mean log speeds of every group of equal launches.

    Equal means: same candidate, same prompts, and the same K or both live. The levels and the K of
    one launch share its effect: their mean is one observation, not several.
    """
    groups: dict[tuple[str, str, int | None], dict[str, list[Record]]] = defaultdict(dict)
    for r in records:
        if r.measurement is not None:
            k = None if r.trial.live else r.trial.num_speculative_tokens
            launches = groups[r.trial.candidate, r.trial.stage.prompts, k]
            launches.setdefault(r.launch_id, []).append(r)
    return [_launch_means(list(group.values()), levels) for group in groups.values()]


def _launch_means(launches: Sequence[Sequence[Record]], levels: Sequence[Level]) -> list[float]:
    """Each launch's mean log speed over what all of them ran: levels alike, K and blocks alike."""
    per_level = []
    for level in levels:
        parts = [_passes(launch, level.concurrency) for launch in launches]
        shared = set.intersection(*(set(p) for p in parts))
        if shared:
            per_level.append([sum(p[key] for key in shared) / len(shared) for p in parts])
    return [sum(means) / len(means) for means in zip(*per_level, strict=True)]


def _passes(launch: Sequence[Record], concurrency: int) -> Mapping[tuple[int, int], float]:
    """Log speed of each valid pass of a launch, by K and block."""
    return {
        (p.num_speculative_tokens, p.block): p.log_speed
        for r in launch
        if r.measurement
        for p in r.measurement.at(concurrency)
    }
