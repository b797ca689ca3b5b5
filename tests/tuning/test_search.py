"""What is proposed next: never twice, never refused, and the same after a restart."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from autotune.core.axes import Axis, Choices, FloatRange, IntRange
from autotune.core.space import is_legal, variant
from autotune.core.study import SAMPLERS, Candidate, Constraint, Objective, Search, StudySpec
from autotune.core.trial import BASELINE, Record, Stage
from autotune.tuning import search
from autotune.tuning.search import propose
from tests.builders import BASE, GMU, make_failure, make_record, make_spec

BEST = 13


def lookup(**space: Axis) -> Candidate:
    """A lookup with these ranges."""
    return Candidate(name="ngram", method="ngram", space=space)


WIDE = lookup(
    prompt_lookup_min=IntRange(low=1, high=20), prompt_lookup_max=IntRange(low=1, high=20)
)
NARROW = lookup(prompt_lookup_max=IntRange(low=2, high=5))


def study(
    candidate: Candidate, *, sampler: str = "tpe", variants: int = 4, seed: int = 0
) -> StudySpec:
    """A study of one candidate."""
    chosen = Search(
        gpu_memory_utilization=(GMU,), sampler=sampler, max_variants=variants, seed=seed
    )
    return make_spec(candidates=(candidate,), search=chosen)


def measured(candidate: Candidate, *, failed: bool = False) -> Record:
    """A launch of a variant: the nearer its window ends to BEST, the faster."""
    largest = candidate.settings["prompt_lookup_max"]
    assert isinstance(largest, int | float)
    gain = 1.5 - 0.02 * abs(largest - BEST)
    made = make_record(
        "ngram",
        2,
        Stage.REFINE,
        tput={c: gain * value for c, value in BASE.items()},
        outcome=make_failure() if failed else None,
    )
    trial = replace(
        made.trial,
        candidate=candidate.name,
        method=candidate.method,
        settings=candidate.settings,
        variant_of=candidate.variant_of,
    )
    return replace(made, trial=trial, launch_id=candidate.name)


def play(spec: StudySpec, records: Sequence[Record] = (), most: int = 40) -> list[str]:
    """The variants that are launched, to the end."""
    known = [make_record(BASELINE, 0), *records]
    names: list[str] = []
    while (new := propose(spec, known, spec.candidates[0])) and len(names) < most:
        names.append(new.name)
        assert is_legal(spec.target, new)
        known.append(measured(new))
    return names


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_no_variant_twice_none_refused_and_no_more_than_asked_for(sampler: str) -> None:
    """The first is in the middle, the others are the sampler's."""
    if sampler == "gp":
        pytest.importorskip("torch")
    names = play(study(WIDE, sampler=sampler, variants=6))
    assert names[0] == "ngram(prompt_lookup_min=10,prompt_lookup_max=10)"
    assert len(names) == len(set(names)) == 6


@pytest.mark.parametrize("sampler", ["tpe", "qmc", "random"])
def test_a_resumed_study_asks_what_the_uninterrupted_one_asks(sampler: str) -> None:
    """Whenever it is interrupted; another seed asks something else."""
    spec = study(WIDE, sampler=sampler, variants=7)
    whole = play(spec)
    for done in range(1, 7):
        known = [variant(WIDE, values) for values in map(_values, whole[:done])]
        assert play(spec, [measured(c) for c in known]) == whole[done:]
    assert play(study(WIDE, sampler=sampler, variants=7, seed=1)) != whole


def _values(name: str) -> dict[str, int]:
    """The values that a variant's name says."""
    pairs = (part.split("=") for part in name.partition("(")[2].rstrip(")").split(","))
    return {key: int(value) for key, value in pairs}


def test_a_small_space_is_tried_whole_in_an_order_that_covers_it() -> None:
    """No sampler is asked where everything is measured anyway."""
    assert play(study(NARROW)) == [f"ngram(prompt_lookup_max={n})" for n in (3, 5, 2, 4)]


def test_a_grid_covers_a_large_space_from_its_corners() -> None:
    """The corner that vLLM would refuse is none of them."""
    names = play(study(WIDE, sampler="grid"))
    corners = [_values(name) for name in names[1:]]
    assert {tuple(c.values()) for c in corners} >= {(1, 1), (20, 20), (1, 20)}


def test_the_model_finds_the_better_half() -> None:
    """What has been measured counts: tpe ends nearer to the best window than where it began."""
    names = play(study(WIDE, variants=14))
    ends = [abs(_values(name)["prompt_lookup_max"] - BEST) for name in names]
    assert min(ends[1:]) <= 1
    assert sum(ends[7:]) / len(ends[7:]) < sum(ends[:7]) / 7


def slow_to_begin(record: Record) -> Record:
    """The longer its window, the later the first token."""
    assert record.measurement
    window = record.trial.settings["prompt_lookup_max"]
    assert isinstance(window, int)
    passes = tuple(
        replace(p, times=replace(p.times, ttft_ms=(20.0 * window,) * p.requests))
        for p in record.measurement.passes
        if p.times
    )
    return replace(record, outcome=replace(record.measurement, passes=passes))


def test_what_breaks_a_constraint_is_avoided() -> None:
    """Windows above 8 are the faster ones, and begin too late."""

    def kept(*constraints: Constraint) -> int:
        objective = Objective(constraints=constraints)
        spec = replace(study(WIDE, variants=20), objective=objective)
        known = [make_record(BASELINE, 0)]
        while new := propose(spec, known, WIDE):
            known.append(slow_to_begin(measured(new)))
        windows = [r.trial.settings["prompt_lookup_max"] for r in known[1:]]
        return sum(isinstance(window, int) and window <= 8 for window in windows)

    assert kept(Constraint(metric="p99_ttft_ms", upper=160.0)) >= 2 * kept() > 0


def test_a_failed_variant_is_known_and_not_proposed_again() -> None:
    """It counts as a launch, and is no number."""
    spec, first = study(NARROW), variant(NARROW, {"prompt_lookup_max": 3})
    names = play(spec, [measured(first, failed=True)])
    assert names == [f"ngram(prompt_lookup_max={n})" for n in (5, 2, 4)]


def test_real_numbers_and_words_are_axes_too() -> None:
    """Of every kind of axis something comes back that is on it."""
    candidate = Candidate(
        name="ngram",
        method="ngram",
        settings={"prompt_lookup_min": 1, "prompt_lookup_max": 3},
        space={
            "a": FloatRange(low=0.001, high=1.0, log=True),
            "b": Choices(values=("x", None, "y")),
            "engine_args.max_num_seqs": Choices(values=(4, 8)),
        },
    )
    spec = study(candidate, variants=8)
    known = [make_record(BASELINE, 0)]
    for _ in range(8):
        new = propose(spec, known, candidate)
        assert new
        a, seqs = new.settings["a"], new.engine_args["max_num_seqs"]
        assert candidate.space["a"].holds(a)
        assert float(f"{a:.6g}") == a
        assert (new.settings.get("b"), seqs) in {(b, s) for b in ("x", "y", None) for s in (4, 8)}
        trial = replace(measured(new).trial, engine_args=new.engine_args)
        known.append(replace(measured(new), trial=trial))
    assert propose(spec, known, candidate) is None


def test_a_stubborn_sampler_costs_no_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it answers with what is known already, the nearest untried variant is taken."""
    spec = study(lookup(prompt_lookup_max=IntRange(low=1, high=30)), variants=3)
    monkeypatch.setattr(search, "QUESTIONS", 1)
    names = play(spec)
    assert len(names) == len(set(names)) == 3


def test_a_candidate_without_ranges_has_no_next_variant() -> None:
    """It is what it is."""
    plain = Candidate(name="suffix", method="suffix")
    assert propose(study(plain), [], plain) is None
