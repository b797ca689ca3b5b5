"""The estimate of memory: weights from headers, KV from the config, verification with K."""

from typing import Any

import pytest

from autotune.preflight import Severity
from autotune.preflight.checkpoint import Checkpoint, Tensor
from autotune.preflight.memory import kv_bytes, need, weight_bytes
from tests.preflight.folders import CPU, GIB, candidate, facts, model, only, said


def weighing(gib: float, **config: Any) -> Checkpoint:  # noqa: ANN401
    """A model of that many GiB in bfloat16."""
    shape = (int(gib * GIB) // 2,)
    return model(tensors={"fc.weight": Tensor(dtype="BF16", shape=shape)}, **config)


def test_a_target_that_cannot_fit_ends_the_study() -> None:
    """Its weights alone are more than the utilization allows; told as an estimate."""
    found = facts(candidate("ngram"), target=weighing(30), total=24 * GIB)
    finding = only(found, "memory")
    assert finding.severity is Severity.REJECT_STUDY
    assert "about 30.0 GiB of weights" in finding.evidence
    assert "an estimate" in finding.evidence
    assert "gpu_memory_utilization 0.4 of 24.0 GiB is 9.6 GiB" in finding.evidence


def test_a_draft_that_does_not_fit_beside_it_is_refused_alone() -> None:
    """15 and 5 GiB on a share of 24: nothing is launched to find out; n-gram goes on."""
    found = facts(
        candidate("draft_model"),
        candidate("ngram", name="n"),
        target=weighing(10, num_hidden_layers=1),
        draft=weighing(5),
        total=24 * GIB,
    )
    refused = [f for f in said(found, "memory") if f.severity is Severity.REJECT_CANDIDATE]
    assert [f.candidate for f in refused] == ["c"]
    assert "5.0 GiB of the draft's" in refused[0].evidence


def test_what_may_or_may_not_fit_is_left_to_the_launch() -> None:
    """Within the uncertainty of the estimate nothing is refused."""
    found = facts(candidate("ngram"), target=weighing(9.7), total=24 * GIB)
    assert {f.severity for f in said(found, "memory")} <= {Severity.WARN}


def test_one_request_that_finds_no_room_is_warned_of() -> None:
    """The KV cache of a whole context, beside what the weights leave."""
    target = weighing(9, num_hidden_layers=80, head_dim=128, num_key_value_heads=8)
    finding = only(
        facts(candidate("ngram"), target=target, total=24 * GIB, max_model_len=32768), "memory"
    )
    assert finding.severity is Severity.WARN
    assert "one request of max_model_len = 32768 needs 10.0 GiB" in finding.evidence


def test_memory_that_others_hold_is_warned_of() -> None:
    """It may come free; on the CPU it is RAM."""
    found = facts(candidate("ngram"), probe=CPU, total=24 * GIB, free=2 * GIB)
    finding = only(found, "memory")
    assert finding.severity is Severity.WARN
    assert "2.0 GiB of RAM are free now" in finding.evidence


@pytest.mark.parametrize(
    ("config", "args", "size"),
    [
        ({}, {}, 8 * 2 * 2 * 8 * 2),  # layers, K and V, KV heads, head size, bytes
        ({}, {"tensor_parallel_size": 2}, 8 * 2 * 1 * 8 * 2),
        ({}, {"tensor_parallel_size": 8}, 8 * 2 * 1 * 8 * 2),
        ({}, {"kv_cache_dtype": "fp8"}, 8 * 2 * 2 * 8 * 1),
        ({}, {"dtype": "float32"}, 8 * 2 * 2 * 8 * 4),
        ({"num_key_value_heads": None}, {}, 8 * 2 * 8 * 8 * 2),
        ({"head_dim": None}, {}, 8 * 2 * 2 * 8 * 2),
        ({"kv_lora_rank": 512, "qk_rope_head_dim": 64}, {}, 8 * 576 * 2),
        ({"layer_types": ["linear_attention"] * 6 + ["full_attention"] * 2}, {}, 2 * 64),
        ({"num_hidden_layers": None}, {}, 0),
    ],
)
def test_kv_of_a_token(config: dict[str, Any], args: dict[str, Any], size: int) -> None:
    """GQA by its KV heads, split over GPUs down to one; MLA by its latent; hybrids by kind."""
    target = model(**config)
    assert kv_bytes(facts(candidate("ngram"), target=target, **args), target) == size


@pytest.mark.parametrize(
    ("args", "size"),
    [
        ({}, 2 * GIB),
        ({"dtype": "float32"}, 4 * GIB),
        ({"quantization": "fp8"}, GIB),
        ({"quantization": "gptq"}, 2 * GIB),
    ],
)
def test_weights_are_counted_as_the_engine_holds_them(args: dict[str, Any], size: int) -> None:
    """In its dtype, or quantized on the way; what is quantized in the file is that large."""
    target = weighing(2)
    found = facts(candidate("ngram"), target=target, **args)
    assert weight_bytes(found, target, args.get("quantization")) == size


def test_verification_grows_with_k() -> None:
    """Logits of every drafted token of every sequence, in float32, twice."""
    found = facts(candidate("ngram", 3), candidate("ngram", 7, name="n"), max_num_seqs=8)
    small, large = (need(found, one).verification for one in found.spec.candidates)
    assert small == 8 * 4 * 320 * 4 * 2
    assert large == 2 * small
    assert need(found, None).verification == 0


def test_weights_are_split_over_gpus() -> None:
    """The target over all of them, the draft over its own."""
    found = facts(
        candidate("eagle", draft_tensor_parallel_size=1),
        target=weighing(8),
        draft=weighing(1),
        tensor_parallel_size=4,
    )
    mine = need(found, found.spec.candidates[0])
    assert (mine.target, mine.draft) == (2 * GIB, GIB)


def test_without_a_device_nothing_is_said() -> None:
    """Another machine's memory is not known here, and offloaded weights are another sum."""
    assert said(facts(candidate("ngram"), target=weighing(900)), "memory") == []
    found = facts(candidate("ngram"), target=weighing(900), total=GIB, cpu_offload_gb=800)
    assert said(found, "memory") == []
