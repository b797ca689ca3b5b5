"""What vLLM's log says: facts about the engine, and causes of its end.

Rules: a cause is a known line (a row of `SIGNS`), the first that appears wins, since what follows
is its consequence; the word ERROR alone means nothing; a text without a known line is a crash, told
by its first exception.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from autotune.core.trial import Cause
from autotune.errors import LaunchError

TAIL_LINES = 15
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
    return "its last lines:\n" + "\n".join(tail)


def _clean(line: str) -> str:
    # Without `(EngineCore pid=17) ERROR 11-30 04:10:05 [core.py:1510]`, which says nothing.
    return re.sub(r"^(\([^)]*\) )*([A-Z]+ [\d-]+ [\d:]+ \[[^\]]*\] )?", "", line).strip()[:400]


def version(text: str) -> str | None:
    """`0.32.0` from the engine's own start line."""
    match = re.search(r"Initializing a V1 LLM engine \(v([^)]+)\)", text)
    return match.group(1) if match else None


def resolved(text: str) -> dict[str, str]:
    """Settings as the engine resolved them, from its start line."""
    line = next((x for x in text.splitlines() if "Initializing a V1 LLM engine" in x), "")
    found: dict[str, str] = {}
    for key in RESOLVED:
        match = re.search(rf"\b{key}=(\([^)]*\)|[A-Za-z]+\([^)]*\)|[^,\s]+)", line)
        if match:
            found[key] = match.group(1)
    graphs = re.search(r"'cudagraph_mode': <CUDAGraphMode\.(\w+)", line)
    if graphs:
        found["cudagraph_mode"] = graphs.group(1)
    found["async_scheduling"] = str("Asynchronous scheduling is enabled" in text)
    return found


RESOLVED = (
    "speculative_config",
    "dtype",
    "max_seq_len",
    "tensor_parallel_size",
    "quantization",
    "enforce_eager",
    "device_config",
    "enable_prefix_caching",
    "seed",
)
