"""Engine arguments, environment and packages that a method can, or cannot, live with."""

from typing import Any

import pytest

from autotune.core.methods import METHODS
from autotune.core.study import Search
from autotune.preflight import Severity
from tests.preflight.folders import (
    CPU,
    GPU,
    HEAD,
    candidate,
    facts,
    model,
    only,
    said,
    study,
)

V1 = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
V2 = {"VLLM_USE_V2_MODEL_RUNNER": "1"}
REJECT, WARN = Severity.REJECT_CANDIDATE, Severity.WARN


def test_suffix_without_its_package_is_skipped_with_the_install_line() -> None:
    """Asked of the engine's own Python; the other candidates go on."""
    found = facts(candidate("suffix"), candidate("ngram", name="n"))
    finding = only(found, "package_there")
    assert (finding.severity, finding.candidate) == (REJECT, "c")
    assert "pip install arctic-inference==0.1.1" in finding.remedy
    there = {**GPU, "arctic-inference": "0.1.1"}
    assert said(facts(candidate("suffix"), probe=there), "package_there") == []


def test_an_engine_that_could_not_be_asked_is_no_reason_to_refuse() -> None:
    """A container: whether it has the package shows at the start."""
    probe = {"vllm": "unknown", "device": "NVIDIA Test"}
    assert only(facts(candidate("suffix"), probe=probe), "package_there").severity is WARN


def test_a_method_that_vllm_has_dropped_is_refused() -> None:
    """The name is still known to it, the code is gone; a newer version may have it again."""
    assert only(facts(candidate("mlp_speculator")), "method_there").severity is REJECT
    newer = {**GPU, "vllm": "0.40.0"}
    found = facts(candidate("mlp_speculator"), probe=newer)
    assert only(found, "method_there").severity is WARN


@pytest.mark.parametrize(
    ("method", "probe", "env", "refused"),
    [
        ("dspark", CPU, {}, True),
        ("dspark", GPU, V1, True),
        ("dspark", GPU, {}, False),
        ("suffix", GPU, V2, True),
        ("medusa", GPU, V2, True),
        ("medusa", CPU, {}, False),
        ("eagle", GPU, V2, False),
        ("ngram_gpu", CPU, {}, True),
        ("ngram_gpu", GPU, {}, False),
    ],
)
def test_a_method_runs_where_its_model_runner_does(
    *, method: str, probe: dict[str, str], env: dict[str, str], refused: bool
) -> None:
    """DSpark is part of the V2 one alone, suffix and Medusa of V1."""
    found = said(facts(candidate(method), probe=probe, env=env), "method_there")
    assert [f.severity for f in found] == ([REJECT] if refused else [])


@pytest.mark.parametrize(
    ("method", "draft_size", "target_size", "refused"),
    [
        ("eagle", 2, 1, True),
        ("eagle", 1, 4, False),
        ("eagle", 4, 4, False),
        ("draft_model", 1, 4, True),
        ("draft_model", 4, 4, False),
    ],
)
def test_a_draft_is_split_as_vllm_allows(
    *, method: str, draft_size: int, target_size: int, refused: bool
) -> None:
    """1 or the target's; a draft model under the target's alone, which shows late at the engine."""
    one = candidate(method, draft_tensor_parallel_size=draft_size)
    found = said(facts(one, tensor_parallel_size=target_size), "tensor_parallel")
    assert [f.severity for f in found] == ([REJECT] if refused else [])


@pytest.mark.parametrize(
    ("method", "probe", "severity"),
    [
        ("ngram", GPU, None),
        ("draft_model", GPU, None),
        ("eagle3", GPU, WARN),
        ("eagle3", CPU, REJECT),
        ("dflash", GPU, WARN),
        ("mtp", GPU, WARN),
    ],
)
def test_pipeline_stages_are_judged_by_what_a_draft_wants_of_them(
    method: str, probe: dict[str, str], severity: Severity | None
) -> None:
    """Nothing, the embeddings, or hidden states of layers that lie elsewhere."""
    found = facts(candidate(method), probe=probe, pipeline_parallel_size=2)
    told = [f.severity for f in said(found, "pipeline_parallel")]
    assert told == ([severity] if severity else [])
    assert said(facts(candidate(method), probe=probe), "pipeline_parallel") == []


def test_a_head_without_embeddings_cannot_stand_on_another_stage() -> None:
    """It shares the target's, and those are on the first."""
    found = facts(candidate("eagle"), draft=model(tensors=HEAD), pipeline_parallel_size=2)
    assert only(found, "pipeline_parallel").severity is REJECT
    own = {**HEAD, "embed_tokens.weight": HEAD["fc.weight"]}
    found = facts(candidate("eagle"), draft=model(tensors=own), pipeline_parallel_size=2)
    assert only(found, "pipeline_parallel").severity is WARN


def test_data_parallel_ranks_cost_launches() -> None:
    """Ranks could not agree on another K, so each K has a launch."""
    assert only(facts(candidate("ngram"), data_parallel_size=2), "data_parallel").severity is WARN


@pytest.mark.parametrize(
    ("method", "settings", "refused"),
    [
        ("ngram", {}, True),
        ("suffix", {}, True),
        ("medusa", {}, True),
        ("ngram_gpu", {}, False),
        ("draft_model", {}, False),
        ("eagle", {}, False),
        ("dspark", {}, False),
        ("eagle", {"disable_padded_drafter_batch": True}, True),
    ],
)
def test_async_scheduling_is_not_forced_on_who_cannot_have_it(
    *, method: str, settings: dict[str, Any], refused: bool
) -> None:
    """Left alone, vLLM switches it off for these by itself."""
    one = candidate(method, **settings)
    found = said(facts(one, async_scheduling=True), "async_scheduling")
    assert [f.severity for f in found] == ([REJECT] if refused else [])
    assert said(facts(one), "async_scheduling") == []


def test_drafts_that_take_slots_keep_the_batch_padded() -> None:
    """A draft model does, an EAGLE head does not."""
    unpadded: dict[str, Any] = {"disable_padded_drafter_batch": True}
    assert only(facts(candidate("draft_model", **unpadded)), "padded_batch").severity is REJECT
    assert said(facts(candidate("eagle", **unpadded)), "padded_batch") == []


@pytest.mark.parametrize(
    ("method", "settings", "config", "refused"),
    [
        ("draft_model", {"parallel_drafting": True}, {}, True),
        ("draft_model", {"parallel_drafting": True}, {"pard_token": 5}, False),
        ("draft_model", {"parallel_drafting": False}, {}, False),
        ("eagle3", {"parallel_drafting": True}, {"ptd_token_id": 0}, False),
        ("dflash", {}, {}, True),
        ("dflash", {}, {"dflash_config": {"mask_token_id": 3}}, False),
        ("dspark", {}, {"dspark_noise_token_id": 3}, False),
    ],
)
def test_parallel_drafts_need_a_mask_token(
    *, method: str, settings: dict[str, Any], config: dict[str, Any], refused: bool
) -> None:
    """The message has all the keys that vLLM looks for."""
    found = said(facts(candidate(method, **settings), draft=model(**config)), "mask_token")
    assert [("mask_token_id" in f.evidence, f.severity) for f in found] == (
        [(True, REJECT)] if refused else []
    )


def test_parallel_drafting_needs_the_older_runner() -> None:
    """Told, and refused where the environment forces the newer one; blocks are another matter."""
    pard = candidate("eagle3", parallel_drafting=True)
    assert only(facts(pard), "parallel_runner").severity is WARN
    assert only(facts(pard, env=V2), "parallel_runner").severity is REJECT
    assert said(facts(candidate("dflash"), env=V2), "parallel_runner") == []


def test_a_draft_with_mrope_is_refused_and_images_are_warned_of() -> None:
    """Of drafts that take slots of the batch; EAGLE heads take part in both."""
    mrope = model(rope_scaling={"type": "default", "mrope_section": [16, 24, 24]})
    assert only(facts(candidate("draft_model"), draft=mrope), "multimodal").severity is REJECT
    assert said(facts(candidate("eagle"), draft=mrope), "multimodal") == []
    seeing = model(vision_config={"depth": 2})
    found = only(facts(candidate("draft_model"), target=seeing), "multimodal")
    assert found.severity is WARN
    assert "the draft sees the text alone" in found.evidence


def test_a_draft_beside_a_quantized_target_is_warned_of() -> None:
    """What the crash would look like is in the remedy."""
    target = model(quantization_config={"quant_method": "fp8"})
    finding = only(facts(candidate("eagle"), target=target), "quantized_draft")
    assert finding.severity is WARN
    assert "the target is quantized (fp8), the draft is not" in finding.evidence
    own = model(quantization_config={"quant_method": "fp8"})
    assert said(facts(candidate("eagle"), target=target, draft=own), "quantized_draft") == []
    asked = candidate("eagle", quantization="fp8")
    assert said(facts(asked, target=target), "quantized_draft") == []


@pytest.mark.parametrize(
    ("asked", "own", "refused"),
    [
        ("fp8", "awq", True),
        ("gptq_marlin", "gptq", False),
        ("compressed-tensors", "compressed-tensors", False),
    ],
)
def test_a_quantization_that_the_checkpoint_contradicts_is_refused(
    *, asked: str, own: str, refused: bool
) -> None:
    """Kernels of the same format are no contradiction."""
    draft = model(quantization_config={"quant_method": own})
    found = said(
        facts(candidate("draft_model", quantization=asked), draft=draft), "quantized_draft"
    )
    assert [f.severity for f in found] == ([REJECT] if refused else [])


def test_a_search_over_utilizations_that_are_overridden_is_refused() -> None:
    """All its points would be the same engine; one value is only told."""
    several = Search(gpu_memory_utilization=(0.5, 0.9))
    spec = study(candidate("ngram"), search=several, kv_cache_memory_bytes=1 << 30)
    finding = only(facts(spec=spec), "utilization_overridden")
    assert finding.severity is Severity.REJECT_STUDY
    assert "kv_cache_memory_bytes" in finding.evidence
    single = facts(candidate("ngram"), kv_cache_memory_bytes=1 << 30)
    assert only(single, "utilization_overridden").severity is WARN


def test_the_variable_of_the_cpu_build_overrides_too() -> None:
    """On a GPU nobody reads it."""
    env = {"VLLM_CPU_KVCACHE_SPACE": "4"}
    found = facts(candidate("ngram"), probe=CPU, env=env)
    assert "VLLM_CPU_KVCACHE_SPACE" in only(found, "utilization_overridden").evidence
    assert said(facts(candidate("ngram"), probe=GPU, env=env), "utilization_overridden") == []


def test_what_the_table_of_methods_says_holds_together() -> None:
    """Heads have signs where vLLM makes a class of their name, blocks are heads, and so on."""
    for row in METHODS.values():
        assert not row.block or (row.head and row.signs), row.name
        assert not row.aux_layers or row.head, row.name
        assert not (row.head and row.same_vocabulary), row.name
        assert row.needs_model or row.target_owns_draft or not row.has_weights, row.name
