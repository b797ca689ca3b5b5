"""Causes from log lines: recorded logs of vLLM 0.32.0, and its messages word by word."""

from pathlib import Path

import pytest

from autotune.core.causes import CAUSES
from autotune.core.trial import Cause
from autotune.engines import _logs, _signs

LOGS = Path(__file__).parent / "logs"
HEALTHY = sorted(p.name for kind in ("healthy", "compiled") for p in LOGS.glob(f"{kind}-*.log"))
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
SAMPLER_OOM = (
    "RuntimeError: CUDA out of memory occurred when warming up sampler with 256 dummy requests. "
    "Please try lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine."
)
WEIGHTS_HELD = (
    "ValueError: Externally held weights on device cuda:0 (70.1/79.2 GiB) exceed the desired GPU "
    "memory utilization (0.5, 39.6 GiB). Increase GPU memory utilization or reduce GPU memory used "
    "by other processes."
)
# vllm/config/speculative.py
VOCABULARY = (
    "Value error, Target and draft model should have the same vocabulary size. Target model "
    "vocab_size=49152. Draft model vocab_size=49280. Using models with different tokenizers can "
    "cause out-of-bounds errors during speculative decoding."
)
NO_ARCTIC = (
    "ImportError: Arctic Inference is required for suffix decoding. Install via `pip install "
    "arctic-inference==0.1.1`."
)
# vllm/model_executor: model_loader/weight_utils.py, default_loader.py, models/utils.py
OTHER_SHAPE = (
    "AssertionError: Attempted to load weight (torch.Size([4096, 8192])) into parameter "
    "(torch.Size([4096, 16384]))"
)
UNKNOWN_PARAMETER = (
    "ValueError: There is no module or parameter named 'model.fc' in LlamaForCausalLM"
)
NOT_LOADED = (
    "ValueError: Following weights were not initialized from checkpoint: {'model.fc.weight'}"
)
NO_WEIGHTS = "RuntimeError: Cannot find any model weights with `/models/draft`"
# vllm/transformers_utils/config.py, huggingface_hub, safetensors
NO_REPOSITORY = "ValueError: Invalid repository ID or local directory specified: './nope'."
GATED = "huggingface_hub.errors.GatedRepoError: 401 Client Error. Cannot access gated repo for url"
LFS_POINTER = "safetensors_rust.SafetensorError: Error while deserializing header: header too large"
RENDEZVOUS = (
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local "
    "network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address "
    "already in use"
)
REFUSED = "api_server.py: error: unrecognized arguments: --num-speculative-tokens 3"
INVALID = "pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig"


def start_failure(text: str) -> tuple[Cause, str]:
    """The cause and detail of a start that ended with exit status 1."""
    error = _signs.diagnose(text, starting=True, status="exit status 1")
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
        (
            "zmq.error.ZMQError: Address already in use (addr='tcp://127.0.0.1:4711')",
            Cause.PORT_TAKEN,
        ),
        (RENDEZVOUS, Cause.PORT_TAKEN),
        (INVALID, Cause.ENGINE_REFUSED),
        (SAMPLER_OOM, Cause.OUT_OF_MEMORY_START),
        (WEIGHTS_HELD, Cause.KV_CACHE_TOO_SMALL),
        (VOCABULARY, Cause.VOCABULARY_MISMATCH),
        (NO_ARCTIC, Cause.MISSING_PACKAGE),
        ("ModuleNotFoundError: No module named 'flashinfer'", Cause.MISSING_PACKAGE),
        (OTHER_SHAPE, Cause.WEIGHTS_MISMATCH),
        (UNKNOWN_PARAMETER, Cause.WEIGHTS_MISMATCH),
        (NOT_LOADED, Cause.WEIGHTS_MISMATCH),
        (
            "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x8192 and 4096x4096)",
            Cause.WEIGHTS_MISMATCH,
        ),
        ("RuntimeError: expected mat1 and mat2 to have the same dtype", Cause.WEIGHTS_MISMATCH),
        ("KeyError: 'layers.0.self_attn.qkv_proj.weight_scale'", Cause.WEIGHTS_MISMATCH),
        (
            "AttributeError: 'QKVParallelLinear' object has no attribute 'weight_packed'",
            Cause.WEIGHTS_MISMATCH,
        ),
        ("KeyError: 'model.layers.1.input_layernorm.weight'", Cause.WEIGHTS_MISMATCH),
        (NO_WEIGHTS, Cause.MISSING_WEIGHTS),
        (NO_REPOSITORY, Cause.MISSING_WEIGHTS),
        (GATED, Cause.MISSING_WEIGHTS),
        (LFS_POINTER, Cause.MISSING_WEIGHTS),
        (
            "FileNotFoundError: No such file: '/m/model-00002-of-00003.safetensors'",
            Cause.MISSING_WEIGHTS,
        ),
        ("AssertionError: expected size 7==9, stride 1==1 at dim=0", Cause.COMPILE_CACHE),
        ("OSError: [Errno 122] Disk quota exceeded", Cause.DISK_FULL),
        ("ConnectionResetError: [Errno 104] Connection reset by peer", Cause.TRANSIENT),
        (
            "NoLiveKError: autotune: no live K, this vLLM's SchedulerOutput has no x",
            Cause.LIVE_K_NOT_IN_FORCE,
        ),
        ("ModuleNotFoundError: No module named 'autotune_live_k'", Cause.LIVE_K_NOT_IN_FORCE),
        (
            "TimeoutError: Timed out waiting for engine core processes to start.",
            Cause.START_TIMEOUT,
        ),
    ],
)
def test_a_known_line_is_a_cause(line: str, cause: Cause) -> None:
    """The message becomes the detail, without process and logger; the remedy is never empty."""
    text = f"(APIServer pid=3) INFO 11-30 04:10:05 [x.py:1] fine\n{ENGINE}{line}\n"
    error = _signs.diagnose(text, starting=True, status="exit status 1")
    assert error.cause is cause
    assert error.detail == line[:400]
    assert error.remedy


def test_a_missing_system_library_has_its_package_as_remedy() -> None:
    """vLLM goes on without its CPU kernels and ends later, for a reason that explains nothing."""
    later = "AttributeError: '_OpNamespace' '_C' object has no attribute 'init_cpu_threads_env'"
    text = f"WARNING 11-30 04:10:05 [cpu.py:9] {NO_LIBNUMA}\n{ENGINE}{later}\n"
    error = _signs.diagnose(text, starting=True, status="exit status 1")
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
    error = _signs.diagnose(text, starting=True, status="exit status 1")
    assert error.cause is Cause.LAUNCHER_BROKEN
    assert "vllm.entrypoints.openai.api_server" in error.remedy


def test_an_engine_that_was_taken_away() -> None:
    """Recorded: the engine process ended under a server that was still up."""
    text = _logs.read(LOGS / "stopped-while-serving.log")
    assert _signs.engine_died(text)
    assert not any(_signs.engine_died(_logs.read(LOGS / name)) for name in HEALTHY)


def test_the_first_known_line_wins() -> None:
    """What follows is its consequence."""
    text = f"{ENGINE}{CUDA_OOM}\n{ENGINE}{NO_BLOCKS}\n{REFUSED}\n"
    assert start_failure(text)[0] is Cause.OUT_OF_MEMORY_START


def test_out_of_memory_is_told_apart_by_when_it_strikes() -> None:
    """At the start it bounds the range, under load it is a crash of that K."""
    error = _signs.diagnose(f"{ENGINE}{CUDA_OOM}\n", starting=False, status="exit status 1")
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
    runtime = _signs.diagnose(text, starting=False, status="signal 9")
    assert runtime.cause is Cause.CRASHED_RUNTIME
    assert "signal 9" in runtime.detail


def test_a_killed_worker_is_told_before_what_misses_it() -> None:
    """Recorded: nothing else in the log says that it was not an error of the engine's."""
    died = "Worker proc VllmWorker-0 died unexpectedly (exit code: None), shutting down executor."
    text = (
        f"(EngineCore pid=9) ERROR 11-30 15:08:57 [multiproc_executor.py:315] {died}\n"
        "(EngineCore pid=9) ERROR 11-30 15:08:57 [core.py:1512] RuntimeError: cancelled\n"
    )
    told = _signs.diagnose(text, starting=False, status="exit status 0")
    assert told.cause is Cause.CRASHED_RUNTIME
    assert told.detail == f"the engine ended (exit status 0); {died}"


def test_an_empty_log_is_told_as_such(tmp_path: Path) -> None:
    """Killed before it said anything: the status is all there is."""
    (tmp_path / "log").touch()
    cause, detail = start_failure(_logs.read(tmp_path / "log"))
    assert cause is Cause.CRASHED_START
    assert "exit status 1" in detail


def test_a_refused_value_says_which() -> None:
    """pydantic's heading names the class alone; the sentence below it is the cause."""
    input_told = "[type=value_error, input_value=ArgsKwargs((), {}), input_type=ArgsKwargs]"
    text = f"{ENGINE}{INVALID}\n{ENGINE}  {VOCABULARY} {input_told}\n"
    assert start_failure(text) == (Cause.VOCABULARY_MISMATCH, VOCABULARY)
    other = "Value error, prompt_lookup_min=5 must be <= prompt_lookup_max=3"
    assert start_failure(f"{INVALID}\n  {other}\n") == (Cause.ENGINE_REFUSED, other)


def test_out_of_memory_while_graphs_are_captured() -> None:
    """Told apart from loading, whose remedies differ; after the capture it is neither."""
    capture = "Capturing CUDA graphs (decode, FULL):  10%|#         | 3/35\n"
    assert start_failure(f"{capture}{ENGINE}{CUDA_OOM}\n")[0] is Cause.OUT_OF_MEMORY_CAPTURE
    done = "(Worker pid=3) INFO 11-30 04:10:05 [x.py:1] Graph capturing finished in 5 secs\n"
    assert start_failure(f"{capture}{done}{ENGINE}{SAMPLER_OOM}\n")[0] is Cause.OUT_OF_MEMORY_START


@pytest.mark.parametrize("where", ["torch_compile_cache", "torch_aot_compile", "inductor_cache"])
def test_a_damaged_compile_cache_is_told_by_where_it_strikes(where: str) -> None:
    """An arity error alone is a bug of somebody; below a cached artefact it is the cache."""
    line = f"{ENGINE}ValueError: not enough values to unpack (expected 3, got 2)\n"
    trace = f'{ENGINE}  File "/root/.cache/vllm/{where}/ab12/rank_0/x.py", line 9, in call\n'
    assert start_failure(trace + line)[0] is Cause.COMPILE_CACHE
    assert start_failure(line)[0] is Cause.CRASHED_START


def test_an_old_engine_is_told_as_such() -> None:
    """argparse does not know the argument that every launch with a draft needs."""
    text = "api_server.py: error: unrecognized arguments: --speculative-config {}\n"
    error = _signs.diagnose(text, starting=True, status="exit status 2")
    assert error.cause is Cause.ENGINE_TOO_OLD
    assert "--speculative-model" in error.remedy


@pytest.mark.parametrize(
    "line",
    [
        "(Worker pid=4) WARNING 11-30 04:10:05 [x.py:1] ImportError: No module named 'triton'",
        "INFO 11-30 04:10:05 [x.py:1] Retrying after: Connection reset by peer",
        "ERROR 11-30 04:10:05 [repo_utils.py:127] Error: GatedRepoError, retrying 1 of 2",
    ],
)
def test_what_the_engine_survived_is_no_cause(line: str) -> None:
    """Warnings, and errors of attempts that are made again, end no engine."""
    text = f"{line}\n{ENGINE}AssertionError: what really ended it\n"
    cause, detail = start_failure(text)
    assert cause is Cause.CRASHED_START
    assert "what really ended it" in detail


def test_a_hint_gives_way_to_a_sign() -> None:
    """A network error that is only the reason why a model is not there."""
    text = (
        f"{ENGINE}requests.exceptions.ConnectionError: Max retries exceeded with url: /api/models\n"
        f"{ENGINE}OSError: We couldn't connect to 'https://huggingface.co' to load the files\n"
    )
    assert start_failure(text)[0] is Cause.MISSING_WEIGHTS


def test_without_a_remedy_of_its_own_a_sign_has_that_of_the_cause() -> None:
    """The table of causes is what people read."""
    error = _signs.diagnose(f"{ENGINE}{OTHER_SHAPE}\n", starting=True, status="exit status 1")
    assert error.remedy == CAUSES[Cause.WEIGHTS_MISMATCH].remedy
