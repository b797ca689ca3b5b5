"""Requests that are too long for the draft, or carry what is refused while drafting."""

from dataclasses import replace
from typing import Any

import pytest

from autotune.core.jsontype import JSON
from autotune.core.study import StudySpec
from autotune.preflight import Severity
from autotune.preflight.checkpoint import Checkpoint
from tests.preflight.folders import CPU, GPU, candidate, facts, layers, model, only, said, study

WARN = Severity.WARN


def with_min_p(value: JSON) -> Checkpoint:
    """A target whose own defaults have it."""
    return replace(model(), generation={"min_p": value})


@pytest.mark.parametrize(
    ("value", "args", "refused"),
    [
        (0.05, {}, True),
        (0, {}, False),
        (None, {}, False),
        (0.05, {"generation_config": "vllm"}, False),
        (0.05, {"override_generation_config": {"min_p": 0}}, False),
        (None, {"override_generation_config": {"min_p": 0.1}}, True),
    ],
)
def test_min_p_of_the_model_s_own_defaults_ends_the_study(
    *, value: JSON, args: dict[str, Any], refused: bool
) -> None:
    """Every request would be refused while drafting; the remedy changes both arms alike."""
    found = said(facts(candidate("ngram"), target=with_min_p(value), **args), "default_min_p")
    assert [f.severity for f in found] == ([Severity.REJECT_STUDY] if refused else [])
    assert all("generation_config: vllm" in f.remedy for f in found)


def test_logits_processors_of_the_server_end_the_study_on_the_v1_runner() -> None:
    """On the V2 runner only methods that do not run there are out."""
    own: dict[str, Any] = {"logits_processors": ["my.Processor"]}
    (finding,) = said(facts(candidate("ngram"), probe=CPU, **own), "logits_processors")
    assert finding.severity is Severity.REJECT_STUDY
    suffix, eagle = candidate("suffix"), candidate("eagle", name="e")
    found = said(facts(suffix, eagle, probe=GPU, **own), "logits_processors")
    assert [(f.severity, f.candidate) for f in found] == [
        (Severity.REJECT_CANDIDATE, "c"),
        (WARN, None),
    ]


def counted(*lengths: int, method: str = "draft_model", **settings: Any) -> StudySpec:  # noqa: ANN401
    """A study whose prompts have these tokens in turn."""
    spec = study(candidate(method, 2, 4, **settings))
    prompts = tuple(
        replace(prompt, tokens=lengths[i % len(lengths)])
        for i, prompt in enumerate(spec.workload.search)
    )
    return replace(spec, workload=replace(spec.workload, search=prompts))


def short(length: int, **config: Any) -> Checkpoint:  # noqa: ANN401
    """A draft with that context."""
    return model(tensors=layers(1), max_position_embeddings=length, **config)


def test_a_draft_that_some_requests_outgrow_is_warned_of() -> None:
    """The longest request with its reply counts; what follows depends on the model runner."""
    outgrown = counted(100, 900)
    finding = only(facts(spec=outgrown, draft=short(512), probe=CPU), "draft_context")
    assert finding.severity is WARN
    assert "512 tokens, and prompts with their replies up to 964" in finding.evidence
    assert "nothing is drafted for the whole batch" in finding.remedy
    newer = only(facts(spec=outgrown, draft=short(512)), "draft_context")
    assert "drafts on beyond it" in newer.remedy
    assert said(facts(spec=counted(100, 440), draft=short(512)), "draft_context") == []


def test_a_draft_that_no_prompt_fits_is_refused() -> None:
    """It would never draft, with the V1 runner."""
    finding = only(facts(spec=counted(600, 900), draft=short(512), probe=CPU), "draft_context")
    assert finding.severity is Severity.REJECT_CANDIDATE
    assert "the shortest prompt 600" in finding.evidence


def test_uncounted_prompts_leave_the_two_contexts() -> None:
    """The target's max_model_len is what requests may come to."""
    finding = only(facts(candidate("draft_model"), draft=short(512)), "draft_context")
    assert "512 tokens, and the target's 1024" in finding.evidence


def test_a_scaled_context_counts_as_long_as_it_is() -> None:
    """Linear scaling lengthens what max_position_embeddings says, yarn has done so already."""
    linear = short(512, rope_scaling={"type": "linear", "factor": 4.0})
    yarn = short(512, rope_parameters={"rope_type": "yarn", "factor": 4.0})
    assert (linear.context, yarn.context) == (2048, 512)


def test_a_head_is_stretched_and_may_be_accepted_less() -> None:
    """EAGLE heads get the target's positions; the V1 runner stops at their own all the same."""
    spec = counted(900, method="eagle")
    finding = only(facts(spec=spec, draft=short(512)), "draft_context")
    assert finding.severity is WARN
    assert "vLLM stretches it" in finding.remedy
    older = only(facts(spec=spec, draft=short(512), probe=CPU), "draft_context")
    assert older.severity is Severity.REJECT_CANDIDATE


@pytest.mark.parametrize(
    ("asked", "refused", "named"),
    [
        (1000, True, "the draft's own context, 512"),
        (4096, True, "the draft's own context, 512 and the target's, 1024"),
        (256, False, "switches drafting off for longer requests"),
    ],
)
def test_max_model_len_of_a_draft_is_no_switch(*, asked: int, refused: bool, named: str) -> None:
    """Too large is refused by vLLM; smaller is for its tests."""
    one = candidate("draft_model", max_model_len=asked)
    finding = only(facts(one, draft=short(512)), "length_switch")
    assert finding.severity is (Severity.REJECT_CANDIDATE if refused else WARN)
    assert named in finding.evidence
