"""What every measured client shares: its task, its core, and the meter around its timed part.

Laws: a client is one process on a core of its own; what counts is its CPU time, user and system,
from the first timed request until its results are there, imports and warm-up left out.
"""

import json
import os
import resource
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

import psutil


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a client has to do."""

    base_url: str
    model: str
    server_pid: int
    cpu: int
    """The core to stay on."""
    streams: int
    requests: int
    warmup: int
    """Requests that are sent and answered before the meter starts."""
    tokens: int
    """Output tokens of each request."""
    uvloop: bool = False
    """Run on uvloop a client that does not do so by itself."""

    @classmethod
    def take(cls) -> "Task":
        """The task in argv; the process stays on the task's core from now on."""
        task = cls(**json.loads(sys.argv[1]))
        os.sched_setaffinity(0, {task.cpu})
        return task

    def prompts(self) -> list[str]:
        """The timed requests' texts, which tell them apart."""
        return [f"Say {n}" for n in range(self.requests)]


class Reading(NamedTuple):
    """Seconds since the meter was made."""

    cpu_s: float
    wall_s: float
    server_cpu_s: float
    core_busy_s: float
    """What the client's core was busy with, the client included."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a client did in its timed part."""

    reading: Reading
    version: str
    tokens: int
    """As the client counted them, from `usage`."""
    chunks: int
    """Chunks that got a time of their own."""
    faults: list[str] = field(default_factory=list)
    ttft_s: dict[str, float] = field(default_factory=dict)
    """By prompt, from a client that tells."""

    def give(self) -> None:
        """To whoever started this process, as the last line of stdout."""
        told = asdict(self) | {"reading": self.reading._asdict()}
        sys.stdout.write(f"\n{json.dumps(told)}\n")


class Meter:
    """The time used by this process, the server and this core since the meter was made."""

    def __init__(self, task: Task) -> None:
        self._server = psutil.Process(task.server_pid)
        self._cpu = task.cpu
        self._began = self._now()

    def read(self) -> Reading:
        """What has been used so far."""
        return Reading(*(now - then for now, then in zip(self._now(), self._began, strict=True)))

    def _now(self) -> Reading:
        used = resource.getrusage(resource.RUSAGE_SELF)
        server = self._server.cpu_times()
        core = psutil.cpu_times(percpu=True)[self._cpu]
        return Reading(
            cpu_s=used.ru_utime + used.ru_stime,
            wall_s=time.monotonic(),
            server_cpu_s=server.user + server.system,
            core_busy_s=sum(core) - core.idle - core.iowait,
        )
