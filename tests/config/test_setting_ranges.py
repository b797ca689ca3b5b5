"""Candidates with lists and ranges, and fields that only the installed vLLM knows."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from autotune.config import load
from autotune.core.axes import Axis, Choices, FloatRange, IntRange
from autotune.core.jsontype import JSON
from autotune.core.study import Candidate
from autotune.errors import CandidatesFileError, Fault
from tests.config.conftest import PROMPTS

Faults = Callable[..., list[Fault]]
ARGS = "engine_args: {max_model_len: 64}"

# what a candidate says of one key -> its axis, or its value
WRITTEN: list[tuple[str, str, Axis | object]] = [
    ("ngram, prompt_lookup_max: [2, 4, 8]", "prompt_lookup_max", Choices(values=(2, 4, 8))),
    ("ngram, prompt-lookup-max: {low: 2, high: 6}", "prompt_lookup_max", IntRange(low=2, high=6)),
    ("ngram, prompt_lookup_max: [4]", "prompt_lookup_max", 4),
    ("ngram, prompt_lookup_max: {low: 4, high: 4}", "prompt_lookup_max", 4),
    (
        "suffix, suffix_decoding_max_tree_depth: {low: 4, high: 64, log: true}",
        "suffix_decoding_max_tree_depth",
        IntRange(low=4, high=64, log=True, default=24),
    ),
    (
        "suffix, suffix_decoding_max_spec_factor: {low: 1, high: 4, step: 0.5}",
        "suffix_decoding_max_spec_factor",
        FloatRange(low=1.0, high=4.0, step=0.5, default=1.0),
    ),
    (
        "eagle, model: org/x, draft_sample_method: [greedy, probabilistic]",
        "draft_sample_method",
        Choices(values=("greedy", "probabilistic"), default="greedy"),
    ),
    (
        "eagle, model: org/x, quantization: [null, fp8]",
        "quantization",
        Choices(values=(None, "fp8")),
    ),
    (
        "ngram, engine_args: {max-num-seqs: [4, 8]}",
        "engine_args.max_num_seqs",
        Choices(values=(4, 8), default=8),
    ),
]


def loaded(
    folder: Path, text: str, installed: Mapping[str, JSON] | None = None
) -> tuple[Candidate, ...]:
    """The candidates of a file."""
    (folder / "prompts.jsonl").write_text(PROMPTS, encoding="utf-8")
    (folder / "c.yaml").write_text(text, encoding="utf-8")
    asked: list[tuple[str, tuple[str, ...]]] = []

    def fields(engine: str, launcher: tuple[str, ...]) -> Mapping[str, JSON]:
        asked.append((engine, launcher))
        return installed or {}

    found = load(folder / "c.yaml", environ={}, installed=fields).spec.candidates
    assert asked == [("vllm", ())]
    return found


@pytest.mark.parametrize(("given", "key", "expected"), WRITTEN)
def test_lists_and_ranges_become_axes(
    good: str, tmp_path: Path, given: str, key: str, expected: object
) -> None:
    """With what the engine takes by itself; one value is a value."""
    text = good.replace("- name: a\n    method: ngram", f"- {{method: {given}}}")
    (candidate,) = loaded(tmp_path, text.replace(ARGS, "engine_args: {max_num_seqs: 8}"))
    if isinstance(expected, Axis):
        assert candidate.space == {key: expected}
        assert key not in candidate.settings
    else:
        assert candidate.space == {}
        assert candidate.settings[key] == expected


def test_a_candidate_may_have_engine_arguments_of_its_own(good: str, tmp_path: Path) -> None:
    """Fixed ones are no axis."""
    text = good.replace("method: ngram", "method: ngram\n    engine_args: {max_num_seqs: 4}")
    (candidate,) = loaded(tmp_path, text)
    assert (candidate.engine_args, candidate.space) == ({"max_num_seqs": 4}, {})


def test_a_candidate_inside_the_range_of_another_is_a_fault(good: str, faults_of: Faults) -> None:
    """It would be launched twice."""
    ranged = "    method: ngram\n    prompt_lookup_max: {low: 2, high: 6}\n"
    twin = f"{ranged}  - {{name: b, method: ngram, prompt_lookup_max: 5}}\n"
    (fault,) = faults_of(good.replace("    method: ngram\n", twin))
    assert fault.path == "candidates[1]"
    assert "'b' is one of the values that candidates[0] 'a' searches" in fault.message
    beside = twin.replace("prompt_lookup_max: 5", "prompt_lookup_max: 7")
    assert faults_of(good.replace("    method: ngram\n", beside)) == []


@pytest.mark.parametrize(
    ("first", "second", "common"),
    [
        ("{low: 2, high: 6}", "{low: 5, high: 9}", "b(prompt_lookup_max=5)"),
        ("[2, 4]", "[3, 4]", "b(prompt_lookup_max=4)"),
        ("[2, 4]", "{low: 5, high: 9}", None),
        ("{low: 2, high: 6, step: 2}", "[3, 5]", None),
    ],
)
def test_ranges_that_overlap_are_a_fault(
    good: str, faults_of: Faults, first: str, second: str, common: str | None
) -> None:
    """The common value would be launched twice."""
    ranged = f"    method: ngram\n    prompt_lookup_max: {first}\n"
    other = f"  - {{name: b, method: ngram, prompt_lookup_max: {second}}}\n"
    faults = faults_of(good.replace("    method: ngram\n", ranged + other))
    assert [fault.path for fault in faults] == (
        ["candidates[1].prompt_lookup_max"] if common else []
    ), faults
    assert all(f"{common!r} is one of the values that candidates[0]" in f.message for f in faults)


def test_equal_ranges_are_twins(good: str, faults_of: Faults) -> None:
    """As equal settings are."""
    twins = "".join(
        f"  - {{name: {name}, method: ngram, prompt_lookup_max: [2, 4]}}\n" for name in "ab"
    )
    (fault,) = faults_of(good.replace("  - name: a\n    method: ngram\n", twins))
    assert "'b' is the same engine configuration as candidates[0] 'a'" in fault.message


INSTALLED: Mapping[str, JSON] = {
    "method": None,
    "model": None,
    "num_speculative_tokens": None,
    "prompt_lookup_min": None,
    "prompt_lookup_max": None,
    "new_window": 3,
    "relaxed_threshold": 0.5,
    "rejection_sample_method": "standard",
    "target_model_config": None,
}


def test_a_field_that_only_the_installed_version_has_may_be_set(good: str, tmp_path: Path) -> None:
    """The table of this version of autotune is no limit, nor are its defaults."""
    text = good.replace("method: ngram", "method: ngram\n    new-window: {low: 2, high: 5}")
    (candidate,) = loaded(tmp_path, text, INSTALLED)
    assert candidate.space == {"new_window": IntRange(low=2, high=5, default=3)}


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("new_windw", "no field 'new_windw'; did you mean 'new_window'?"),
        ("xyz", "(known: prompt_lookup_min, prompt_lookup_max, new_window, relaxed_threshold)"),
        ("suffix_decoding_min_token_prob", "one of another version: remove it"),
        ("draft_sample_method", "one of another version: remove it"),
        ("relaxed_threshold", "may change how drafts are accepted"),
        ("rejection_sample_method", "how drafts are accepted"),
        ("target_model_config", "vLLM fills it itself"),
    ],
)
def test_a_field_that_the_installed_version_lacks_is_refused(
    good: str, tmp_path: Path, key: str, message: str
) -> None:
    """With the nearest one that it has; and no new way to change the replies slips through."""
    text = good.replace("method: ngram", f"method: ngram\n    {key}: 1")
    with pytest.raises(CandidatesFileError) as caught:
        loaded(tmp_path, text, INSTALLED)
    assert {fault.path for fault in caught.value.faults} == {f"candidates[0].{key}"}
    assert any(message in fault.message for fault in caught.value.faults)


def test_a_sampler_is_known_by_name(good: str, tmp_path: Path, faults_of: Faults) -> None:
    """Whatever Optuna calls otherwise is a fault that lists the names."""
    loaded(tmp_path, good.replace("budget: 18m", "sampler: qmc"))
    (fault,) = faults_of(good.replace("budget: 18m", "sampler: cmaes"))
    assert (fault.path, fault.line) == ("search.sampler", 16)
    assert "'tpe', 'gp', 'qmc', 'random' or 'grid'" in fault.message


def test_what_the_target_contradicts_by_itself_is_said_once(good: str, faults_of: Faults) -> None:
    """At the target, however many candidates there are."""
    args = "engine_args: {max_num_seqs: 8, max_num_batched_tokens: 4}"
    two = "    method: ngram\n  - {name: b, method: suffix}\n"
    (fault,) = faults_of(good.replace(ARGS, args).replace("    method: ngram\n", two))
    assert fault.path == "target.engine_args.max_num_seqs"
    assert "got 8 > 4" in fault.message
