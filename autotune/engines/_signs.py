"""Why an engine ended, from the lines that vLLM prints for it.

Rules: a cause is a known line (a row of `SIGNS` or `HINTS`); the first sign in the log wins, since
what follows is its consequence; a hint counts only where there is no sign; the word ERROR alone
means nothing, and a line of INFO or WARNING ends no engine; a text without a known line is a
crash, told by its first exception.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autotune.core.causes import CAUSES
from autotune.core.redaction import without_quotes
from autotune.core.trial import Cause
from autotune.errors import LaunchError

TAIL_LINES = 15
NEAR_LINES = 40
DETAIL_LENGTH = 400


@dataclass(frozen=True, slots=True)
class Sign:
    """A line that vLLM prints when it ends for a known cause."""

    pattern: re.Pattern[str]
    cause: Cause
    remedy: str
    near: re.Pattern[str] | None
    """What one of the lines before it must say; None asks nothing."""
    any_level: bool


def _sign(
    pattern: str, cause: Cause, remedy: str = "", *, near: str = "", any_level: bool = False
) -> Sign:
    """Without a remedy of its own it has that of the cause."""
    return Sign(
        pattern=re.compile(pattern),
        cause=cause,
        remedy=remedy or CAUSES[cause].remedy,
        near=re.compile(near) if near else None,
        any_level=any_level,
    )


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
        any_level=True,
    ),
    # live_k.py; a launcher that does not hand PYTHONPATH on, such as a container
    _sign(
        r"autotune: no live K|No module named '?autotune_live_k"
        r"|error: unrecognized arguments: --scheduler-cls",
        Cause.LIVE_K_NOT_IN_FORCE,
    ),
    _sign(r"error: unrecognized arguments:.* --?speculative[-_]config", Cause.ENGINE_TOO_OLD),
    _sign(r"No space left on device|\[Errno 28\]|Disk quota exceeded", Cause.DISK_FULL),
    # vllm/v1/worker: utils.py, cpu_worker.py
    _sign(
        r"on startup is less than (desired (GPU|CPU) memory utilization|the engine's budget)"
        r"|allocation is less than requested memory for kv \((?!-|0\.0/)",
        Cause.MEMORY_OCCUPIED,
    ),
    # vllm/v1/core/kv_cache_utils.py, vllm/v1/worker: utils.py, cpu_worker.py
    _sign(
        r"No available memory for the cache blocks"
        r"|is larger than the (maximum number of tokens|available KV cache memory)"
        r"|KV cache is needed, which is larger than"
        r"|Externally held weights on device .* exceed the desired"
        r"|allocation is less than requested memory for kv",  # nothing, or less, is left for it
        Cause.KV_CACHE_TOO_SMALL,
    ),
    _sign(
        r"OutOfMemoryError|CUDA out of memory|HIP out of memory"
        r"|DefaultCPUAllocator: can't allocate memory|Cannot allocate memory|std::bad_alloc",
        Cause.OUT_OF_MEMORY_START,
    ),
    # sockets, zmq and torch's rendezvous word it differently
    _sign(r"[Aa]ddress already in use|EADDRINUSE|errno: 98\b", Cause.PORT_TAKEN),
    # vllm/config/speculative.py
    _sign(r"should have the same vocabulary size", Cause.VOCABULARY_MISMATCH),
    # vllm/transformers_utils/config.py, model_loader/default_loader.py; the hub, safetensors
    _sign(
        r"Cannot find any model weights with|Invalid repository ID or local directory specified"
        r"|(Repository|LocalEntry|Entry|Revision)NotFoundError|GatedRepoError|HFValidationError"
        r"|is not a valid model identifier|does not appear to have a file named"
        r"|couldn't connect to 'https://|(header too large|HeaderTooLarge|IncompleteBuffer)"
        r"|FileNotFoundError: .*\.(safetensors|bin|json)\b",
        Cause.MISSING_WEIGHTS,
    ),
    # torch/_C/_dynamo/guards: the strides that compiled code was made for
    _sign(r"AssertionError: expected size \d+==\d+, stride", Cause.COMPILE_CACHE),
    _sign(
        r"(not enough|too many) values to unpack|takes \d+ positional arguments? but"
        r"|UnpicklingError|EOFError: Ran out of input",
        Cause.COMPILE_CACHE,
        near=r"torch_compile_cache|torch_aot_compile|inductor_cache|torchinductor",
    ),
    # vllm/model_executor: model_loader/weight_utils.py, default_loader.py, models/utils.py; torch
    _sign(
        r"Attempted to load weight \(|size mismatch for |shapes cannot be multiplied"
        r"|must have the same dtype|to have the same dtype|expected scalar type \w+ but found"
        r"|The size of tensor a \(\d+\) must match|[Nn]o module or parameter named"
        r"|weights were not initialized from checkpoint"
        r"|(KeyError|AttributeError): .*(_scale|_scale_inv|_packed|qweight|qzeros|g_idx|zero_point)"
        r"|KeyError: '[\w.]*(layers\.\d+|lm_head|embed_tokens|d2t|\bfc)\b",
        Cause.WEIGHTS_MISMATCH,
    ),
    # vllm/v1/engine/core_client.py
    _sign(
        r"Timed out waiting for engine core",
        Cause.START_TIMEOUT,
        "give the engine longer: VLLM_ENGINE_READY_TIMEOUT_S in target.env",
    ),
)

HINTS = (
    _sign(r"(ModuleNotFoundError|ImportError): ", Cause.MISSING_PACKAGE),
    _sign(r"Value error, ", Cause.ENGINE_REFUSED),
    _sign(
        r"error: (unrecognized arguments|argument |the following arguments)",
        Cause.ENGINE_REFUSED,
    ),
    _sign(r"ValidationError|validation errors? for", Cause.ENGINE_REFUSED),
    _sign(
        r"Connection reset by peer|ReadTimeout|Max retries exceeded|Temporary failure in name"
        r"|NCCL error.*(remote|network)|HTTP Error 5\d\d|5\d\d Server Error",
        Cause.TRANSIENT,
    ),
)

_PREFIX = r"^(?:\([^)]*\) )*"
_HARMLESS = re.compile(_PREFIX + r"(?:DEBUG|INFO|WARNING) [\d-]+ |.*\bretrying \d+ of \d+")
_ERROR = re.compile(
    _PREFIX + r"(?:ERROR [^\]]*\] )?"
    # vllm/v1/executor/multiproc_executor.py, of a worker that was killed: it raises nothing itself
    r"([A-Za-z_.]*(?:Error|Exception)\b.*|Worker proc \S+ died unexpectedly.*)"
)
_CONSEQUENCE = re.compile(r"Engine core initialization failed|EngineDeadError")
_CAPTURING = re.compile(r"Capturing (CUDA graph|model for|(prefill|decode) CUDA graph)")
_CAPTURED = re.compile(r"Graph capturing finished")


def diagnose(text: str, *, starting: bool, status: str) -> LaunchError:
    """The cause of an engine's end, from the first known line; else a crash, by its first error."""
    lines = text.splitlines()
    found = next(_signs(lines), None) or next(_hints(lines), None)
    if found:
        sign, number = found
        cause, remedy = _phase(sign, lines[:number], starting)
        return LaunchError(cause, clean(lines[number]), remedy)
    cause = Cause.CRASHED_START if starting else Cause.CRASHED_RUNTIME
    return LaunchError(cause, f"the engine ended ({status}); {_first_error(lines)}")


def engine_died(text: str) -> bool:
    """Whether the log tells the end of the engine behind a server that still answers."""
    return "EngineDeadError" in text


def clean(line: str) -> str:
    """Without process and logger in front, and what pydantic repeats of its input behind."""
    bare = re.sub(_PREFIX + r"(?:[A-Z]+ [\d-]+ [\d:]+ \[[^\]]*\] )?", "", line)
    return re.sub(r" \[type=\w+, input_value=.*", "", bare).strip()[:DETAIL_LENGTH]


def _signs(lines: Sequence[str]) -> Iterator[tuple[Sign, int]]:
    for number, line in enumerate(lines):
        harmless = _HARMLESS.match(line)
        for sign in SIGNS:
            if (sign.any_level or not harmless) and sign.pattern.search(line):
                before = lines[max(number - NEAR_LINES, 0) : number]
                if sign.near is None or any(map(sign.near.search, before)):
                    yield sign, number


def _hints(lines: Sequence[str]) -> Iterator[tuple[Sign, int]]:
    for hint in HINTS:
        for number, line in enumerate(lines):
            if hint.pattern.search(line) and not _HARMLESS.match(line):
                yield hint, number


def _phase(sign: Sign, before: Sequence[str], starting: bool) -> tuple[Cause, str]:  # noqa: FBT001
    """Out of memory is told apart by when it strikes."""
    if sign.cause is not Cause.OUT_OF_MEMORY_START:
        return sign.cause, sign.remedy
    cause: Cause = sign.cause
    if not starting:
        cause = Cause.OUT_OF_MEMORY_RUNTIME
    elif _capturing(before):
        cause = Cause.OUT_OF_MEMORY_CAPTURE
    return cause, CAUSES[cause].remedy


def _capturing(before: Sequence[str]) -> bool:
    for line in reversed(before):
        if _CAPTURED.search(line):
            return False
        if _CAPTURING.search(line):
            return True
    return False


def _first_error(lines: Sequence[str]) -> str:
    for line in lines:
        match = _ERROR.match(line)
        if match and not _CONSEQUENCE.search(line) and not _HARMLESS.match(line):
            return match.group(1)[:DETAIL_LENGTH]
    tail = [line for line in lines if line.strip()][-TAIL_LINES:]
    return "its last lines:\n" + without_quotes("\n".join(tail))
