"""One launch: its flags and the world put together, and what follows from them before it serves.

Rule: what is wrong with the start ends in StartError with the line that vLLM prints for it; every
number here follows from the flags, the world and the seed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from autotune.engines.simulated_server.flags import Options
from autotune.engines.simulated_server.model import METHODS, Method
from autotune.engines.simulated_server.world import Draft, World

BLOCK_SIZE = 16
_SPEC_FIELDS = """
    method model num_speculative_tokens draft_tensor_parallel_size tensor_parallel_size
    quantization moe_backend attention_backend kv_cache_dtype max_model_len revision
    code_revision disable_padded_drafter_batch disable_eagle_block_drop
    use_local_argmax_reduction use_heterogeneous_vocab prompt_lookup_max prompt_lookup_min
    parallel_drafting num_speculative_tokens_per_batch_size suffix_decoding_max_tree_depth
    suffix_decoding_max_cached_requests suffix_decoding_max_spec_factor
    suffix_decoding_min_token_prob draft_load_config rejection_sample_method
    synthetic_acceptance_rates synthetic_acceptance_length enable_adaptive_verification
    draft_sample_method dspark_draft_topk enforce_eager index_share_for_mtp_iteration
"""


class StartError(Exception):
    """The engine does not start; the message is the last line of vLLM's traceback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """A checked --speculative-config."""

    name: str
    method: Method
    model: str | None
    k_max: int
    draft: Draft
    schedule: tuple[tuple[int, int, int], ...] = ()

    def scheduled_k(self, batch: int) -> int:
        """K for a batch size by num_speculative_tokens_per_batch_size; K_max without one."""
        k = self.k_max
        for start, _, planned in self.schedule:
            if start <= batch:
                k = min(self.k_max, planned)
        return k


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What one life of the server knows about itself."""

    options: Options
    world: World
    number: int
    """Counts the launches in one world, from 1; the process id where nothing counts."""
    speculation: Speculation | None

    @property
    def seed_key(self) -> tuple[object, ...]:
        """The key of every draw that is to differ between launches."""
        return (self.world.seed, "launch", self.number)

    @property
    def k_max(self) -> int:
        """K_max, 0 without speculation."""
        return self.speculation.k_max if self.speculation else 0

    def fault(self, what: str, *, temperature: float = 0.0) -> float | None:
        """The value of an active fault (0 where it has none), None if it is not active."""
        for fault in self.world.faults:
            cold = fault.when.min_temperature
            if (
                fault.what == what
                and self._matches(fault.when)
                and (cold is None or temperature >= cold)
            ):
                return fault.value or 0.0
        return None

    def _matches(self, when: Any) -> bool:  # noqa: ANN401  (a table of its fields)
        spec, options = self.speculation, self.options
        utilization = options.gpu_memory_utilization
        model = spec.model if spec else None
        names = {model, PurePath(model).name if model else None}
        checks = (
            (when.method, lambda x: x == (spec.name if spec else "none")),
            (when.model, lambda x: x in names),
            (when.scheduler_cls, lambda x: x == (options.scheduler_cls is not None)),
            (when.min_k, lambda x: self.k_max >= x),
            (when.max_k, lambda x: self.k_max <= x),
            (when.min_gpu_memory_utilization, lambda x: utilization >= x),
            (when.max_gpu_memory_utilization, lambda x: utilization <= x),
            (when.min_launch, lambda x: self.number >= x),
            (when.max_launch, lambda x: self.number <= x),
        )
        return all(bound is None or holds(bound) for bound, holds in checks)

    @property
    def kv_gib(self) -> float:
        """Memory left for KV cache."""
        memory = self.world.memory
        draft_gib = self.speculation.draft.gib if self.speculation else 0.0
        used = memory.target_gib + memory.overhead_gib + draft_gib
        used += memory.activation_gib_per_token * self.k_max
        return self.options.gpu_memory_utilization * memory.total_gib - used

    @property
    def kv_tokens(self) -> int:
        """Tokens that fit into it, in whole blocks."""
        share = 1.0 + (self.speculation.draft.kv_share if self.speculation else 0.0)
        blocks = self.kv_gib / (self.world.memory.kv_gib_per_1k_tokens * share) * 1000
        return max(0, int(blocks) // BLOCK_SIZE * BLOCK_SIZE)


def read_speculation(
    config: Mapping[str, Any] | None, options: Options, world: World
) -> Speculation | None:
    """Check --speculative-config as vLLM's SpeculativeConfig does."""
    if config is None:
        return None
    unknown = sorted(set(config) - set(_SPEC_FIELDS.split()))
    if unknown:
        raise StartError(
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for "
            f"SpeculativeConfig\n{unknown[0]}\n  Unexpected keyword argument"
        )
    model = config.get("model")
    name = str(config.get("method") or _guess_method(model))
    k_max = config.get("num_speculative_tokens")
    if not isinstance(k_max, int) or k_max <= 0:
        raise StartError(
            "ValueError: num_speculative_tokens must be provided with speculative model unless "
            "the draft model config contains an n_predict parameter."
            if k_max is None
            else f"ValueError: Expected num_speculative_tokens to be greater than zero ({k_max})."
        )
    method = METHODS.get("mtp" if name.endswith("_mtp") else name)
    if method is None:
        raise StartError(f"ValueError: Unsupported speculative method: '{name}'.")
    entries = config.get("num_speculative_tokens_per_batch_size") or []
    return Speculation(
        name=name,
        method=method,
        model=model,
        k_max=k_max,
        draft=_find_draft(name, config, options, world),
        schedule=tuple(sorted((int(a), int(b), int(k)) for a, b, k in entries)),
    )


def _guess_method(model: str | None) -> str:
    if model in {"ngram", "[ngram]"}:
        return "ngram"
    return "eagle" if model and "eagle" in model.lower() else "draft_model"


def _find_draft(name: str, config: Mapping[str, Any], options: Options, world: World) -> Draft:
    """The world's draft by model, its last path part or method; the target drafts perfectly."""
    model = config.get("model")
    if model is not None and model == options.model and name == "draft_model":
        return Draft(acceptance=(0.995,), t_draft=world.step.t_base, gib=world.memory.target_gib)
    keys = [model, PurePath(model).name] if model else []
    found = [world.drafts[key] for key in (*keys, name) if key in world.drafts]
    draft = found[0] if found else Draft()
    return _retuned(draft, config.get("prompt_lookup_max"))


def _retuned(draft: Draft, lookup_max: int | None) -> Draft:
    if not draft.best_prompt_lookup_max or lookup_max is None:
        return draft
    loss = max(0.0, 1.0 - 0.1 * abs(lookup_max - draft.best_prompt_lookup_max))
    return Draft(
        acceptance=tuple(rate * loss for rate in draft.acceptance),
        t_draft=draft.t_draft,
        coverage=draft.coverage,
        short=draft.short,
        spread=draft.spread,
        gib=draft.gib,
        kv_share=draft.kv_share,
    )


def out_of_memory(launch: Launch) -> str:
    """How the device says that it has no more memory."""
    total = launch.world.memory.total_gib
    if launch.world.device == "cpu":
        return (
            "RuntimeError: [enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: "
            "can't allocate memory: you tried to allocate 2147483648 bytes. "
            "Error code 12 (Cannot allocate memory)"
        )
    return (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a "
        f"total capacity of {total:.2f} GiB of which 1.21 GiB is free. Including non-PyTorch "
        f"memory, this process has {total - 1.21:.2f} GiB memory in use."
    )
