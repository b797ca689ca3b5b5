"""What vLLM 0.32 calls its settings, and which of them are not the user's to set: tables only.

Rule: a refusal has its reason and its remedy in the table; nothing else in autotune lists keys of
vLLM. Sources: vllm/config/speculative.py, vllm/sampling_params.py, the chat completion protocol.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Kind = Literal["boolean", "integer", "number", "string", "any"]

_LOOKUP = ("ngram", "ngram_gpu")
_SUFFIX = ("suffix",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A field of SpeculativeConfig, or an engine argument, that a candidate may set."""

    kind: Kind
    summary: str
    default: bool | float | str | None = None
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    """The methods that read it; empty means any."""


SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {
        "prompt_lookup_min": Setting(
            kind="integer",
            minimum=1,
            methods=_LOOKUP,
            summary="Shortest n-gram looked up; alone it is also the longest. With neither of the "
            "two vLLM takes 5 and 5, which rarely matches in short chat prompts.",
        ),
        "prompt_lookup_max": Setting(
            kind="integer",
            minimum=1,
            methods=_LOOKUP,
            summary="Longest n-gram looked up; alone it is also the shortest.",
        ),
        "suffix_decoding_max_tree_depth": Setting(
            kind="integer",
            default=24,
            minimum=1,
            methods=_SUFFIX,
            summary="Depth of the suffix trees: bounds match plus speculation.",
        ),
        "suffix_decoding_max_cached_requests": Setting(
            kind="integer",
            default=10000,
            minimum=0,
            methods=_SUFFIX,
            summary="Replies kept in the global tree; 0 keeps none.",
        ),
        "suffix_decoding_max_spec_factor": Setting(
            kind="number",
            default=1.0,
            minimum=0,
            methods=_SUFFIX,
            summary="Speculated tokens per matched token, at most.",
        ),
        "suffix_decoding_min_token_prob": Setting(
            kind="number",
            default=0.1,
            minimum=0,
            maximum=1,
            methods=_SUFFIX,
            summary="Speculate only tokens that are at least this probable.",
        ),
        "draft_sample_method": Setting(
            kind="string",
            default="greedy",
            choices=("greedy", "probabilistic"),
            summary="How the draft picks its tokens; the replies stay the target's either way.",
        ),
        "draft_tensor_parallel_size": Setting(
            kind="integer",
            minimum=1,
            summary="1 or the target's own; draft_model needs the target's.",
        ),
        "quantization": Setting(kind="string", summary="Quantization of the draft's weights."),
        "moe_backend": Setting(kind="string", summary="MoE backend of the draft."),
        "attention_backend": Setting(kind="string", summary="Attention backend of the draft."),
        "kv_cache_dtype": Setting(kind="string", summary="dtype of the draft's KV cache."),
        "max_model_len": Setting(
            kind="integer", minimum=1, summary="Longest context that the draft takes."
        ),
        "revision": Setting(kind="string", summary="Revision of the draft on the hub."),
        "code_revision": Setting(kind="string", summary="Revision of the draft's code."),
        "enforce_eager": Setting(kind="boolean", summary="Run the draft without CUDA graphs."),
        "index_share_for_mtp_iteration": Setting(
            kind="boolean",
            methods=("mtp",),
            summary="MTP rounds share the first step's sparse indices.",
        ),
        "disable_padded_drafter_batch": Setting(
            kind="boolean", default=False, summary="Do not pad the draft's batches."
        ),
        "disable_eagle_block_drop": Setting(
            kind="boolean",
            default=False,
            summary="Keep the trailing prefix-cache block of EAGLE-like methods.",
        ),
        "use_local_argmax_reduction": Setting(
            kind="boolean",
            default=False,
            summary="Reduce draft logits by a local argmax under tensor parallelism.",
        ),
        "use_heterogeneous_vocab": Setting(
            kind="boolean",
            default=False,
            methods=("draft_model",),
            summary="Draft and target with different vocabularies; greedy drafts only.",
        ),
        "parallel_drafting": Setting(
            kind="boolean",
            default=False,
            methods=("draft_model", "eagle", "eagle3"),
            summary="All K tokens in one pass; the draft must be trained for it.",
        ),
        "dspark_draft_topk": Setting(
            kind="integer", minimum=1, methods=("dspark",), summary="Top-k of DSpark's drafts."
        ),
    }
)

UNKNOWN = Setting(kind="any", summary="A field that only the installed vLLM knows.")

ENGINE_ARGS: Mapping[str, Setting] = MappingProxyType(
    {
        "max_num_seqs": Setting(
            kind="integer",
            minimum=1,
            summary="Requests in one step, at most; each takes a token and its drafts.",
        ),
        "max_num_batched_tokens": Setting(
            kind="integer",
            minimum=1,
            summary="Tokens in one step, at most; drafts count.",
        ),
    }
)
"""The engine arguments that a candidate may have of its own, or search."""

_ACCEPTANCE = (
    "it changes how drafts are accepted, and with that what the replies are: "
    "a search keeps vLLM's standard rejection sampling; remove it"
)
_INTERNAL = "vLLM fills it itself; remove it"

REFUSED_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "rejection_sample_method": _ACCEPTANCE,
        "synthetic_acceptance_rates": _ACCEPTANCE,
        "synthetic_acceptance_length": _ACCEPTANCE,
        "enable_adaptive_verification": "it verifies fewer tokens than K on its own account, so "
        "that no curve over K can be measured; remove it",
        "num_speculative_tokens_per_batch_size": "autotune makes the schedule itself, from the "
        "levels of workload.concurrency, and exports it where it is confirmed; remove it",
        "tensor_parallel_size": "vLLM refuses it here; the draft's is draft_tensor_parallel_size",
        "target_model_config": _INTERNAL,
        "target_parallel_config": _INTERNAL,
        "draft_model_config": _INTERNAL,
        "draft_parallel_config": _INTERNAL,
        "draft_load_config": "a nested configuration, which candidates do not take; the draft is "
        "loaded as the target is",
        # names of older vLLM and of guides
        "k": "vLLM's word is num_speculative_tokens",
        "speculative_model": "vLLM's word is model",
        "ngram_prompt_lookup_min": "vLLM's word is prompt_lookup_min",
        "ngram_prompt_lookup_max": "vLLM's word is prompt_lookup_max",
        "disable_by_batch_size": "vLLM has dropped it; measure the batch sizes that matter with "
        "workload.concurrency",
        "speculative_disable_by_batch_size": "vLLM has dropped it; measure the batch sizes that "
        "matter with workload.concurrency",
        "acceptance_method": _ACCEPTANCE,
        "posterior_threshold": _ACCEPTANCE,
        "posterior_alpha": _ACCEPTANCE,
    }
)

LOSSY_WORDS = ("accept", "reject", "synthetic", "posterior", "typical", "lossy", "relaxed")
"""What the name of a field says that may change what the replies are, and that no table knows."""

LOSSY = (
    "the table knows no such field, and by its name it may change how drafts are accepted and with "
    "that what the replies are; remove it"
)

_LOOPBACK = "autotune serves on the loopback interface with a free port; remove it"
_SPECULATION = "it is what is searched; describe it under candidates"

OWNED_ENGINE_ARGS: Mapping[str, str] = MappingProxyType(
    {
        "model": "the model stands in target.model",
        "model_tag": "the model stands in target.model",
        "host": _LOOPBACK,
        "port": _LOOPBACK,
        "uds": _LOOPBACK,
        "root_path": _LOOPBACK,
        "ssl_keyfile": _LOOPBACK,
        "ssl_certfile": _LOOPBACK,
        "ssl_ca_certs": _LOOPBACK,
        "headless": _LOOPBACK,
        "api_key": "autotune's server is private to the machine and takes no key; remove it",
        "speculative_config": _SPECULATION,
        "speculative_model": _SPECULATION,
        "num_speculative_tokens": _SPECULATION,
        "gpu_memory_utilization": "it is searched; give it under search.gpu_memory_utilization",
        "scheduler_cls": "autotune sets its own, to change K without a restart; remove it",
        "config": "autotune writes the file for --config; put its keys here",
        "disable_log_stats": "acceptance is read from the engine's metrics; remove it",
    }
)

_KV_CACHE_SET = "vLLM then takes its KV cache from there and not from gpu_memory_utilization"

KV_CACHE_ARGS: Mapping[str, str] = MappingProxyType(
    {
        "kv_cache_memory_bytes": f"{_KV_CACHE_SET} (config/cache.py)",
        "num_gpu_blocks_override": f"{_KV_CACHE_SET} (v1/core/kv_cache_utils.py)",
    }
)
"""Engine arguments that make gpu_memory_utilization mean nothing; refused while it is searched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A variable of the engine's environment."""

    why: str
    off: tuple[str, ...]
    """Its values that change nothing."""


KV_CACHE_ENV: Mapping[str, Variable] = MappingProxyType(
    {
        # 0 is a size there, too: of none.
        "VLLM_CPU_KVCACHE_SPACE": Variable(why=f"{_KV_CACHE_SET} (platforms/cpu.py)", off=("",)),
        "VLLM_ENABLE_STARTUP_PLAN": Variable(
            why="vLLM then keeps the KV cache of an earlier start, whatever "
            "gpu_memory_utilization says (v1/worker/startup_plan.py)",
            off=("", "0"),
        ),
    }
)
"""The same of the engine's environment."""

OWNED_ENV: Mapping[str, str] = MappingProxyType(
    {"VLLM_API_KEY": "autotune's server is private to the machine and takes no key; remove it"}
)

_SPEC_DECODE = (
    "vLLM answers every such request with an error while it speculates "
    "(sampling_params.py, _validate_spec_decode), so no candidate could be measured; remove it"
)
_OURS = "autotune sets it; remove it"

REFUSED_SAMPLING: Mapping[str, str] = MappingProxyType(
    {
        "min_p": _SPEC_DECODE,
        "logit_bias": _SPEC_DECODE,
        "max_tokens": "it stands in workload.max_tokens",
        "max_completion_tokens": "it stands in workload.max_tokens",
        "ignore_eos": "it stands in workload.ignore_eos",
        "chat_template_kwargs": "they stand in workload.chat_template_kwargs",
        "messages": "they stand in the file of workload.prompts",
        "response_format": "it stands in workload.response_format",
        "n": "a stream is one reply; raise workload.concurrency instead",
        "use_beam_search": "vLLM does not speculate with beam search; remove it",
        "model": _OURS,
        "stream": _OURS,
        "stream_options": _OURS,
        "cache_salt": _OURS,
        "vllm_xargs": _OURS,
    }
)

HARMLESS_SAMPLING: Mapping[str, tuple[object, ...]] = MappingProxyType(
    {"min_p": (0, 0.0, None), "logit_bias": (None, {}), "n": (1,), "use_beam_search": (False,)}
)
"""Values of refused fields that say nothing, and are dropped."""

REQUEST_FIELDS = (
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "stop",
    "stop_token_ids",
    "min_tokens",
    "bad_words",
    "allowed_token_ids",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "logprobs",
    "top_logprobs",
    "prompt_logprobs",
    "structured_outputs",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning_effort",
    "include_reasoning",
    "thinking_token_budget",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "include_stop_str_in_output",
    "truncate_prompt_tokens",
    "add_generation_prompt",
    "continue_final_message",
    "chat_template",
    "priority",
)
"""Further request fields that vLLM knows; it ignores unknown ones, so a near miss is refused."""
