"""Axes, variants, and what a stored trial is a variant of."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.core.axes import Axis, Choices, FloatRange, IntRange, start
from autotune.core.jsontype import JSON
from autotune.core.space import (
    default_variant,
    farthest,
    is_countable,
    is_legal,
    meant_by,
    points,
    screened_variant,
    values_of,
    variant,
    with_variants,
)
from autotune.core.study import Candidate, StudySpec, Target
from autotune.core.trial import Record, Stage, Trial
from tests.builders import make_record, make_spec

TARGET = Target(model="/m", engine_args={"max_num_batched_tokens": 64})
LOOKUP = Candidate(
    name="ngram",
    method="ngram",
    settings={"prompt_lookup_min": 2},
    space={"prompt_lookup_max": IntRange(low=2, high=6)},
)
WINDOW = replace(
    LOOKUP,
    settings={},
    space={
        "prompt_lookup_min": IntRange(low=4, high=6),
        "prompt_lookup_max": IntRange(low=3, high=5),
    },
)
HEAD = Candidate(
    name="eagle",
    method="eagle",
    model="/models/eagle",
    space={
        "draft_sample_method": Choices(values=("probabilistic", "greedy"), default="greedy"),
        "engine_args.max_num_seqs": IntRange(low=8, high=128, log=True),
    },
)


def study(*candidates: Candidate) -> StudySpec:
    """A study of these candidates alone."""
    return make_spec(candidates=candidates, target=TARGET)


def trial(candidate: Candidate, stage: Stage = Stage.SCREEN) -> Trial:
    """The trial of a launch of this candidate at K = 2."""
    return Trial(
        candidate=candidate.name,
        method=candidate.method,
        model=candidate.model,
        weights=candidate.weights,
        num_speculative_tokens=2,
        gpu_memory_utilization=0.4,
        settings=candidate.settings,
        engine_args=candidate.engine_args,
        variant_of=candidate.variant_of,
        stage=stage,
    )


def record(candidate: Candidate, stage: Stage = Stage.SCREEN) -> Record:
    """A measurement of this candidate."""
    return replace(make_record(candidate.family, 2), trial=trial(candidate, stage))


@pytest.mark.parametrize(
    ("axis", "first", "grid"),
    [
        (IntRange(low=2, high=6), 4, (2, 4, 6)),
        (IntRange(low=2, high=6, default=5), 5, (2, 4, 6)),
        (IntRange(low=2, high=6, default=9), 4, (2, 4, 6)),
        (IntRange(low=1, high=2), 1, (1, 2)),
        (IntRange(low=1, high=10, step=4), 5, (1, 5, 9)),
        (IntRange(low=1, high=64, log=True), 8, (1, 8, 64)),
        (FloatRange(low=0.0, high=1.0), 0.5, (0.0, 0.5, 1.0)),
        (FloatRange(low=0.1, high=0.5, step=0.1), 0.3, (0.1, 0.3, 0.5)),
        (FloatRange(low=0.01, high=1.0, log=True), 0.1, (0.01, 0.1, 1.0)),
        (Choices(values=(8, 2, 4)), 4, (2, 4, 8)),
        (Choices(values=("b", "a"), default="a"), "a", ("b", "a")),
        (Choices(values=("fp8", None)), None, ("fp8", None)),
        (Choices(values=("b", "a")), "b", ("b", "a")),
    ],
)
def test_an_axis_begins_at_the_engines_own_value_or_in_the_middle(
    axis: Axis, first: object, grid: tuple[object, ...]
) -> None:
    """What is tried first, and three values that stand for all."""
    assert start(axis) == first
    assert axis.grid(3) == (pytest.approx(grid) if isinstance(axis, FloatRange) else grid)


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: IntRange(low=3, high=3), "need low < high"),
        (lambda: IntRange(low=3, high=5, step=3), r"lies in \[1, high - low\], got 3"),
        (lambda: IntRange(low=0, high=5, log=True), "begins above 0"),
        (lambda: IntRange(low=1, high=5, step=2, log=True), "has no step"),
        (lambda: FloatRange(low=0.0, high=0.2, step=0.5), "got 0.5"),
        (lambda: FloatRange(low=0.1, high=0.2, step=0.05, log=True), "has no step"),
        (lambda: Choices(values=(1,)), "needs two values"),
        (lambda: Choices(values=(1, 2, 1)), "repeated: 1"),
    ],
)
def test_an_axis_of_fewer_than_two_values_is_refused(make: object, rule: str) -> None:
    """The rule and the numbers are in the message."""
    assert callable(make)
    with pytest.raises(ValueError, match=rule):
        make()


def test_true_is_not_one() -> None:
    """Python takes True for 1, a file does not."""
    assert Choices(values=(True, 1)).size == 2
    assert not Choices(values=(1, 2)).holds(True)  # noqa: FBT003 - the value in question
    assert not IntRange(low=0, high=2).holds(True)  # noqa: FBT003


def test_a_variant_is_a_candidate_with_a_name_that_says_its_values() -> None:
    """Settings merged, no ranges left, and the family known."""
    made = variant(LOOKUP, {"prompt_lookup_max": 4})
    assert made.name == "ngram(prompt_lookup_max=4)"
    assert (made.family, made.space) == ("ngram", {})
    assert made.settings == {"prompt_lookup_min": 2, "prompt_lookup_max": 4}
    head = variant(HEAD, {"draft_sample_method": "greedy", "engine_args.max_num_seqs": 16})
    assert head.name == "eagle(draft_sample_method=greedy,max_num_seqs=16)"
    assert (head.settings, head.engine_args) == (
        {"draft_sample_method": "greedy"},
        {"max_num_seqs": 16},
    )


def test_a_bound_that_is_left_out_follows_the_one_that_is_searched() -> None:
    """As vLLM fills the n-gram window."""
    made = variant(replace(LOOKUP, settings={}), {"prompt_lookup_max": 4})
    assert made.settings == {"prompt_lookup_min": 4, "prompt_lookup_max": 4}


def test_none_leaves_a_setting_out() -> None:
    """A list may say that the setting is not there."""
    head = replace(HEAD, space={"quantization": Choices(values=("fp8", None))})
    made = variant(head, {"quantization": None})
    assert (made.name, made.settings) == ("eagle(quantization=none)", {})


def test_what_the_engine_refuses_is_no_variant() -> None:
    """The window's order, and the target's arguments beside the candidate's own."""
    assert points(TARGET, WINDOW) == (
        {"prompt_lookup_min": 4, "prompt_lookup_max": 4},
        {"prompt_lookup_min": 4, "prompt_lookup_max": 5},
        {"prompt_lookup_min": 5, "prompt_lookup_max": 5},
    )
    # The middle, 5 and 4, is none of them.
    first = default_variant(TARGET, WINDOW)
    assert first.settings == {"prompt_lookup_min": 4, "prompt_lookup_max": 4}
    assert {p["engine_args.max_num_seqs"] for p in points(TARGET, HEAD)} == set(range(8, 65))
    tensor = {"draft_tensor_parallel_size": Choices(values=(1, 2, 4))}
    twice = replace(TARGET, engine_args={"tensor_parallel_size": 2})
    for method, legal in (("eagle", [1, 2]), ("draft_model", [2])):
        found = points(twice, replace(HEAD, method=method, space=tensor))
        assert [p["draft_tensor_parallel_size"] for p in found] == legal


def test_a_space_without_a_legal_combination_says_so() -> None:
    """A bug in whoever checks files, not something to launch."""
    nothing = replace(WINDOW, space={**WINDOW.space, "prompt_lookup_min": IntRange(low=6, high=9)})
    assert points(TARGET, nothing) == ()
    with pytest.raises(ValueError, match="'ngram' is allowed"):
        default_variant(TARGET, nothing)


def test_a_space_too_large_to_list_is_covered_evenly() -> None:
    """Real numbers, or very many whole ones, are stood for by a few."""
    large = replace(
        LOOKUP,
        method="suffix",
        settings={},
        space={f"x{i}": IntRange(low=0, high=99) for i in "ab"},
    )
    real = replace(large, space={"suffix_decoding_min_token_prob": FloatRange(low=0.0, high=1.0)})
    assert not is_countable(large)
    assert len(points(TARGET, large)) == 49
    assert [p["suffix_decoding_min_token_prob"] for p in points(TARGET, real)] == pytest.approx(
        [i / 6 for i in range(7)], abs=1e-6
    )


def test_few_points_cover_a_range_from_its_ends() -> None:
    """After the middle come the ends, then what lies between."""
    left, taken = list(points(TARGET, LOOKUP)), [points(TARGET, LOOKUP)[2]]
    while left:
        left = [p for p in left if p not in taken]
        new = farthest(LOOKUP, left, taken)
        taken += [new] if new else []
    assert [p["prompt_lookup_max"] for p in taken] == [4, 2, 6, 3, 5]


widths = st.integers(1, 5)


@given(st.integers(1, 9), widths, st.integers(1, 9), widths)
def test_every_point_is_legal_and_is_recognised(low: int, wide: int, high: int, far: int) -> None:
    """Whatever the window's ranges: a variant's trial is that variant again."""
    space: dict[str, Axis] = {
        "prompt_lookup_min": IntRange(low=low, high=low + wide),
        "prompt_lookup_max": IntRange(low=high, high=high + far),
    }
    candidate = replace(WINDOW, space=space)
    for values in points(TARGET, candidate):
        made = variant(candidate, values)
        assert is_legal(TARGET, made)
        assert values_of(candidate, trial(made)) == values
        assert meant_by(study(candidate), trial(made)) == made


def fixed(largest: int, smallest: int = 2) -> Candidate:
    """The lookup with one window."""
    window: dict[str, JSON] = {"prompt_lookup_min": smallest, "prompt_lookup_max": largest}
    return Candidate(name="ngram", method="ngram", settings=window)


def test_measurements_outlive_changes_of_the_ranges() -> None:
    """Widened, narrowed, given up, taken up or renamed: what is inside keeps what was measured."""
    old = trial(variant(LOOKUP, {"prompt_lookup_max": 4}))
    wider = replace(LOOKUP, space={"prompt_lookup_max": IntRange(low=1, high=9)})
    listed = replace(LOOKUP, space={"prompt_lookup_max": Choices(values=(4, 8))})
    both = replace(WINDOW, space={**WINDOW.space, "prompt_lookup_min": IntRange(low=1, high=4)})
    names = {
        "ngram(prompt_lookup_max=4)": (LOOKUP, wider, listed),
        "ngram(prompt_lookup_min=2,prompt_lookup_max=4)": (both,),
        "ngram": (fixed(4),),
        "lookup(prompt_lookup_max=4)": (replace(LOOKUP, name="lookup"),),
    }
    for name, candidates in names.items():
        for candidate in candidates:
            found = meant_by(study(candidate), old)
            assert found
            assert found.name == name
    narrower = replace(LOOKUP, space={"prompt_lookup_max": IntRange(low=5, high=9)})
    for other in (narrower, fixed(5), fixed(4, 3), replace(LOOKUP, settings={})):
        assert meant_by(study(other), old) is None
    assert meant_by(study(LOOKUP), trial(fixed(5))) == variant(LOOKUP, {"prompt_lookup_max": 5})


def test_what_the_engine_took_by_itself_is_a_value_of_the_range() -> None:
    """A field that is first left out and then searched has its default as what was measured."""
    before = Candidate(name="eagle", method="eagle", model="/models/eagle")
    axis = HEAD.space["draft_sample_method"]
    found = meant_by(study(replace(HEAD, space={"draft_sample_method": axis})), trial(before))
    assert found
    assert found.name == "eagle(draft_sample_method=greedy)"
    unknown = replace(HEAD, space={"quantization": Choices(values=("fp8", "awq"))})
    assert meant_by(study(unknown), trial(before)) is None


def test_the_known_variants_take_the_place_of_their_candidate() -> None:
    """Whatever compares candidates sees what was launched, the first one in any case."""
    plain = fixed(3)
    plain = replace(plain, name="plain")
    spec = study(LOOKUP, plain)
    two, six = (variant(LOOKUP, {"prompt_lookup_max": n}) for n in (2, 6))
    assert [c.name for c in with_variants(spec, []).candidates] == [
        "ngram(prompt_lookup_max=4)",
        "plain",
    ]
    found = with_variants(spec, [record(two), record(plain)], six)
    assert [c.name for c in found.candidates] == [two.name, six.name, "plain"]
    assert with_variants(found, [record(two)]) is found
    assert with_variants(study(plain), []) == study(plain)


def test_a_variant_that_was_screened_stays_the_first_one() -> None:
    """A change of the ranges that moves their middle does not pay another screening."""
    two = variant(LOOKUP, {"prompt_lookup_max": 2})
    assert screened_variant(study(LOOKUP), [record(two)], LOOKUP) == two
    later = record(two, Stage.REFINE)
    assert screened_variant(study(LOOKUP), [later], LOOKUP).name == "ngram(prompt_lookup_max=4)"
    assert math.isclose(LOOKUP.space["prompt_lookup_max"].place(3), 0.25)
