"""The device that an engine will run on: name, driver, free memory.

Rule: no torch, no CUDA context: nvidia-smi tells for GPUs, psutil for CPUs.
"""

import functools
import shutil
import subprocess
from pathlib import Path

import psutil


def device_name() -> str:
    """`NVIDIA H200`, or `cpu: AMD EPYC, 2 cores`."""
    gpu = _nvidia("name")
    return gpu or f"cpu: {_cpu_model()}, {psutil.cpu_count()} cores"


def driver_version() -> str:
    """The NVIDIA driver's version; empty without one."""
    return _nvidia("driver_version")


def free_memory(visible: str = "") -> tuple[int, ...]:
    """Free bytes of each device that the engine may fill: GPUs, or RAM.

    `visible` is CUDA_VISIBLE_DEVICES. One number for each, since a sum hides the one GPU that is
    still full among many, and a minimum sees only the fullest, which may be somebody else's.
    """
    if device_name().startswith("cpu"):
        return (int(psutil.virtual_memory().available),)
    gpus = [tuple(map(str.strip, row.split(","))) for row in _query("index,uuid,memory.free")]
    asked = [word.strip() for word in visible.split(",") if word.strip()]
    ours = [g for g in gpus if any(g[0] == a or g[1].startswith(a) for a in asked)] or gpus
    return tuple(int(gpu[-1]) << 20 if gpu[-1].isdigit() else 0 for gpu in ours)


@functools.cache
def _nvidia(field: str) -> str:
    return next(iter(_query(field)), "")


def _query(fields: str) -> list[str]:
    """One line for each GPU; none without a GPU."""
    if shutil.which("nvidia-smi") is None:
        return []
    argv = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


@functools.cache
def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else "unknown"
