"""What vLLM's log says: facts about the engine, and what spoils a pass.

Rule: what is told is told in the engine's own words, without process and logger; why it ended is
read in _signs.py.
"""

import ast
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from autotune.core.redaction import GRAMMAR
from autotune.core.schedule import SCHEDULE_DISABLED
from autotune.engines._signs import clean
from autotune.engines._versions import START_LINE

GIB = 1 << 30
HALF_BYTES = 2_000_000


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
            spoiling.append(f"{event.what}: {clean(line)[:EVENT_LENGTH]}")
        else:
            warnings[event.what] += 1
    return spoiling, warnings


def read(log: Path) -> str:
    """The log as text, torn bytes replaced; of a very long one its beginning and its end."""
    with log.open("rb") as file:
        head = file.read(HALF_BYTES)
        file.seek(max(log.stat().st_size - HALF_BYTES, len(head)))
        return (head + file.read()).decode("utf-8", errors="replace")


def version(text: str) -> str | None:
    """`0.32.0` from the engine's own start line."""
    match = START_LINE.search(text)
    return match.group(1) if match else None


def resolved(text: str) -> dict[str, str]:
    """Settings as the engine resolved them, from its start line and what it says beside it."""
    line = next((x for x in text.splitlines() if START_LINE.search(x)), "")
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
    # vllm/config/vllm.py: with several data-parallel ranks
    SCHEDULE_DISABLED: r"Disabling num_speculative_tokens_per_batch_size and falling back (to .*)",
}
"""What else is told of itself: name and pattern."""

GIVEN = ("max_num_seqs",)
"""Arguments that no line tells but that of the arguments given."""
