"""Heads that are none, that were made for another target, and MTP layers that are not there."""

from typing import Any

import pytest

from autotune.preflight import Severity
from autotune.preflight.checkpoint import Checkpoint, Tensor
from autotune.preflight.rules.heads import aux_layer_ids, mtp_layers
from tests.preflight.folders import (
    GPU,
    HEAD,
    LLAMA,
    candidate,
    facts,
    layers,
    model,
    only,
    said,
)

EAGLE = model("/models/head", tensors=HEAD, num_hidden_layers=1)
EAGLE3 = model(
    "/models/head3", tensors=HEAD, architectures=["LlamaForCausalLMEagle3"], draft_vocab_size=64
)


@pytest.mark.parametrize("method", ["eagle", "eagle3", "dflash", "dspark", "medusa"])
def test_an_ordinary_model_is_no_head(method: str) -> None:
    """vLLM would find out in the shape of a tensor, when all is loaded."""
    found = facts(candidate(method), draft=model("/models/plain"))
    finding = only(found, "head_checkpoint")
    assert finding.severity is Severity.REJECT_CANDIDATE
    assert f"/models/plain shows no sign of a head for the method {method}" in finding.evidence
    assert "33 tensors" in finding.evidence


def test_what_is_known_by_its_config_alone_is_only_warned_of() -> None:
    """Weights in a format without a header: nothing is proved."""
    found = facts(candidate("eagle"), draft=model(tensors={}))
    assert only(found, "head_checkpoint").severity is Severity.WARN


@pytest.mark.parametrize(
    ("method", "head"),
    [
        ("eagle", EAGLE),
        ("eagle3", EAGLE3),
        ("medusa", model(tensors={"medusa_heads.0.0.linear.weight": HEAD["fc.weight"]})),
        ("medusa", model(tensors={"0.0.linear.weight": HEAD["fc.weight"]})),
        ("dflash", model(architectures=["DFlashDraftModel"])),
        ("dspark", model(architectures=["Qwen3DSparkModel"])),
    ],
)
def test_heads_are_known_by_any_of_their_signs(method: str, head: Checkpoint) -> None:
    """A tensor that fuses, a key, or the name of the architecture."""
    assert said(facts(candidate(method), draft=head), "head_checkpoint") == []


def test_a_head_of_an_architecture_that_vllm_has_not_is_refused() -> None:
    """EagleQwen3ForCausalLM is the name that it would look for; a newer version may have it."""
    draft = model(tensors=HEAD, architectures=["Qwen3ForCausalLM"])
    finding = only(facts(candidate("eagle"), draft=draft), "head_class")
    assert finding.severity is Severity.REJECT_CANDIDATE
    assert "look for EagleQwen3ForCausalLM" in finding.evidence
    newer = {**GPU, "vllm": "0.40.0"}
    later = only(facts(candidate("eagle"), draft=draft, probe=newer), "head_class")
    assert later.severity is Severity.WARN
    for method, head in (("eagle", EAGLE), ("eagle3", EAGLE3)):
        assert said(facts(candidate(method), draft=head), "head_class") == []


@pytest.mark.parametrize(
    ("method", "config", "width"),
    [
        ("eagle", {"hidden_size": 128}, 128),
        ("medusa", {"hidden_size": 128}, 128),
        ("eagle3", {"target_hidden_size": 128}, 128),
        ("eagle3", {"hidden_size": 32, "target_hidden_size": 64}, None),
        ("eagle3", {"hidden_size": 32}, 32),
        ("draft_model", {"hidden_size": 32}, None),
    ],
)
def test_a_head_of_another_width_is_refused(
    method: str, config: dict[str, Any], width: int | None
) -> None:
    """Both widths are told; EAGLE-3 heads say their target's, draft models have their own."""
    found = said(facts(candidate(method), draft=model(tensors=HEAD, **config)), "hidden_sizes")
    told = [
        f"takes hidden states of width {width}, and the target's have 64" in f.evidence
        for f in found
    ]
    assert told == ([True] if width else [])


@pytest.mark.parametrize(
    ("config", "ids"),
    [
        ({"eagle_aux_hidden_state_layer_ids": [1, 4, 7]}, (1, 4, 7)),
        ({"dflash_config": {"target_layer_ids": [0, 3]}}, (1, 4)),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2]}}, (2,)),
        ({"target_layer_ids": [5]}, (6,)),
        ({}, ()),
    ],
)
def test_layer_ids_are_counted_as_vllm_counts_them(
    config: dict[str, Any], ids: tuple[int, ...]
) -> None:
    """Some formats count from the layer before."""
    assert aux_layer_ids(model(**config)) == ids


def test_a_head_that_reads_beyond_the_target_s_depth_is_refused() -> None:
    """Made for a deeper model."""
    deep = model(tensors=HEAD, eagle_aux_hidden_state_layer_ids=[2, 16, 29])
    finding = only(facts(candidate("eagle3"), draft=deep), "aux_layers")
    assert finding.severity is Severity.REJECT_CANDIDATE
    assert "layers 2, 16, 29, and the target has 8" in finding.evidence
    fits = model(tensors=HEAD, eagle_aux_hidden_state_layer_ids=[2, 4, 8])
    assert said(facts(candidate("eagle3"), draft=fits), "aux_layers") == []


@pytest.mark.parametrize(
    ("kind", "method", "severity"),
    [
        ("eagle3", "eagle3", None),
        ("eagle3", "dflash", Severity.REJECT_CANDIDATE),
        ("dflash2", "dflash", None),
        ("peagle", "eagle3", Severity.WARN),
        ("hass", "eagle3", Severity.REJECT_CANDIDATE),
    ],
)
def test_speculators_are_run_by_the_method_they_were_made_with(
    kind: str, method: str, severity: Severity | None
) -> None:
    """Another one is refused, a kind that vLLM does not know, too; P-EAGLE drafts in parallel."""
    draft = model(
        base={},
        speculators_model_type=kind,
        speculators_config={"verifier": {"name_or_path": "/models/target"}},
        transformer_layer_config=dict(LLAMA),
    )
    found = said(facts(candidate(method), draft=draft), "speculators_method")
    assert [f.severity for f in found] == ([severity] if severity else [])


def test_a_target_without_mtp_layers_has_no_mtp() -> None:
    """The keys that would say so are named."""
    finding = only(facts(candidate("mtp", 1, 2)), "mtp_head")
    assert finding.severity is Severity.REJECT_CANDIDATE
    assert "/models/target has no MTP layers" in finding.evidence
    assert "num_nextn_predict_layers" in finding.evidence


@pytest.mark.parametrize(
    ("config", "count"),
    [
        ({"model_type": "deepseek_v3", "num_nextn_predict_layers": 1}, 1),
        ({"model_type": "qwen3_5", "text_config": {"mtp_num_hidden_layers": 2}}, 2),
        ({"model_type": "inkling_model", "mtp_config": {"num_nextn_predict_layers": 3}}, 3),
        ({"model_type": "longcat_flash"}, 1),
        ({"model_type": "deepseek_v3", "num_nextn_predict_layers": 0}, 0),
        ({}, None),
    ],
)
def test_mtp_layers_are_counted_where_each_family_says_so(
    config: dict[str, Any], count: int | None
) -> None:
    """In the text part, in a config of their own, or one where nothing is said."""
    assert mtp_layers(model(**config)) == count


MTP: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "num_nextn_predict_layers": 1,
    "num_hidden_layers": 8,
}


def test_mtp_layers_that_were_left_out_of_the_weights_are_warned_of() -> None:
    """Quantized copies keep the config and drop the layers; one that has them is silent."""
    finding = only(facts(candidate("mtp"), target=model(**MTP)), "mtp_head")
    assert finding.severity is Severity.WARN
    assert "no tensor of /models/target has their name" in finding.evidence
    for more in (layers(9), {**layers(8), "mtp.fc.weight": HEAD["fc.weight"]}):
        assert said(facts(candidate("mtp"), target=model(tensors=more, **MTP)), "mtp_head") == []


def test_mtp_layers_of_a_model_that_vllm_does_not_know_are_refused() -> None:
    """The version whose source was read refuses; another may do better."""
    target = model(model_type="fancy", num_nextn_predict_layers=1)
    finding = only(facts(candidate("mtp"), target=target), "mtp_head")
    assert finding.severity is Severity.REJECT_CANDIDATE
    assert "of the type fancy" in finding.evidence


def test_deepseek_v4_1_has_stages_of_another_kind() -> None:
    """Its layers are DSpark's."""
    target = model(model_type="deepseek_v41", num_nextn_predict_layers=1)
    assert only(facts(candidate("mtp"), target=target), "mtp_head").remedy == "write method: dspark"


def test_a_draft_model_with_mtp_layers_is_taken_for_them() -> None:
    """vLLM decides by the draft's type, whatever the method says."""
    draft = model(model_type="qwen3_5", tensors=layers(1))
    finding = only(facts(candidate("draft_model"), draft=draft), "taken_for_mtp")
    assert finding.severity is Severity.REJECT_CANDIDATE
    assert "run the method mtp instead of draft_model" in finding.evidence
    assert said(facts(candidate("draft_model")), "taken_for_mtp") == []


def test_a_packed_tensor_counts_its_bytes() -> None:
    """Types below eight bits are packed into bytes by the format."""
    assert Tensor(dtype="F8_E4M3", shape=(4, 4)).size == 16
    assert Tensor(dtype="F32", shape=(4, 4)).size == 64
    assert Tensor(dtype="BF16", shape=()).elements == 1
