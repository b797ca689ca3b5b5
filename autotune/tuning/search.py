"""Which variant of a candidate is launched next: Optuna's samplers, asked one at a time.

Rules: the same records give the same variant, so a resumed study asks what the uninterrupted one
would have asked: the sampler is made anew for each question, seeded by how many variants there are
already, over a study in memory that holds what is known of them. The ledger's own study is not
asked: its trials are points of a curve and of several stages, a variant is judged by its best K,
and a question that a kill leaves unanswered would stay there. No variant is proposed twice, and
none that the engine would refuse.
"""

import math
import warnings
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, GPSampler, QMCSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from autotune.core.axes import Axis, Choices, FloatRange, IntRange, Scalar
from autotune.core.constraints import beyond, infeasibility
from autotune.core.noise import noise_of
from autotune.core.space import (
    Values,
    default_variant,
    distance,
    farthest,
    is_countable,
    is_legal,
    points,
    values_of,
    variant,
    variants_in,
    with_variants,
)
from autotune.core.speedup import SpeedupCurve, curves
from autotune.core.stages.points import of_search
from autotune.core.study import Candidate, StudySpec
from autotune.core.trial import Record

GRID = "grid"
STARTUP = 2
"""Variants that are known before a model is made of them; Optuna's own 10 are for many trials."""
QUESTIONS = 8
"""How many answers more than there are known variants a sampler may give, before the untried one
nearest to its last answer is taken; qmc gives its sequence from the beginning each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What is told of a variant."""

    speedup: float
    excess: Mapping[str, float]
    """Milliseconds above each bound; the sampler prefers what keeps them (core/constraints.py)."""


def _qmc(seed: int) -> BaseSampler:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return QMCSampler(seed=seed, scramble=True, warn_independent_sampling=False)


SAMPLERS: Mapping[str, Callable[[int], BaseSampler]] = {
    "tpe": lambda seed: TPESampler(seed=seed, n_startup_trials=STARTUP),
    "gp": lambda seed: GPSampler(seed=seed, n_startup_trials=STARTUP),
    "qmc": _qmc,
    "random": lambda seed: RandomSampler(seed=seed),
}
ONE_SEQUENCE = frozenset({"qmc"})
"""Samplers whose points belong together: one seed for all, not one for each question."""


def propose(spec: StudySpec, records: Sequence[Record], candidate: Candidate) -> Candidate | None:
    """The next variant to launch; None when all are known, or `max_variants` of them."""
    known = variants_in(spec, records, candidate)
    if not candidate.space or len(known) >= spec.search.max_variants:
        return None
    if not known:
        return default_variant(spec.target, candidate)
    taken = [values for c in known if (values := values_of(candidate, c)) is not None]
    left = [p for p in points(spec.target, candidate) if p not in taken]
    if is_countable(candidate) and not left:
        return None
    few = is_countable(candidate) and len(known) + len(left) <= spec.search.max_variants
    if few or spec.search.sampler == GRID:
        chosen = farthest(candidate, left, taken)
    else:
        chosen = _sampled(spec, records, candidate, taken, left)
    return None if chosen is None else variant(candidate, chosen)


def distribution(axis: Axis) -> BaseDistribution:
    """The axis as Optuna knows it."""
    match axis:
        case Choices():
            return CategoricalDistribution(axis.values)
        case IntRange():
            high = axis.values[-1]
            return IntDistribution(axis.low, high, log=axis.log, step=axis.step)
        case FloatRange():
            high_reached = axis.values[-1] if axis.values else axis.high
            return FloatDistribution(axis.low, high_reached, log=axis.log, step=axis.step)


def _sampled(
    spec: StudySpec,
    records: Sequence[Record],
    candidate: Candidate,
    taken: Sequence[Values],
    left: Sequence[Values],
) -> Values | None:
    """The sampler's answer, or the untried variant nearest to it where that one is none."""
    study = _study(spec, records, candidate, taken)
    asked: Values = {}
    for _ in range(len(taken) + QUESTIONS):
        answer = study.ask(_distributions(candidate)).params
        asked = {name: _rounded(axis, answer[name]) for name, axis in candidate.space.items()}
        if asked not in taken and is_legal(spec.target, variant(candidate, asked)):
            return asked
    return min(left, key=lambda values: distance(candidate, values, asked), default=None)


def _study(
    spec: StudySpec, records: Sequence[Record], candidate: Candidate, taken: Sequence[Values]
) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = SAMPLERS[spec.search.sampler](_seed(spec, candidate, len(taken)))
    study = optuna.create_study(direction="maximize", sampler=sampler)
    scores = _scores(spec, records)
    for values in taken:
        study.add_trial(_trial(candidate, values, scores.get(variant(candidate, values).name)))
    return study


def _trial(candidate: Candidate, values: Values, score: Score | None) -> FrozenTrial:
    """A known variant as a finished trial; one without a speedup has failed."""
    return create_trial(
        state=TrialState.COMPLETE if score else TrialState.FAIL,
        value=score.speedup if score else None,
        params=dict(values),
        distributions=_distributions(candidate),
        constraints=dict(score.excess) if score else {},
    )


def _scores(spec: StudySpec, records: Sequence[Record]) -> Mapping[str, Score]:
    """What every candidate is worth at its best K: overall, or where that is not known yet, or
    every K breaks a constraint, at the primary concurrency."""
    searched = of_search(records)
    found = curves(with_variants(spec, records), searched, noise_of(searched, spec.workload.levels))
    by_name: dict[str, dict[int | None, SpeedupCurve]] = defaultdict(dict)
    for curve in found:
        by_name[curve.candidate][curve.concurrency] = curve
    primary = spec.workload.primary.concurrency
    return {
        name: _best(spec, mine, judged)
        for name, mine in by_name.items()
        if (judged := mine.get(None) or mine.get(primary))
    }


def _best(spec: StudySpec, mine: Mapping[int | None, SpeedupCurve], judged: SpeedupCurve) -> Score:
    """Feasibility first, then speed."""
    scores = [
        Score(speedup=p.speedup.mean, excess=_excess(spec, mine, p.num_speculative_tokens))
        for p in judged.points
    ]
    return max(scores, key=lambda score: (-infeasibility(score.excess), score.speedup))


def _excess(spec: StudySpec, mine: Mapping[int | None, SpeedupCurve], k: int) -> dict[str, float]:
    found: dict[str, float] = {}
    for concurrency, curve in mine.items():
        if concurrency is not None and k in curve.ks:
            found |= beyond(spec, curve.at(k).latencies, concurrency)
    return found


def _seed(spec: StudySpec, candidate: Candidate, number: int) -> int:
    number = 0 if spec.search.sampler in ONE_SEQUENCE else number
    return zlib.crc32(f"{spec.search.seed}/{candidate.name}/{number}".encode())


def _distributions(candidate: Candidate) -> dict[str, BaseDistribution]:
    return {name: distribution(axis) for name, axis in candidate.space.items()}


def _rounded(axis: Axis, value: Scalar) -> Scalar:
    if isinstance(axis, FloatRange) and isinstance(value, float) and math.isfinite(value):
        return axis.rounded(value)
    return value
