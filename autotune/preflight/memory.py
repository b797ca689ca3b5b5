"""What a launch will need of the device's memory, estimated: weights, KV cache, activations.

Rule: an estimate is told as one. Weights are known from their headers and do not shrink, so what
they alone overflow is refused; everything else is a warning. What a launch really has is measured
(the KV capacity that the engine reports), never taken from here.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from autotune.core.jsontype import JSON
from autotune.core.study import Candidate
from autotune.preflight.checkpoint import Checkpoint, whole
from autotune.preflight.facts import Facts
from autotune.preflight.findings import Finding, reject, stop, warn

GIB = 1 << 30
UNCERTAINTY = 0.2
"""Fraction by which weights on the device and in the file may differ: packing, padding, sharing."""
ONLINE = {"fp8": 8, "bitsandbytes": 4}
"""Bits per weight after vLLM has quantized a checkpoint that is not."""
SIXTEEN = 16
WIDTHS = {"float32": 32, "float": 32, "bfloat16": 16, "float16": 16, "half": 16}
KV_WIDTHS = {"fp8": 8, "fp8_e4m3": 8, "fp8_e5m2": 8, "fp8_inc": 8, **WIDTHS}
DEFAULT_SEQUENCES = 256  # of an API server (get_batch_defaults in vllm/engine/arg_utils.py)
LOGIT_BYTES = 4  # the rejection sampler works in float32
COPIES = 2
"""Of the logits at verification: as they come, and as probabilities."""
MLA_KEYS = ("kv_lora_rank", "qk_rope_head_dim")


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Bytes on one device; the KV cache is what is left over."""

    target: int
    draft: int
    verification: int
    """Logits of every drafted token of every sequence: the part that grows with K."""
    kv_per_token: int
    """Of target and draft together; 0: not known."""

    @property
    def weights(self) -> int:
        """Of both models."""
        return self.target + self.draft

    def told(self) -> str:
        """In words, as an estimate."""
        parts = [f"about {gib(self.target)} of weights"]
        parts += [f"{gib(self.draft)} of the draft's"] if self.draft else []
        parts += [f"{gib(self.verification)} for verification"] if self.verification else []
        return f"{', '.join(parts)} (an estimate, give or take {UNCERTAINTY:.0%})"


def gib(size: float) -> str:
    """`15.0 GiB`, `0.07 GiB`."""
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / GIB:.2f} GiB"


def need(facts: Facts, candidate: Candidate | None) -> Need:
    """What one device must hold for a launch; for plain decoding without a candidate."""
    draft = facts.drafts.get(candidate.name) if candidate else None
    k = max(facts.spec.ks(candidate), default=0) if candidate else 0
    asked = candidate.settings.get("quantization") if candidate else None
    split = facts.size("tensor_parallel_size") * facts.size("pipeline_parallel_size")
    vocabulary = facts.target.vocab_size or 0
    sequences = whole(facts.arg("max_num_seqs")) or DEFAULT_SEQUENCES
    verified = sequences * (k + 1) * vocabulary * LOGIT_BYTES * COPIES if k else 0
    return Need(
        target=weight_bytes(facts, facts.target, facts.arg("quantization")) // split,
        draft=weight_bytes(facts, draft, asked) // _draft_split(facts, candidate) if draft else 0,
        verification=verified,
        kv_per_token=kv_bytes(facts, facts.target) + (kv_bytes(facts, draft) if draft else 0),
    )


def _draft_split(facts: Facts, candidate: Candidate | None) -> int:
    asked = candidate.settings.get("draft_tensor_parallel_size") if candidate else None
    return whole(asked) or facts.size("tensor_parallel_size")


def weight_bytes(facts: Facts, model: Checkpoint, quantization: JSON) -> int:
    """Of a model as the engine holds it: in its dtype, or quantized on the way; 0: not known."""
    if model.parameters is None:
        return model.weight_bytes or 0
    online = ONLINE.get(str(quantization)) if quantization else None
    if quantization and online is None:
        return model.weight_bytes or 0
    # A checkpoint in float32 is run in 16 bits, too, where no dtype is given.
    width = online or WIDTHS.get(str(facts.arg("dtype")), SIXTEEN)
    return model.parameters * width // 8


def kv_bytes(facts: Facts, model: Checkpoint) -> int:
    """KV cache of one token on one device; 0: not known.

    GQA keeps a key and a value for each KV head, MLA one latent vector and the rotary part
    (vllm/v1/kv_cache_interface.py). Layers without full attention are counted as if they had it.
    """
    layers, heads = model.layers, model.number("num_attention_heads")
    cache = str(facts.arg("kv_cache_dtype") or "auto")
    width = KV_WIDTHS.get(cache, WIDTHS.get(str(facts.arg("dtype")), SIXTEEN)) // 8
    latent = [model.number(key) for key in MLA_KEYS]
    if layers and all(latent):
        return layers * sum(filter(None, latent)) * width
    if not layers or not heads or not model.hidden_size:
        return 0
    groups = model.number("num_key_value_heads") or heads
    head = model.number("head_dim") or model.hidden_size // heads
    mine = max(groups // facts.size("tensor_parallel_size"), 1)
    return 2 * attention_layers(model, layers) * mine * head * width


def attention_layers(model: Checkpoint, layers: int) -> int:
    """Those that keep a KV cache; hybrids name the kind of each."""
    kinds = model.text.get("layer_types")
    if not isinstance(kinds, list):
        return layers
    return sum("attention" in str(kind) and "linear" not in str(kind) for kind in kinds) or layers


def memory(facts: Facts) -> Iterator[Finding]:
    """Weights fit into what gpu_memory_utilization allows, and a request into what is left."""
    if not facts.devices or not facts.real or _offloaded(facts):
        return
    total = min(device.total for device in facts.devices)
    free = min(device.free for device in facts.devices)
    share = max(facts.spec.search.gpu_memory_utilization)
    have = f"gpu_memory_utilization {share:g} of {gib(total)} is {gib(share * total)}"
    plain = need(facts, None)
    if _surely(plain.weights) > share * total:
        told = f"the target needs {plain.told()}, and {have}"
        yield stop(told, "raise gpu_memory_utilization, use more GPUs, or quantize the target")
        return
    if share * total > free:
        wording = "of RAM" if facts.on_cpu else "of the device's memory"
        yield warn(
            None,
            f"{have}, and {gib(free)} {wording} are free now",
            "end what else uses it, or lower search.gpu_memory_utilization: the start is refused "
            "otherwise",
        )
    for candidate in facts.spec.candidates:
        yield from _for(facts, candidate, share * total, have)


def _for(facts: Facts, candidate: Candidate, room: float, have: str) -> Iterator[Finding]:
    mine = need(facts, candidate)
    if mine.draft and _surely(mine.weights) > room:
        told = f"target and draft need {mine.told()}, and {have}"
        yield reject(candidate, told, "raise gpu_memory_utilization, or take a smaller draft")
        return
    left = room - mine.weights - mine.verification
    request = mine.kv_per_token * (facts.max_model_len or 0)
    if mine.weights and request > left:
        yield warn(
            candidate,
            f"{mine.told()} leave {gib(max(left, 0))} of the memory for KV cache ({have}), and one "
            f"request of max_model_len = {facts.max_model_len} needs {gib(request)}",
            "raise gpu_memory_utilization, or lower max_model_len, max_num_seqs or K",
        )


def _surely(weights: int) -> float:
    """What the weights take at the very least."""
    return weights * (1 - UNCERTAINTY)


def _offloaded(facts: Facts) -> bool:
    return any(facts.arg(name) for name in ("cpu_offload_gb", "kv_cache_memory_bytes"))
