"""Facts and events from logs: recorded ones of vLLM 0.32.0, and its messages word by word."""

from pathlib import Path

import pytest

from autotune.engines import _logs

LOGS = Path(__file__).parent / "logs"
HEALTHY = sorted(path.name for path in LOGS.glob("healthy-*.log"))
ENGINE = "(EngineCore pid=17) ERROR 11-30 04:10:05 [core.py:1510] "

# As written in vllm/v1/worker: cpu_worker.py, gpu_worker.py
CPU_CACHE = (
    "Auto set (3.25/15.50) GiB for KV cache on node 0, with 4.65 GiB requested memory for the "
    "worker. 1.40 GiB memory was consumed by non-kv usages."
)
GPU_CACHE = "Available KV cache memory: 51.25 GiB"


def test_torn_bytes_and_very_long_logs(tmp_path: Path) -> None:
    """Bytes that are no text are replaced; of a long log the beginning and the end are read."""
    log = tmp_path / "log"
    noise = b"INFO: 127.0.0.1 - POST /v1/chat/completions 200 OK\n" * 120_000
    log.write_bytes(b"first \xff\xfe\n" + noise + b"the end\n")
    text = _logs.read(log)
    assert text.startswith("first ")
    assert len(text) < len(noise)
    assert text.endswith("the end\n")


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


def test_a_schedule_that_was_switched_off_is_read() -> None:
    """vLLM says so once at its start, and goes on with a static K."""
    line = (
        "WARNING 11-30 15:00:00 [vllm.py:1065] Dynamic speculative decoding is not supported with "
        "data parallelism because data-parallel ranks can select different speculative-token "
        "counts, causing DP divergence and deadlocks. Disabling "
        "num_speculative_tokens_per_batch_size and falling back to static "
        "num_speculative_tokens=3.\n"
    )
    assert _logs.resolved(line)["schedule_disabled"] == "to static num_speculative_tokens=3."
    assert "schedule_disabled" not in _logs.resolved("INFO 11-30 15:00:00 nothing of the kind\n")
