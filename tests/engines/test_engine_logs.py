"""Causes from log lines: recorded logs of vLLM 0.32.0, and its messages word by word."""

from pathlib import Path

import pytest

from autotune.core.trial import Cause
from autotune.engines import _logs

LOGS = Path(__file__).parent / "logs"
HEALTHY = sorted(path.name for path in LOGS.glob("healthy-*.log"))
ENGINE = "(EngineCore pid=17) ERROR 11-30 04:10:05 [core.py:1510] "

# As written in vllm/v1: worker/utils.py, worker/cpu_worker.py, core/kv_cache_utils.py
GPU_OCCUPIED = (
    "ValueError: Free memory on device cuda:0 (3.1/79.2 GiB) on startup is less than desired GPU "
    "memory utilization (0.9, 71.3 GiB). Decrease GPU memory utilization or reduce GPU memory used "
    "by other processes."
)
WEIGHTS_ELSEWHERE = (
    "ValueError: Free memory on device cuda:0 (3.1/79.2 GiB) on startup is less than the engine's "
    "budget after excluding external process's weights (0.9, 71.3 GiB). Decrease GPU memory "
    "utilization or reduce GPU memory used by other processes."
)
CPU_OCCUPIED = (
    "ValueError: Available memory on node 0 (2.1/15.6 GiB) on startup is less than desired CPU "
    "memory utilization (0.5, 7.8 GiB). On the CPU backend, the `--gpu-memory-utilization` flag "
    "controls the fraction of CPU memory reserved (despite its name)."
)
CPU_TAKEN_MEANWHILE = (
    "ValueError: Available memory on node 0 (2.1/15.6 GiB) on kv cache allocation is less than "
    "requested memory for kv (3.2/7.8 GiB). Reduce CPU memory used by other processes."
)
CPU_NOTHING_LEFT = (
    "ValueError: Available memory on node 0 (9.1/15.6 GiB) on kv cache allocation is less than "
    "requested memory for kv (-0.4/1.2 GiB). Reduce CPU memory used by other processes."
)
NO_BLOCKS = (
    "ValueError: No available memory for the cache blocks. Try increasing "
    "`gpu_memory_utilization` when initializing the engine (this flag also controls CPU memory "
    "reservation on the CPU backend, despite its name)."
)
TOO_SHORT = (
    "ValueError: To serve at least one request with the model's max seq len (131072), (16.00 GiB "
    "KV cache is needed, which is larger than the available KV cache memory (9.10 GiB). Based on "
    "the available memory, the estimated maximum model length is 74544."
)
CUDA_OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
CPU_OOM = (
    "RuntimeError: [enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't "
    "allocate memory: you tried to allocate 2147483648 bytes. Error code 12 (Cannot allocate "
    "memory)"
)
NO_LIBNUMA = (
    "Failed to import from vllm._C: ImportError('libnuma.so.1: cannot open shared object file: "
    "No such file or directory')"
)
# As written in vllm/v1/worker: cpu_worker.py, gpu_worker.py
CPU_CACHE = (
    "Auto set (3.25/15.50) GiB for KV cache on node 0, with 4.65 GiB requested memory for the "
    "worker. 1.40 GiB memory was consumed by non-kv usages."
)
GPU_CACHE = "Available KV cache memory: 51.25 GiB"
REFUSED = "api_server.py: error: unrecognized arguments: --num-speculative-tokens 3"
INVALID = "pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig"


def start_failure(text: str) -> tuple[Cause, str]:
    """The cause and detail of a start that ended with exit status 1."""
    error = _logs.diagnose(text, starting=True, status="exit status 1")
    return error.cause, error.detail


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (GPU_OCCUPIED, Cause.MEMORY_OCCUPIED),
        (WEIGHTS_ELSEWHERE, Cause.MEMORY_OCCUPIED),
        (CPU_OCCUPIED, Cause.MEMORY_OCCUPIED),
        (CPU_TAKEN_MEANWHILE, Cause.MEMORY_OCCUPIED),
        (CPU_NOTHING_LEFT, Cause.KV_CACHE_TOO_SMALL),
        (NO_BLOCKS, Cause.KV_CACHE_TOO_SMALL),
        (TOO_SHORT, Cause.KV_CACHE_TOO_SMALL),
        (CUDA_OOM, Cause.OUT_OF_MEMORY_START),
        (CPU_OOM, Cause.OUT_OF_MEMORY_START),
        (NO_LIBNUMA, Cause.LAUNCHER_BROKEN),
        ("OSError: [Errno 28] No space left on device: '/tmp/x'", Cause.DISK_FULL),
        ("OSError: [Errno 98] Address already in use", Cause.PORT_TAKEN),
        (INVALID, Cause.ENGINE_REFUSED),
    ],
)
def test_a_known_line_is_a_cause(line: str, cause: Cause) -> None:
    """The message becomes the detail, without process and logger; the remedy is never empty."""
    text = f"(APIServer pid=3) INFO 11-30 04:10:05 [x.py:1] fine\n{ENGINE}{line}\n"
    error = _logs.diagnose(text, starting=True, status="exit status 1")
    assert error.cause is cause
    assert error.detail == line[:400]
    assert error.remedy


def test_a_missing_system_library_has_its_package_as_remedy() -> None:
    """vLLM goes on without its CPU kernels and ends later, for a reason that explains nothing."""
    later = "AttributeError: '_OpNamespace' '_C' object has no attribute 'init_cpu_threads_env'"
    text = f"WARNING 11-30 04:10:05 [cpu.py:9] {NO_LIBNUMA}\n{ENGINE}{later}\n"
    error = _logs.diagnose(text, starting=True, status="exit status 1")
    assert error.detail == NO_LIBNUMA
    assert "apt-get install libnuma1" in error.remedy


@pytest.mark.parametrize("line", [REFUSED, "/usr/bin/python3: No module named vllm"])
def test_a_line_without_a_logger(line: str) -> None:
    """argparse and the interpreter print plain lines."""
    cause, detail = start_failure(f"usage: api_server.py [-h]\n{line}\n")
    assert cause in {Cause.ENGINE_REFUSED, Cause.LAUNCHER_BROKEN}
    assert detail == line


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_log_has_no_known_cause(name: str) -> None:
    """Warnings, deprecations and the shutdown's own lines explain nothing."""
    cause, detail = start_failure(_logs.read(LOGS / name))
    assert cause is Cause.CRASHED_START
    assert detail.startswith("the engine ended (exit status 1); its last lines:")


def test_the_last_lines_do_not_quote_replies() -> None:
    """They go wherever a failure is told."""
    _, detail = start_failure("INFO up\nFailed to advance FSM for request r1 for tokens 31337.\n")
    assert "INFO up\n" in detail
    assert "31337" not in detail


def test_the_broken_console_script() -> None:
    """The CPU wheel's `vllm` command, recorded: told apart, with the launcher that works."""
    text = _logs.read(LOGS / "launcher-broken.log")
    error = _logs.diagnose(text, starting=True, status="exit status 1")
    assert error.cause is Cause.LAUNCHER_BROKEN
    assert "vllm.entrypoints.openai.api_server" in error.remedy


def test_an_engine_that_was_taken_away() -> None:
    """Recorded: the engine process ended under a server that was still up."""
    text = _logs.read(LOGS / "stopped-while-serving.log")
    assert _logs.engine_died(text)
    assert not any(_logs.engine_died(_logs.read(LOGS / name)) for name in HEALTHY)


def test_the_first_known_line_wins() -> None:
    """What follows is its consequence."""
    text = f"{ENGINE}{CUDA_OOM}\n{ENGINE}{NO_BLOCKS}\n{REFUSED}\n"
    assert start_failure(text)[0] is Cause.OUT_OF_MEMORY_START


def test_out_of_memory_is_told_apart_by_when_it_strikes() -> None:
    """At the start it bounds the range, under load it is a crash of that K."""
    error = _logs.diagnose(f"{ENGINE}{CUDA_OOM}\n", starting=False, status="exit status 1")
    assert error.cause is Cause.OUT_OF_MEMORY_RUNTIME


def test_an_unknown_end_is_a_crash_with_its_first_exception() -> None:
    """Neither the word ERROR nor the wrapper around the root cause is the cause."""
    text = (
        "(APIServer pid=3) ERROR 11-30 04:10:05 [x.py:1] ERROR is only a word\n"
        f"{ENGINE}Traceback (most recent call last):\n"
        f"{ENGINE}AssertionError: hidden_size 4096 != 576\n"
        "RuntimeError: Engine core initialization failed. See root cause above.\n"
    )
    cause, detail = start_failure(text)
    assert cause is Cause.CRASHED_START
    assert detail.endswith("AssertionError: hidden_size 4096 != 576")
    runtime = _logs.diagnose(text, starting=False, status="signal 9")
    assert runtime.cause is Cause.CRASHED_RUNTIME
    assert "signal 9" in runtime.detail


def test_an_empty_log_is_told_as_such(tmp_path: Path) -> None:
    """Killed before it said anything: the status is all there is."""
    (tmp_path / "log").touch()
    cause, detail = start_failure(_logs.read(tmp_path / "log"))
    assert cause is Cause.CRASHED_START
    assert "exit status 1" in detail


def test_torn_bytes_and_very_long_logs(tmp_path: Path) -> None:
    """Bytes that are no text are replaced; of a long log the beginning and the end are read."""
    log = tmp_path / "log"
    noise = b"INFO: 127.0.0.1 - POST /v1/chat/completions 200 OK\n" * 120_000
    log.write_bytes(b"first \xff\xfe\n" + noise + ENGINE.encode() + CUDA_OOM.encode() + b"\n")
    text = _logs.read(log)
    assert text.startswith("first ")
    assert len(text) < len(noise)
    assert start_failure(text)[0] is Cause.OUT_OF_MEMORY_START


def test_what_the_engine_resolved() -> None:
    """Version and settings from the start line of recorded logs."""
    text = _logs.read(LOGS / "healthy-draft-model.log")
    assert _logs.version(text) == "0.32.0"
    resolved = _logs.resolved(text)
    assert resolved["dtype"] == "torch.bfloat16"
    assert resolved["max_seq_len"] == "2048"
    assert resolved["speculative_config"].startswith("SpeculativeConfig(method='draft_model'")
    assert resolved["enforce_eager"] == "True"
    assert resolved["async_scheduling"] == "False"
    baseline = _logs.resolved(_logs.read(LOGS / "healthy-baseline.log"))
    assert baseline["speculative_config"] == "None"
    assert (_logs.version(""), _logs.resolved("")) == (None, {})


def test_settings_that_two_arms_are_compared_by() -> None:
    """From the start line, from the arguments given, and from lines beside them."""
    resolved = _logs.resolved(_logs.read(LOGS / "healthy-baseline.log"))
    assert resolved["kv_cache_dtype"] == "auto"
    assert resolved["enable_prefix_caching"] == "True"
    assert resolved["enable_chunked_prefill"] == "True"
    assert resolved["pipeline_parallel_size"] == resolved["data_parallel_size"] == "1"
    assert resolved["cudagraph_mode"] == "NONE"
    assert resolved["max_num_seqs"] == "8"
    assert "max_cudagraph_capture_size" not in resolved  # None: nothing is captured
    assert "attention_backend" not in resolved


GPU = (  # worded as in vllm/platforms/cuda.py and vllm/config/vllm.py
    "(APIServer pid=3) INFO 11-30 04:10:05 [api_utils.py:286] non-default args: {'model': 'm', "
    "'max_num_seqs': 6, 'speculative_config': {'method': 'eagle', 'num_speculative_tokens': 6}}\n"
    "(EngineCore pid=17) WARNING 11-30 04:10:05 [vllm.py:2520] Truncating "
    "max_cudagraph_capture_size to 40\n"
    "(EngineCore pid=17) INFO 11-30 04:10:05 [core.py:133] Initializing a V1 LLM engine (v0.32.0) "
    "with config: model='m', speculative_config=SpeculativeConfig(method='eagle', model='d', "
    "num_spec_tokens=6), dtype=torch.bfloat16, device_config=cuda, compilation_config={'mode': "
    "<CompilationMode.VLLM_COMPILE: 3>, 'cudagraph_mode': <CUDAGraphMode.FULL_AND_PIECEWISE: "
    "(2, 1)>, 'max_cudagraph_capture_size': 40}\n"
    "(Worker pid=18) INFO 11-30 04:10:05 [cuda.py:507] Using FLASH_ATTN attention backend out of "
    "potential backends: ['FLASH_ATTN', 'FLASHINFER'].\n"
)


def test_graphs_and_attention_of_a_gpu_are_read() -> None:
    """The line that truncates the capture sizes among them."""
    resolved = _logs.resolved(GPU)
    assert resolved["cudagraph_mode"] == "FULL_AND_PIECEWISE"
    assert resolved["compilation_mode"] == "VLLM_COMPILE"
    assert resolved["max_cudagraph_capture_size"] == "40"
    assert resolved["cudagraph_truncated_to"] == "40"
    assert resolved["attention_backend"] == "FLASH_ATTN"
    assert resolved["max_num_seqs"] == "6"


@pytest.mark.parametrize(
    ("line", "on"),
    [
        ("nothing about it", "True"),
        ("Async scheduling not supported with ngram-based speculative decoding and will", "False"),
        ("Async scheduling will be disabled because it is not supported with the `x`", "False"),
        ("Async scheduling is not compatible with disable_padded_drafter_batch=True and", "False"),
        # what every custom scheduler class gets to hear, whatever its base
        ("you will see degraded performance due to async scheduling being disabled.", "True"),
        ("non-default args: {'model': 'm', 'async_scheduling': False}", "False"),
    ],
)
def test_scheduling_is_asynchronous_unless_the_log_says_no(line: str, on: str) -> None:
    """vLLM 0.32 tells only of the cases in which it is off; on a CPU it always is."""
    start = "[core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: device_config="
    assert _logs.resolved(f"{line}\n{start}cuda, seed=0\n")["async_scheduling"] == on
    assert _logs.resolved(f"{line}\n{start}cpu, seed=0\n")["async_scheduling"] == "False"


def test_arguments_that_are_no_literals_are_passed_over() -> None:
    """Some values print as objects; the rest of the log still counts."""
    text = GPU.replace("'max_num_seqs': 6", "'compilation_config': <CompilationConfig object>")
    assert "max_num_seqs" not in _logs.resolved(text)
    assert _logs.resolved(text)["dtype"] == "torch.bfloat16"


@pytest.mark.parametrize(
    ("line", "what"),
    [
        # vllm/utils/jit_monitor.py
        ("Triton kernel JIT compilation during inference: _k. This causes", "a kernel was comp"),
        ("CuTeDSL JIT compilation during inference: gemm (constexprs={})", "a kernel was compiled"),
        ("TileLang JIT compilation during inference: f.", "a kernel was compiled"),
        ("Triton autotuning for function _topk,", "a kernel was tuned"),
        # vllm/compilation
        ("[backbone] Dynamo bytecode transform time: 3.10 s", "the model was compiled"),
        ("Compiling a graph for compile range (1, 4096) takes 9.12 s", "the model was compiled"),
        ("[backbone] Compiling model again due to a load failure from /x", "the model was comp"),
        # vllm/v1/worker
        ("Graph capturing finished in 5 secs, took 0.30 GiB", "CUDA graphs were captured"),
        ("Capturing CUDA graphs (decode, FULL):  10%|#", "CUDA graphs were captured"),
    ],
)
def test_work_that_takes_time_from_requests_is_known(line: str, what: str) -> None:
    """Kind and message are told, without process and logger."""
    spoiling, warnings = _logs.events(
        f"INFO: fine\n(Worker pid=3) INFO 11-30 04:10:05 [x:1] {line}"
    )
    [told] = spoiling
    assert told.startswith(what)
    assert told.endswith(line)
    assert not warnings


@pytest.mark.parametrize(
    "line",
    [
        "Failed to advance FSM for request r1 for tokens 17. Please file an issue.",
        "Unexpected: grammar rejected tokens [17, 4] for request r1. Terminating request.",
        "Unexpected: grammar terminated or rejected draft token 17 for request r1 during bitmask",
    ],
)
def test_grammar_errors_are_counted_without_their_tokens(line: str) -> None:
    """The lines quote tokens of replies: their kind is kept, and how often."""
    spoiling, warnings = _logs.events(f"{ENGINE}{line}\n" * 3)
    assert spoiling == []
    assert warnings == {"the grammar refused tokens of a reply": 3}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_server_that_compiles_nothing_has_no_events(name: str) -> None:
    """What recorded servers say of requests, throughput and shutdown."""
    assert _logs.events(_logs.read(LOGS / name)) == ([], {})


def test_compilations_of_a_recorded_start_are_found() -> None:
    """As vLLM 0.32.0 printed them; before a pass they do no harm."""
    spoiling, _ = _logs.events(
        "(Worker pid=4066) WARNING 11-30 02:21:13 [decorators.py:333] [backbone] Compiling model "
        "again due to a load failure from ~/.cache/vllm/x/model, reason: 'function' object has no "
        "attribute 'finalize_loading'\n"
        "(Worker pid=4066) INFO 11-30 02:22:04 [decorators.py:743] [backbone] saved AOT compiled "
        "function to ~/.cache/vllm/x/model\n"
    )
    assert [told.partition(":")[0] for told in spoiling] == ["the model was compiled"] * 2
    assert all(len(told) < 200 for told in spoiling)


@pytest.mark.parametrize(
    ("lines", "cache_gib", "memory_gib"),
    [
        ([], None, None),
        ([CPU_CACHE], 3.25, 15.5),
        ([GPU_CACHE], 51.25, None),
        (["Available KV cache memory: 52.00 GiB", GPU_CACHE], 51.25, None),
    ],
)
def test_how_much_memory_the_kv_cache_has(
    lines: list[str], cache_gib: float | None, memory_gib: float | None
) -> None:
    """The worker with the least counts; a GPU's log does not say how large the GPU is."""
    log = "\n".join(f"(Worker pid=1) INFO 11-30 04:10:05 [worker.py:1] {line}" for line in lines)
    found = [None if gib is None else int(gib * 2**30) for gib in (cache_gib, memory_gib)]
    assert list(_logs.kv_cache_memory(log)) == found
