"""The log, in vLLM's own words and places.

Rule: a line that the tuner may read is worded as vLLM 0.32 words it; where a log of that version
was at hand, the source position is its, too.
"""

import os
import sys
import time

from autotune.engines.simulated_server.launch import Launch

VERSION = "0.32.0"


def say(line: str) -> None:
    """One raw line, flushed: the file is read while we run."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def log(process: str, where: str, message: str, *, level: str = "INFO") -> None:
    """One line, or several, as vLLM's formatter prints them."""
    stamp = time.strftime("%m-%d %H:%M:%S")
    for line in message.split("\n"):
        say(f"({process} pid={os.getpid()}) {level} {stamp} [{where}] {line}")


def log_arguments(launch: Launch) -> None:
    """The first line of every vLLM log."""
    say("(simulated: no model is loaded)")
    log("APIServer", "api_utils.py:286", f"non-default args: {launch.options.given}")
    log("APIServer", "model.py:2152", f"Using max model len {launch.options.max_model_len}")


def log_engine(launch: Launch) -> None:
    """What the engine process says before the weights are loaded."""
    options, spec = launch.options, launch.speculation
    described = (
        f"SpeculativeConfig(method={spec.name!r}, model={spec.model!r}, "
        f"num_spec_tokens={spec.k_max})"
        if spec
        else "None"
    )
    log(
        "EngineCore",
        "core.py:133",
        f"Initializing a V1 LLM engine (v{VERSION}) with config: model={options.model!r}, "
        f"speculative_config={described}, tokenizer={options.model!r}, dtype=torch.bfloat16, "
        f"max_seq_len={options.max_model_len}, "
        f"tensor_parallel_size={options.given.get('tensor_parallel_size', 1)}, "
        f"quantization={options.given.get('quantization')}, "
        f"enforce_eager={options.given.get('enforce_eager', False)}, "
        f"device_config={launch.world.device}, "
        f"served_model_name={options.served_model_name}, "
        f"enable_prefix_caching={options.prefix_caching}",
    )
    log("Worker", "cpu_model_runner.py:68", f"Starting to load model {options.model}...")
    if spec:
        log("Worker", "cpu_model_runner.py:75", "Loading drafter model...")


def log_kv_cache(launch: Launch, took_s: float) -> None:
    """How much KV cache there is, in the words of the device's worker."""
    options, memory = launch.options, launch.world.memory
    wanted = options.gpu_memory_utilization * memory.total_gib
    if launch.world.device == "cpu":
        used = f"{wanted - launch.kv_gib:.2f} GiB memory was consumed by non-kv usages."
        line = (
            f"Auto set ({launch.kv_gib:.2f}/{memory.total_gib:.2f}) GiB for KV cache on node 0, "
            f"with {wanted:.2f} GiB requested memory for the worker. {used}"
        )
        log("Worker", "cpu_worker.py:260", line)
    else:
        log("Worker", "gpu_worker.py:760", f"Available KV cache memory: {launch.kv_gib:.2f} GiB")
    name = "GPU" if launch.world.device == "cuda" else "CPU"
    log(
        "EngineCore",
        "kv_cache_utils.py:2327",
        f"{name} KV cache size: {launch.kv_tokens:,} tokens, Maximum concurrency for "
        f"{options.max_model_len:,} tokens per request: "
        f"{launch.kv_tokens / options.max_model_len:.2f}x",
    )
    log(
        "EngineCore",
        "core.py:402",
        f"init engine (profile, create kv cache, warmup model) took {took_s:.2f} s",
    )
    if options.scheduler_cls:
        log("EngineCore", "scheduler.py:244", _custom_scheduler(launch), level="WARNING")


def _custom_scheduler(launch: Launch) -> str:
    return (
        f"Using custom scheduler class {launch.options.scheduler_cls}. This scheduler interface "
        "is not public and compatibility may not be maintained. If you have subclassed Scheduler "
        "instead of AsyncScheduler, you will see degraded performance due to async scheduling "
        "being disabled."
    )


def log_serving(launch: Launch) -> None:
    """What uvicorn says when the port is open."""
    host = launch.options.host or "0.0.0.0"  # noqa: S104  (vLLM's words; we bind to loopback)
    log("APIServer", "entry.py:140", f"Starting vLLM server on http://{host}:{launch.options.port}")
    say(f"INFO:     Started server process [{os.getpid()}]")
    say("INFO:     Waiting for application startup.")
    say("INFO:     Application startup complete.")


def log_compilation() -> None:
    """What the JIT monitor says of a kernel that no warm-up has compiled."""
    log(
        "EngineCore",
        "jit_monitor.py:140",
        "Triton kernel JIT compilation during inference: _topk_kernel. This causes a latency "
        "spike; consider extending warmup to cover this shape/config.",
        level="WARNING",
    )


def log_grammar() -> None:
    """What xgrammar's backend says of a token that the grammar does not take."""
    log(
        "EngineCore",
        "backend_xgrammar.py:201",
        "Failed to advance FSM for request chatcmpl-1 for tokens 17. Please file an issue.",
        level="ERROR",
    )


def log_start_failure(line: str) -> None:
    """How vLLM dies before it serves."""
    trace = f"EngineCore failed to start.\nTraceback (most recent call last):\n{line}"
    log("EngineCore", "core.py:1510", trace, level="ERROR")
    say(
        "RuntimeError: Engine core initialization failed. See root cause above. "
        "Failed core proc(s): {'EngineCore': 1}"
    )


def log_engine_death(line: str) -> None:
    """How it dies while it serves."""
    trace = f"EngineCore encountered a fatal error.\nTraceback (most recent call last):\n{line}"
    log("EngineCore", "core.py:1512", trace, level="ERROR")
    log(
        "APIServer",
        "async_llm.py:906",
        "AsyncLLM output_handler failed.\nTraceback (most recent call last):\n"
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. "
        "See stack trace (above) for the root cause.",
        level="ERROR",
    )


def log_shutdown() -> None:
    """What is said on SIGTERM."""
    log("EngineCore", "core.py:1454", "[shutdown] EngineCore: trigger received signal=SIGTERM")
    log("APIServer", "launcher.py:254", "[shutdown] API server: shutdown triggered")
    log("EngineCore", "core.py:1499", "[shutdown] EngineCore: exiting busy loop")
    log("APIServer", "core_client.py:777", "[shutdown] MPClient: complete")
