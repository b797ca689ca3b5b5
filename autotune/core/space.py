"""A candidate with ranges and the concrete candidates in it: its variants.

Rules: a variant has one value for every axis and a name that says them; a combination that the
engine would refuse is no variant; what a stored trial is a variant of follows from its settings,
not from its name, so that measurements outlive changes of the file.
"""

import itertools
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from autotune.core.axes import Scalar, start
from autotune.core.counting import counted
from autotune.core.jsontype import JSON
from autotune.core.schedule import ranges_of, scheduled, without_schedule
from autotune.core.settings import contradictions, resolved
from autotune.core.study import Candidate, StudySpec, Target
from autotune.core.trial import Record, Stage, Trial

Values = Mapping[str, Scalar]

ENGINE_ARGS = "engine_args."
"""What the names of engine arguments begin with among the axes."""
COUNTABLE = 4096
"""Spaces of more combinations than this are not listed."""
COARSE = 7
"""Values of an axis that stand for all of them where a space is not listed."""


def variant(candidate: Candidate, values: Values) -> Candidate:
    """The concrete candidate that these values make, one for every axis; None leaves one out."""
    if not candidate.space:
        return candidate
    chosen = {name: values[name] for name in candidate.space}
    args = {n.removeprefix(ENGINE_ARGS): v for n, v in chosen.items() if n.startswith(ENGINE_ARGS)}
    settings = {name: v for name, v in chosen.items() if not name.startswith(ENGINE_ARGS)}
    shown = ",".join(f"{n.removeprefix(ENGINE_ARGS)}={_shown(v)}" for n, v in chosen.items())
    return replace(
        candidate,
        name=f"{candidate.name}({shown})",
        variant_of=candidate.name,
        settings=resolved(candidate.row, {**candidate.settings, **settings}),
        engine_args=_without_nulls({**candidate.engine_args, **args}),
        space={},
    )


def is_legal(target: Target, candidate: Candidate) -> bool:
    """Whether the engine would start with the candidate's settings together."""
    args = {**target.engine_args, **candidate.engine_args}
    return not any(contradictions(candidate.row, candidate.settings, args))


def default_variant(target: Target, candidate: Candidate) -> Candidate:
    """What is screened first: the legal variant nearest to what the engine takes by itself.

    On an axis without such a value, or with one outside of it, the middle counts. A candidate
    without ranges is its own; raises ValueError where no combination is legal.
    """
    if not candidate.space:
        return candidate
    first = {name: start(axis) for name, axis in candidate.space.items()}
    if is_legal(target, made := variant(candidate, first)):
        return made
    legal = points(target, candidate)
    if not legal:
        raise ValueError(f"no combination of the values of {candidate.name!r} is allowed")
    return variant(candidate, min(legal, key=lambda values: distance(candidate, values, first)))


def points(target: Target, candidate: Candidate) -> tuple[Values, ...]:
    """The legal combinations, or evenly spread ones where there are too many to list."""
    axes = candidate.space
    most = COUNTABLE
    if not is_countable(candidate):
        most = max(2, min(COARSE, int(COUNTABLE ** (1 / len(axes)))))
    grids = [axis.grid(most) for axis in axes.values()]
    found = (dict(zip(axes, chosen, strict=True)) for chosen in itertools.product(*grids))
    return tuple(values for values in found if is_legal(target, variant(candidate, values)))


def is_countable(candidate: Candidate) -> bool:
    """Whether `points` has every combination of the candidate's values."""
    return math.prod(axis.size or math.inf for axis in candidate.space.values()) <= COUNTABLE


def farthest(
    candidate: Candidate, among: Sequence[Values], taken: Sequence[Values]
) -> Values | None:
    """The point that is farthest from all taken ones: few launches then cover the space."""
    if not taken:
        return next(iter(among), None)
    return max(
        among, key=lambda point: min(distance(candidate, point, t) for t in taken), default=None
    )


def distance(candidate: Candidate, one: Values, other: Values) -> float:
    """Between two combinations, every axis as long as any other."""
    return math.dist(
        [axis.place(one[name]) for name, axis in candidate.space.items()],
        [axis.place(other[name]) for name, axis in candidate.space.items()],
    )


def values_of(candidate: Candidate, trial: Trial | Candidate) -> Values | None:
    """The values under which a trial is one of this candidate's variants; None if it is none.

    A candidate without ranges has only one variant, itself, and no values.
    """
    drafts = [(it.method, it.model, it.weights) for it in (candidate, trial)]
    if drafts[0] != drafts[1]:
        return None
    usual = {name: axis.default for name, axis in candidate.space.items()}
    given = {**usual, **_flat(trial)}
    values = {name: given[name] for name in candidate.space}
    held = {
        name: value
        for name, value in values.items()
        if not isinstance(value, list | dict) and candidate.space[name].holds(value)
    }
    if len(held) < len(values):
        return None
    made = {**usual, **_flat(variant(candidate, held))}
    return held if _without_nulls(made) == _without_nulls(given) else None


def meant_by(spec: StudySpec, trial: Trial) -> Candidate | None:
    """The candidate, or the variant of one, that a stored trial is under the present file.

    A candidate that has been renamed is the same one; of two that fit the name decides.
    """
    ranges = ranges_of(trial.settings)
    if ranges:
        plain = meant_by(spec, replace(trial, settings=without_schedule(trial.settings)))
        return scheduled(plain, ranges) if plain else None
    for candidate in sorted(spec.candidates, key=lambda c: c.name != trial.family):
        values = values_of(candidate, trial)
        if values is not None:
            return variant(candidate, values)
    return None


def variants_in(
    spec: StudySpec, records: Sequence[Record], candidate: Candidate
) -> tuple[Candidate, ...]:
    """The candidate's variants that have a record, in the order of their first one."""
    found: dict[str, Candidate] = {}
    for record in records:
        values = values_of(candidate, record.trial)
        if values is not None and record.trial.family == candidate.name:
            made = variant(candidate, values)
            found.setdefault(made.name, made)
    return tuple(found.values())


def screened_variant(spec: StudySpec, records: Sequence[Record], candidate: Candidate) -> Candidate:
    """The variant that stands for the candidate in the screening: one that was begun, if any."""
    screened = [r for r in records if r.trial.stage is Stage.SCREEN]
    begun = variants_in(spec, screened, candidate)
    return begun[0] if begun else default_variant(spec.target, candidate)


def to_come(spec: StudySpec, records: Sequence[Record]) -> Iterator[str]:
    """What no plan can foresee: how many variants of each candidate may follow its first one."""
    for candidate in spec.candidates:
        known = len(variants_in(spec, records, candidate)) or 1
        most = spec.search.max_variants
        if is_countable(candidate):
            most = min(most, len(points(spec.target, candidate)))
        if candidate.space and known < most:
            further = counted(most - known, "further launch", "further launches")
            yield (
                f"{candidate.name}: up to {further} of other values of "
                f"{', '.join(candidate.space)}, if it may still be the answer then"
            )


def with_variants(
    spec: StudySpec, records: Sequence[Record], *launched: Candidate | None
) -> StudySpec:
    """The study with every candidate that has ranges replaced by its variants that are known.

    Whatever compares candidates asks this study; `launched` are further variants to be in it.
    """
    if not any(candidate.space for candidate in spec.candidates):
        return spec
    return replace(spec, candidates=tuple(_concrete(spec, records, launched)))


def _concrete(
    spec: StudySpec, records: Sequence[Record], launched: Collection[Candidate | None]
) -> Iterator[Candidate]:
    for candidate in spec.candidates:
        if not candidate.space:
            yield candidate
            continue
        known = [screened_variant(spec, records, candidate)]
        known += variants_in(spec, records, candidate)
        known += [c for c in launched if c is not None and c.variant_of == candidate.name]
        yield from {c.name: c for c in known}.values()


def _flat(held: Trial | Candidate) -> dict[str, JSON]:
    args = {f"{ENGINE_ARGS}{name}": value for name, value in held.engine_args.items()}
    return {**held.settings, **args}


def _without_nulls(values: Mapping[str, JSON]) -> dict[str, JSON]:
    return {name: value for name, value in values.items() if value is not None}


def _shown(value: Scalar) -> str:
    if isinstance(value, str):
        return value
    return "none" if value is None else json.dumps(value)
