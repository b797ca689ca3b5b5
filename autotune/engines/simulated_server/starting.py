"""What may keep a simulated engine from serving, in the words of vLLM 0.32 and what it stands on.

Rule: a fault that belongs to the start, and memory that does not suffice, end in StartError; each
line is worded as it is where the comment says.
"""

import os
from collections.abc import Callable, Mapping

from autotune.engines.simulated_server.launch import Launch, StartError, out_of_memory

_SEE = "See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."


def check_start(launch: Launch) -> None:
    """Raise what a fault, or the memory, has against this start."""
    for what, worded in _START_LINES.items():
        if launch.fault(what) is not None and (line := worded(launch)):
            raise StartError(line)
    memory, utilization = launch.world.memory, launch.options.gpu_memory_utilization
    wanted = utilization * memory.total_gib
    free = memory.free_gib - (launch.fault("memory_held") or 0.0)
    if wanted > free:
        raise StartError(_too_much(launch, wanted, free))
    if launch.kv_gib <= 0:
        raise StartError(
            "ValueError: No available memory for the cache blocks. Try increasing "
            "`gpu_memory_utilization` when initializing the engine (this flag also controls CPU "
            f"memory reservation on the CPU backend, despite its name). {_SEE}"
        )
    if launch.kv_tokens < launch.options.max_model_len:
        raise StartError(_kv_too_small(launch, launch.kv_tokens))


def _no_space(launch: Launch) -> str:
    cache = os.path.expanduser("~/.cache/vllm/torch_compile_cache")  # noqa: PTH111
    return f"OSError: [Errno 28] No space left on device: '{cache}'"


def _capturing(launch: Launch) -> str:
    # vllm/v1/worker/gpu_model_runner.py
    return f"Capturing CUDA graphs (decode, FULL):  10%|#         |\n{out_of_memory(launch)}"


def _vocabulary(launch: Launch) -> str:
    # vllm/config/speculative.py
    return (
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig\n"
        "  Value error, Target and draft model should have the same vocabulary size. Target model "
        "vocab_size=49152. Draft model vocab_size=49280. Using models with different tokenizers "
        "can cause out-of-bounds errors during speculative decoding."
    )


def _weights(launch: Launch) -> str:
    # vllm/model_executor/model_loader/weight_utils.py
    return (
        "AssertionError: Attempted to load weight (torch.Size([4096, 8192])) into parameter "
        "(torch.Size([4096, 16384]))"
    )


def _nothing_there(launch: Launch) -> str:
    # vllm/model_executor/model_loader/default_loader.py
    model = launch.speculation.model if launch.speculation else launch.options.model
    return f"RuntimeError: Cannot find any model weights with `{model}`"


def _no_package(launch: Launch) -> str:
    # vllm/config/speculative.py
    return (
        "ImportError: Arctic Inference is required for suffix decoding. Install via `pip install "
        "arctic-inference==0.1.1`."
    )


def _compiled_for_another_k(launch: Launch) -> str | None:
    # torch/_C/_dynamo/guards; the cache of a launch that has one of its own is sound
    if os.environ.get("VLLM_CACHE_ROOT"):
        return None
    return "AssertionError: expected size 7==9, stride 1==1 at dim=0"


def _network(launch: Launch) -> str:
    return (
        "requests.exceptions.ConnectionError: ('Connection aborted.', ConnectionResetError(104, "
        "'Connection reset by peer'))"
    )


_START_LINES: Mapping[str, Callable[[Launch], str | None]] = {
    "compiled_for_another_k": _compiled_for_another_k,
    "crash_at_start": lambda _: (
        "RuntimeError: CUDA error: an illegal memory access was encountered"
    ),
    "disk_full_at_start": _no_space,
    "kv_too_small": lambda launch: _kv_too_small(launch, launch.options.max_model_len // 2),
    "network_down": _network,
    "no_package": _no_package,
    "no_weights": _nothing_there,
    "oom_at_capture": _capturing,
    "oom_at_start": out_of_memory,
    "other_vocabulary": _vocabulary,
    "other_weights": _weights,
}
"""Fault -> what it prints; None: this launch escapes it."""


def _too_much(launch: Launch, wanted: float, free: float) -> str:
    memory, options = launch.world.memory, launch.options
    room = f"({free:.2f}/{memory.total_gib:.2f} GiB) on startup is less than desired"
    asked = f"({options.gpu_memory_utilization}, {wanted:.2f} GiB)."
    if launch.world.device == "cpu":
        return (
            f"ValueError: Available memory on node 0 {room} CPU memory utilization {asked} On the "
            "CPU backend, the `--gpu-memory-utilization` flag controls the fraction of CPU memory "
            "reserved (despite its name). To resolve: decrease `--gpu-memory-utilization` (e.g. "
            "`--gpu-memory-utilization 0.5`) or reduce CPU memory used by other processes."
        )
    return (
        f"ValueError: Free memory on device cuda:0 {room} GPU memory utilization {asked} Decrease "
        "GPU memory utilization or reduce GPU memory used by other processes."
    )


def _kv_too_small(launch: Launch, fits: int) -> str:
    per_token = launch.world.memory.kv_gib_per_1k_tokens / 1000
    length = launch.options.max_model_len
    return (
        "ValueError: To serve at least one request with the model's max seq len "
        f"({length}), ({length * per_token:.2f} GiB KV cache is needed, which is larger than the "
        f"available KV cache memory ({fits * per_token:.2f} GiB). Based on the available memory, "
        f"the estimated maximum model length is {fits}. Try increasing `gpu_memory_utilization` "
        "(which also controls CPU memory on the CPU backend) or decreasing `max_model_len` when "
        f"initializing the engine. {_SEE}"
    )
