"""Rules of thumb: they warn, and refuse nothing."""

import pytest

from autotune.preflight import RULES, Severity, findings
from autotune.preflight.checkpoint import Checkpoint, Tensor
from tests.preflight.folders import HEAD, candidate, facts, layers, model, only, said


def sized(billions: float) -> Checkpoint:
    """A model of so many parameters."""
    return model(tensors={"w": Tensor(dtype="BF16", shape=(int(billions * 1e9),))})


@pytest.mark.parametrize(
    ("target", "draft", "most"),
    [
        (7, 0.5, None),
        (7, 1.5, "1B"),
        (13, 3, None),
        (13, 4, "3B"),
        (70, 7, None),
        (70, 8, "7B"),
        (0.135, 0.1, None),
    ],
)
def test_a_draft_has_a_size_for_each_target(target: float, draft: float, most: str | None) -> None:
    """7B: up to 1B, 13B: up to 3B, 70B: up to 7B; below 1B nobody has a table."""
    found = said(
        facts(candidate("draft_model"), target=sized(target), draft=sized(draft)), "draft_size"
    )
    assert [f.severity for f in found] == ([Severity.WARN] if most else [])
    assert all(f"up to {most}" in f.remedy for f in found)


@pytest.mark.parametrize(("ratio", "told"), [(5.0, False), (3.2, True), (1.0, True)])
def test_a_draft_that_costs_a_fifth_or_more_is_told(*, ratio: float, told: bool) -> None:
    """By its weights, which is what decoding reads."""
    found = said(facts(candidate("draft_model"), target=sized(ratio), draft=sized(1)), "draft_cost")
    assert [f"{ratio:.1f} times" in f.evidence for f in found] == ([True] if told else [])


def test_another_family_is_told() -> None:
    """Of draft models; heads have a type of their own."""
    other = model(model_type="qwen3")
    finding = only(facts(candidate("draft_model"), draft=other), "same_family")
    assert "family qwen3, the target of llama" in finding.evidence
    assert said(facts(candidate("eagle"), draft=other), "same_family") == []


def test_a_window_that_chat_rarely_matches_is_told() -> None:
    """vLLM's own default is 5 and 5."""
    wide = candidate("ngram", prompt_lookup_min=5, prompt_lookup_max=5)
    assert only(facts(wide), "ngram_window").severity is Severity.WARN
    usual = candidate("ngram", prompt_lookup_min=1, prompt_lookup_max=4)
    assert said(facts(usual), "ngram_window") == []


def test_advice_refuses_nothing() -> None:
    """A draft as large as its target, of another family."""
    found = facts(candidate("draft_model"), target=sized(7), draft=sized(7))
    advice = {"draft_size", "draft_cost", "same_family", "ngram_window"}
    assert {f.severity for f in findings(found) if f.rule in advice} == {Severity.WARN}


def test_every_rule_has_a_name_of_its_own_and_a_sentence() -> None:
    """What is printed names the rule; its sentence is what should hold."""
    names = [rule.__name__ for rule in RULES]
    assert len(set(names)) == len(names)
    assert all((rule.__doc__ or "").endswith(".") for rule in RULES)


def test_a_sound_study_has_nothing_against_it() -> None:
    """A head, a model, a lookup as they should be: not even a warning."""
    draft = facts(candidate("draft_model", 2), draft=model(tensors=layers(1, hidden=8)))
    head = facts(candidate("eagle", 2), draft=model(tensors=HEAD))
    lookup = facts(candidate("ngram", 2, prompt_lookup_min=1, prompt_lookup_max=3))
    assert [findings(found) for found in (draft, head, lookup)] == [[], [], []]
