"""What vLLM's log says: facts about the engine, causes of its end, and what spoils a pass.

Rules: a cause is a known line (a row of `SIGNS`), the first that appears wins, since what follows
is its consequence; the word ERROR alone means nothing; a text without a known line is a crash, told
by its first exception.
"""

import ast
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from autotune.core.redaction import GRAMMAR, without_quotes
from autotune.core.trial import Cause
from autotune.errors import LaunchError

TAIL_LINES = 15
GIB = 1 << 30
HALF_BYTES = 2_000_000


@dataclass(frozen=True, slots=True)
class Sign:
    """A line that vLLM prints when it ends for a known cause."""

    pattern: re.Pattern[str]
    cause: Cause
    remedy: str


def _sign(pattern: str, cause: Cause, remedy: str) -> Sign:
    return Sign(re.compile(pattern), cause, remedy)


SIGNS = (
    _sign(
        r"PackageNotFoundError: No package metadata was found for vllm",
        Cause.LAUNCHER_BROKEN,
        "start the engine by `target.launcher: [python, -m, vllm.entrypoints.openai.api_server]`",
    ),
    _sign(
        r"No module named '?vllm", Cause.LAUNCHER_BROKEN, "install vLLM, or name `target.launcher`"
    ),
    _sign(
        r"libnuma\.so\.1: cannot open shared object file",  # vLLM's CPU kernels need it
        Cause.LAUNCHER_BROKEN,
        "install the system's libnuma: apt-get install libnuma1 (Debian, Ubuntu)",
    ),
    _sign(r"No space left on device|\[Errno 28\]", Cause.DISK_FULL, "free disk space, run again"),
    _sign(
        r"on startup is less than (desired (GPU|CPU) memory utilization|the engine's budget)"
        r"|allocation is less than requested memory for kv \((?!-|0\.0/)",
        Cause.MEMORY_OCCUPIED,
        "lower search.gpu_memory_utilization, or end what else holds the memory",
    ),
    _sign(
        r"No available memory for the cache blocks"
        r"|is larger than the (maximum number of tokens|available KV cache memory)"
        r"|KV cache is needed, which is larger than"
        r"|allocation is less than requested memory for kv",  # nothing, or less, is left for it
        Cause.KV_CACHE_TOO_SMALL,
        "raise search.gpu_memory_utilization or lower target.engine_args.max_model_len",
    ),
    _sign(
        r"OutOfMemoryError|CUDA out of memory|DefaultCPUAllocator: can't allocate memory"
        r"|Cannot allocate memory|std::bad_alloc",
        Cause.OUT_OF_MEMORY_START,
        "lower gpu_memory_utilization, max_num_seqs or K",
    ),
    _sign(r"[Aa]ddress already in use", Cause.PORT_TAKEN, "transient: tried once more"),
    _sign(
        r"error: (unrecognized arguments|argument |the following arguments)"
        r"|ValidationError|validation errors? for|Value error,",
        Cause.ENGINE_REFUSED,
        "the engine refuses this configuration: see its own message",
    ),
)


@dataclass(frozen=True, slots=True)
class Event:
    """A line that vLLM prints while it serves and does something else."""

    pattern: re.Pattern[str]
    what: str
    spoils: bool
    """Whether it takes time from the requests; other events are warnings, counted."""


EVENTS = (
    # vllm/utils/jit_monitor.py: Triton, CuTeDSL, TileLang
    Event(re.compile(r"JIT compilation during inference"), "a kernel was compiled", spoils=True),
    # triton/runtime/autotuner.py, printed since the JIT monitor asks for it
    Event(
        re.compile(r"Triton autotuning for function|Autotuning kernel "),
        "a kernel was tuned",
        spoils=True,
    ),
    # vllm/compilation: decorators.py, backends.py
    Event(
        re.compile(
            r"Compiling model again|Recompiling the model|Dynamo bytecode transform time"
            r"|Compiling a graph for compile range|saved AOT compiled function"
        ),
        "the model was compiled",
        spoils=True,
    ),
    # vllm/v1/worker: gpu_model_runner.py, gpu/model_runner.py, gpu/spec_decode
    Event(
        re.compile(r"Capturing CUDA graphs|Capturing model for |Graph capturing finished"),
        "CUDA graphs were captured",
        spoils=True,
    ),
    Event(GRAMMAR, "the grammar refused tokens of a reply", spoils=False),
)
EVENT_LENGTH = 160


def events(text: str) -> tuple[list[str], Counter[str]]:
    """The lines that spoil a pass, and the warnings with their counts, of a piece of log.

    Warnings are told by their kind alone: their lines quote tokens of replies.
    """
    spoiling: list[str] = []
    warnings: Counter[str] = Counter()
    for line in text.splitlines():
        event = next((e for e in EVENTS if e.pattern.search(line)), None)
        if event is None:
            continue
        if event.spoils:
            spoiling.append(f"{event.what}: {_clean(line)[:EVENT_LENGTH]}")
        else:
            warnings[event.what] += 1
    return spoiling, warnings


def read(log: Path) -> str:
    """The log as text, torn bytes replaced; of a very long one its beginning and its end."""
    with log.open("rb") as file:
        head = file.read(HALF_BYTES)
        file.seek(max(log.stat().st_size - HALF_BYTES, len(head)))
        return (head + file.read()).decode("utf-8", errors="replace")


def diagnose(text: str, *, starting: bool, status: str) -> LaunchError:
    """The cause of an engine's end, from the first known line; else a crash with the log's tail."""
    for line in text.splitlines():
        for sign in SIGNS:
            if sign.pattern.search(line):
                return LaunchError(_phase(sign.cause, starting), _clean(line), sign.remedy)
    cause = Cause.CRASHED_START if starting else Cause.CRASHED_RUNTIME
    detail = f"the engine ended ({status}); {_first_error(text)}"
    return LaunchError(cause, detail, "read the engine's log, in the launch folder")


def engine_died(text: str) -> bool:
    """Whether the log tells the end of the engine behind a server that still answers."""
    return "EngineDeadError" in text


def _phase(cause: Cause, starting: bool) -> Cause:  # noqa: FBT001 - private, one caller
    if cause is Cause.OUT_OF_MEMORY_START and not starting:
        return Cause.OUT_OF_MEMORY_RUNTIME
    return cause


def _first_error(text: str) -> str:
    # An exception's own line; the "Engine core initialization failed" around it is a consequence.
    pattern = re.compile(
        r"^(?:\([^)]*\) )*(?:ERROR [^\]]*\] )?([A-Za-z_.]*(?:Error|Exception)\b.*)"
    )
    for line in text.splitlines():
        match = pattern.match(line)
        if match and "Engine core initialization failed" not in line:
            return match.group(1)[:400]
    tail = [line for line in text.splitlines() if line.strip()][-TAIL_LINES:]
    return "its last lines:\n" + without_quotes("\n".join(tail))


def _clean(line: str) -> str:
    # Without `(EngineCore pid=17) ERROR 11-30 04:10:05 [core.py:1510]`, which says nothing.
    return re.sub(r"^(\([^)]*\) )*([A-Z]+ [\d-]+ [\d:]+ \[[^\]]*\] )?", "", line).strip()[:400]


def version(text: str) -> str | None:
    """`0.32.0` from the engine's own start line."""
    match = re.search(r"Initializing a V1 LLM engine \(v([^)]+)\)", text)
    return match.group(1) if match else None


def resolved(text: str) -> dict[str, str]:
    """Settings as the engine resolved them, from its start line and what it says beside it."""
    line = next((x for x in text.splitlines() if "Initializing a V1 LLM engine" in x), "")
    found: dict[str, str] = {}
    for key in RESOLVED:
        match = re.search(rf"\b{key}=(\([^)]*\)|[A-Za-z]+\([^)]*\)|[^,\s]+)", line)
        if match:
            found[key] = match.group(1)
    for key, pattern in BESIDE.items():
        match = re.search(pattern, text)
        if match:
            found[key] = match.group(1)
    given = _given(text)
    found |= {key: str(given[key]) for key in GIVEN if key in given}
    if line:
        found["async_scheduling"] = str(_async_scheduling(text, found, given))
    return found


def kv_cache_memory(text: str) -> tuple[int | None, int | None]:
    """Bytes of the KV cache and of the memory that it is a share of, as far as they are told.

    Of several workers the one with the least counts, as it does for vLLM.
    """
    found = [m.groupdict() for m in KV_CACHE_MEMORY.finditer(text)]
    if not found:
        return None, None
    least = min(found, key=lambda one: float(one["cache"] or one["gpu_cache"]))
    total = least["total"]
    cache = float(least["cache"] or least["gpu_cache"])
    return int(cache * GIB), int(float(total) * GIB) if total else None


def _given(text: str) -> Mapping[str, object]:
    """The arguments that differ from vLLM's defaults, which it prints first of all."""
    match = re.search(r"non-default args: (\{.*\})", text)
    try:
        value = ast.literal_eval(match.group(1)) if match else {}
    except (ValueError, SyntaxError):  # some values print as no literal
        value = {}
    return value if isinstance(value, dict) else {}


def _async_scheduling(text: str, found: Mapping[str, str], given: Mapping[str, object]) -> bool:
    """vLLM says when it is off, never that it is on (config/vllm.py; platforms/cpu.py)."""
    if found.get("device_config") == "cpu" or NOT_ASYNC.search(text):
        return False
    return given.get("async_scheduling") is not False


# vllm/v1/worker: cpu_worker.py, gpu_worker.py
KV_CACHE_MEMORY = re.compile(
    r"Auto set \((?P<cache>[\d.]+)/(?P<total>[\d.]+)\) GiB for KV cache"
    r"|Available KV cache memory: (?P<gpu_cache>[\d.]+) GiB"
)

NOT_ASYNC = re.compile(
    r"Async scheduling (is not compatible with|not supported with|will be disabled|is disabled)"
)

RESOLVED = (
    "speculative_config",
    "dtype",
    "max_seq_len",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "quantization",
    "kv_cache_dtype",
    "enforce_eager",
    "device_config",
    "enable_prefix_caching",
    "enable_chunked_prefill",
    "seed",
)
"""Keys of the start line."""

BESIDE = {
    "cudagraph_mode": r"'cudagraph_mode': <CUDAGraphMode\.(\w+)",
    "compilation_mode": r"compilation_config=\{'mode': <CompilationMode\.(\w+)",
    "max_cudagraph_capture_size": r"'max_cudagraph_capture_size': (\d+)",
    "cudagraph_truncated_to": r"Truncating max_cudagraph_capture_size to (\d+)",
    "attention_backend": r"Using (\w+) attention backend out of potential backends",
}
"""What else is told of itself: name and pattern."""

GIVEN = ("max_num_seqs",)
"""Arguments that no line tells but that of the arguments given."""
