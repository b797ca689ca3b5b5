"""The device that an engine runs on: name, driver, free memory, and what it gave for a while.

Rule: no torch, no CUDA context: nvidia-smi tells for GPUs, psutil for CPUs. nvidia-smi takes a good
part of a second, so it is never asked while something is timed.
"""

import functools
import shutil
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from autotune.core.host import HostLoad

GIB = 1 << 30
LEAST_HELD = GIB // 8
APPS = "pid,process_name,used_memory"
INSTRUCTIONS = ("amx_bf16", "avx512_bf16", "avx512f", "avx2")


def device_name() -> str:
    """`NVIDIA H200`, or `cpu: AMD EPYC, 2 cores, avx512_bf16`.

    The instructions are part of it: machines of one name differ by factors for the lack of them.
    """
    gpu = _nvidia("name")
    return gpu or f"cpu: {_cpu_model()}, {psutil.cpu_count()} cores, {_instructions()}"


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
    free = [row[-1] for row in _of_gpus("memory.free", visible)]
    return tuple(int(mib) << 20 if mib.isdigit() else 0 for mib in free)


def total_memory(visible: str = "") -> int | None:
    """Bytes of the smallest GPU that `visible` leaves; None where nothing tells."""
    told = [row[-1] for row in _of_gpus("memory.total", visible)]
    return min((int(mib) << 20 for mib in told if mib.isdigit()), default=None)


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds memory of the device."""

    pid: int
    name: str
    held_bytes: int

    def told(self) -> str:
        """`pid 4711 (python, 3.2 GiB)`."""
        return f"pid {self.pid} ({self.name}, {self.held_bytes / GIB:.1f} GiB)"


def holders(ours: Collection[int]) -> list[Holder]:
    """Who else holds memory of the device, as far as it can be seen, the largest first."""
    cpu = device_name().startswith("cpu")
    found = _of_ram() if cpu else _of_gpu_memory()
    others = [h for h in found if h.pid not in ours and h.held_bytes >= LEAST_HELD]
    return sorted(others, key=lambda h: -h.held_bytes)


def _of_ram() -> list[Holder]:
    fields = [p.info for p in psutil.process_iter(["pid", "name", "memory_info"])]
    return [Holder(f["pid"], f["name"], f["memory_info"].rss) for f in fields if f["memory_info"]]


def _of_gpu_memory() -> list[Holder]:
    """In a container the ids may be those of the host, and the memory `[N/A]`."""
    rows = [[cell.strip() for cell in row.split(",")] for row in _query(APPS, of="compute-apps")]
    return [
        Holder(int(row[0]), Path(row[1]).name, int(row[-1]) << 20)
        for row in rows
        if row[0].isdigit() and row[-1].isdigit()
    ]


def short_of_disk(places: Mapping[Path, int]) -> str | None:
    """The first place with less free than it needs, in bytes; one not made yet is its parent."""
    for place, least in places.items():
        there = next(p for p in (place, *place.parents) if p.exists())
        free = shutil.disk_usage(there).free
        if free < least:
            return f"{place} has {free >> 20} MiB left, it needs {least >> 20} at least"
    return None


def memory(visible: str = "") -> tuple[tuple[int, int], ...]:
    """All bytes, and the free ones, of each device that the engine may fill; as in free_memory."""
    if device_name().startswith("cpu"):
        now = psutil.virtual_memory()
        return ((int(now.total), int(now.available)),)
    rows = [row[-2:] for row in _of_gpus("memory.total,memory.free", visible)]
    return tuple((int(a) << 20, int(b) << 20) for a, b in rows if a.isdigit() and b.isdigit())


@dataclass(frozen=True, slots=True)
class HostReading:
    """The machine at one moment; two of them tell what it gave in between."""

    cpu_s: float
    """CPU time so far, all cores and all uses of it, idling included."""
    stolen_s: float
    mhz: float | None

    @classmethod
    def now(cls) -> "HostReading":
        """Read it."""
        times = psutil.cpu_times()
        # `guest` is part of `user`, so it is not added once more.
        used = times.user + times.nice + times.system + times.idle
        used += times.iowait + times.irq + times.softirq + times.steal
        return cls(used, times.steal, _clock_mhz())


def _clock_mhz() -> float | None:
    """Mean over the cores; 0 and an error are how psutil says that nobody tells."""
    try:
        clock = psutil.cpu_freq()
    except (OSError, NotImplementedError):
        return None
    return clock.current if clock and clock.current else None


def host_load(before: HostReading, *, gpu: bool, visible: str = "") -> HostLoad:
    """What the machine gave since a reading; `gpu` asks nvidia-smi, too."""
    after = HostReading.now()
    passed = after.cpu_s - before.cpu_s
    clocks = [mhz for mhz in (before.mhz, after.mhz) if mhz is not None]
    rows = _of_gpus("clocks.sm,temperature.gpu,power.draw", visible) if gpu else []
    told = [[_number(cell) for cell in row[-3:]] for row in rows]
    sm, celsius, watts = ([v for v in column if v is not None] for column in _columns(told))
    return HostLoad(
        load_1m=round(psutil.getloadavg()[0], 2),
        steal=round((after.stolen_s - before.stolen_s) / passed, 4) if passed > 0 else None,
        cpu_mhz=round(sum(clocks) / len(clocks), 1) if clocks else None,
        gpu_mhz=min(sm, default=None),
        gpu_celsius=max(celsius, default=None),
        gpu_watts=max(watts, default=None),
    )


def _columns(rows: list[list[float | None]]) -> list[list[float | None]]:
    return [[row[i] for row in rows] for i in range(3)]


def _number(cell: str) -> float | None:
    """What nvidia-smi says, which may be `[N/A]`."""
    try:
        return float(cell)
    except ValueError:
        return None


def _of_gpus(fields: str, visible: str) -> list[list[str]]:
    """Index, uuid and fields of each GPU that `visible`, CUDA_VISIBLE_DEVICES, leaves."""
    gpus = [[cell.strip() for cell in row.split(",")] for row in _query(f"index,uuid,{fields}")]
    asked = [word.strip() for word in visible.split(",") if word.strip()]
    return [g for g in gpus if any(g[0] == a or g[1].startswith(a) for a in asked)] or gpus


@functools.cache
def _nvidia(field: str) -> str:
    return next(iter(_query(field)), "")


def _query(fields: str, of: str = "gpu") -> list[str]:
    """One line for each GPU, or for what is asked for of them; none without a GPU."""
    if shutil.which("nvidia-smi") is None:
        return []
    argv = ["nvidia-smi", f"--query-{of}={fields}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


@functools.cache
def _cpu_model() -> str:
    return _cpuinfo("model name") or "unknown"


def _instructions() -> str:
    """The widest of the instruction sets that vLLM's CPU kernels tell apart."""
    flags = _cpuinfo("flags").split()
    return next((name for name in INSTRUCTIONS if name in flags), "no vector instructions known")


def _cpuinfo(key: str) -> str:
    """What /proc/cpuinfo says of the first core; empty elsewhere."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    return next((x.partition(":")[2].strip() for x in lines if x.startswith(key)), "")
