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


def free_memory() -> int:
    """Free bytes of what the engine fills: the GPU's memory, or RAM."""
    if not device_name().startswith("cpu"):
        free = _query("memory.free")
        return int(free) * 1024 * 1024 if free.isdigit() else 0
    return int(psutil.virtual_memory().available)


@functools.cache
def _nvidia(field: str) -> str:
    return _query(field)


def _query(field: str) -> str:
    if shutil.which("nvidia-smi") is None:
        return ""
    argv = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.splitlines()[0].strip() if done.stdout.strip() else ""


@functools.cache
def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else "unknown"
