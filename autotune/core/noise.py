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
from autotune.core.trial import Record
from autotune.core.workload import Level


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
    """How much the speed of equal passes differs: timing alone, the text apart."""

    sd: float
    dof: float


# Prior of the pass effect: the recorded demo's passes without speculation differ by 2.5 % at
# concurrency 1 and 1.5 % at 4 (studies/benchmarks/fitting.py on results/quiet there).
PASS_PRIOR_SD = 0.02
PASS_PRIOR_DOF = 4.0
# Prior of what remains of it between passes that stand side by side: the K of a live launch run a
# block one after the other, and a slow minute slows all of them. In the recorded demo 1.8 % at
# concurrency 1 and 3.0 % at 4: more than plain passes have there, since the length of a speculating
# step owes a little to the text.
BESIDE_PRIOR_SD = 0.025


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Both effects of a study."""

    launch: LaunchEffect
    passes: Mapping[int, PassEffect] = field(default_factory=dict)
    """Of passes in different launches, by concurrency."""
    beside: Mapping[int, PassEffect] = field(default_factory=dict)
    """Of passes of one block in one launch, by concurrency."""

    def side_by_side(self, concurrency: int) -> PassEffect:
        """What passes of one block in one launch do not share; the prior where nothing is known."""
        return self.beside.get(concurrency, PassEffect(sd=BESIDE_PRIOR_SD, dof=PASS_PRIOR_DOF))

    def of_passes(self, concurrency: int, *, speculating: bool) -> PassEffect:
        """The whole effect at one level; of passes that speculate no less than they do not share
        side by side."""
        plain = self.passes.get(concurrency, PassEffect(sd=PASS_PRIOR_SD, dof=PASS_PRIOR_DOF))
        own = self.side_by_side(concurrency)
        return own if speculating and own.sd > plain.sd else plain


def noise_of(records: Sequence[Record], levels: Sequence[Level]) -> Noise:
    """The noise from all records of a study, every split and stage.

    A machine whose passes scatter more than those that the priors come from is taken to start its
    launches less alike, too, by the same factor, until its own launches tell.
    """
    passes = {lv.concurrency: pass_effect(passes_at(records, lv.concurrency)) for lv in levels}
    scatter_sd = sum(effect.sd for effect in passes.values()) / max(len(passes), 1)
    restless = max(scatter_sd / PASS_PRIOR_SD, 1.0)
    return Noise(
        launch=launch_effect(equal_launches(records, levels), PRIOR_SD * restless),
        passes=passes,
        beside={
            c: pass_effect(passes_beside(records, c), BESIDE_PRIOR_SD * effect.sd / PASS_PRIOR_SD)
            for c, effect in passes.items()
        },
    )


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
"""(arm, block, log speed): the pass effect is what neither arm nor block explains."""


def pass_effect(observed: Passes, prior_sd: float = PASS_PRIOR_SD) -> PassEffect:
    """The pass effect from these passes; the prior counts as `PASS_PRIOR_DOF`."""
    squares, dof = scatter(observed)
    dof += PASS_PRIOR_DOF
    return PassEffect(sd=math.sqrt((PASS_PRIOR_DOF * prior_sd**2 + squares) / dof), dof=dof)


def scatter(observed: Passes) -> tuple[float, float]:
    """Sum of squares, and its degrees of freedom, of what arm and block do not explain.

    What the passes of an arm, or of a block, have in common is fitted and taken away (two-way
    layout, least squares).
    """
    if not observed:
        return 0.0, 0.0
    arms = sorted({arm for arm, _, _ in observed})
    blocks = sorted({block for _, block, _ in observed})
    design = np.zeros((len(observed), len(arms) + len(blocks)))
    for row, (arm, block, _) in enumerate(observed):
        design[row, arms.index(arm)] = 1.0
        design[row, len(arms) + blocks.index(block)] = 1.0
    values = np.array([value for _, _, value in observed])
    fitted, _, rank, _ = np.linalg.lstsq(design, values, rcond=None)
    return float(np.sum((values - design @ fitted) ** 2)), float(len(observed) - int(rank))


def passes_at(records: Sequence[Record], concurrency: int) -> Passes:
    """The passes at K = 0, an arm for each launch: one token a step, no noise of the text."""
    plain = [r for r in records if r.trial.num_speculative_tokens == 0]
    return [
        (r.launch_id, f"{r.trial.stage.prompts}/{block}", log)
        for r in plain
        for block, log in _log_speeds(r, concurrency).items()
    ]


def passes_beside(records: Sequence[Record], concurrency: int) -> Passes:
    """The passes of live launches, an arm for each K and blocks apart for each launch.

    What all K of a launch have in common in a block, a slow minute of the machine, is the block's.
    """
    return [
        (f"{r.launch_id}/{r.trial.num_speculative_tokens}", f"{r.launch_id}/{block}", log)
        for r in records
        if r.trial.live
        for block, log in _log_speeds(r, concurrency).items()
    ]


def _log_speeds(record: Record, concurrency: int) -> Mapping[int, float]:
    """The log speed of each block, with the tokens and the tokens per step of the whole record.

    So the text makes no noise in it: how many tokens a step gives is the same in every block.
    """
    passes = record.measurement.at(concurrency) if record.measurement else ()
    found = [(p, p.steps) for p in passes if p.steps is not None and p.request_rate is None]
    if not found:
        return {}
    tokens = sum(p.output_tokens for p, _ in found) / sum(p.requests for p, _ in found)
    per_step = sum(s.tokens for _, s in found) / sum(s.steps for _, s in found)
    return {
        p.block: -math.log(s.first_token_s + (tokens - 1) * s.step_s / per_step) for p, s in found
    }


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
