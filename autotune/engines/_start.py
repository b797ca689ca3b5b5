"""From a started process to a server that has answered, or to the reason why it did not.

Rules: the deadlines are ours; who answers must be the engine that was started, not a proxy and not
another server; a device that is full is the fault of whoever fills it, told by process id.
"""

import contextlib
import os
import re
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from autotune import process
from autotune.core.trial import Cause
from autotune.engines import _logs, _signs
from autotune.engines._host import GIB, Holder, free_memory, short_of_disk
from autotune.engines._http import HttpGoneError, complete, get, served_models
from autotune.errors import LaunchError
from autotune.ports import ServeOrder

READY_POLL_S = 0.25
COMPLETION_S = 120.0
MEMORY_SETTLE_S = 30.0
MEMORY_SLACK = 0.03  # of what was free before; page cache and the like move that much by themselves
CACHE_ROOT = "VLLM_CACHE_ROOT"
MIB = 1 << 20
LEAST_DISK = 256 * MIB
LEAST_SHARED_MEMORY = 8 * MIB
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - only looked at
HOLDERS_TOLD = 5
GPU_RESERVE_GIB = 1.0
"""What driver and contexts take of a device that nobody uses."""
PROXIES = ("http_proxy", "https_proxy", "all_proxy")

_ROOM = re.compile(
    r"\((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\) on startup is less than .*?"
    r"\([\d.]+, (?P<wanted>[\d.]+) GiB\)"
)


def check_disk(order: ServeOrder, env: Mapping[str, str]) -> None:
    """Raise before a launch that would only find out when it writes."""
    places = {order.folder: LEAST_DISK, Path(tempfile.gettempdir()): LEAST_DISK}
    if not order.launcher:  # elsewhere, caches are elsewhere
        places[cache_root(env)] = LEAST_DISK
    if SHARED_MEMORY.exists():
        places[SHARED_MEMORY] = LEAST_SHARED_MEMORY
    short = short_of_disk(places)
    if short:
        raise LaunchError(Cause.DISK_FULL, short)


def cache_root(env: Mapping[str, str]) -> Path:
    """Where vLLM keeps compiled code (vllm/envs.py)."""
    home = env.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(env.get(CACHE_ROOT) or Path(home) / "vllm").expanduser().absolute()


def wait_ready(child: process.Child, url: str, order: ServeOrder) -> None:
    """Return when the server has completed a request; raise what keeps it from that."""
    Starting(child, url, order).wait()


@dataclass(frozen=True, slots=True)
class Starting:
    """A child that is to become a server."""

    child: process.Child
    url: str
    order: ServeOrder

    def wait(self) -> None:
        """Its steps: healthy, ours, and able to complete something."""
        self._healthy()
        self._ours()
        left = min(COMPLETION_S, max(self.order.start_timeout_s - self.child.age_s, 5.0))
        problem = complete(self.url, self.order.model, timeout_s=left)
        if problem:
            self._alive()
            told = f"healthy, but the first completion failed: {problem}"
            raise LaunchError(Cause.ENGINE_STALLED, told)

    def _healthy(self) -> None:
        silence = Silence(self.child.log)
        while True:
            self._alive()
            self._in_time(silence)
            try:
                get(self.url + "/health", timeout_s=5.0)
            except HttpGoneError as error:
                _no_proxy(self.url, error)
            else:
                return
            time.sleep(READY_POLL_S)

    def _alive(self) -> None:
        if self.child.exit_status is not None:
            raise ended(self.child, starting=True)

    def _in_time(self, silence: "Silence") -> None:
        order, silent = self.order, silence.seconds()
        if self.child.age_s > order.start_timeout_s:
            told = f"not ready {order.start_timeout_s:.0f} s after the start"
            raise LaunchError(Cause.START_TIMEOUT, f"{told}; {silence.last_line()}")
        if silent > order.silence_s:
            told = f"no line in the engine's log for {silent:.0f} s of its start"
            raise LaunchError(Cause.START_STALLED, f"{told}; {silence.last_line()}")

    def _ours(self) -> None:
        """The port was free a moment ago, but someone else may have been quicker."""
        port = int(self.url.rpartition(":")[2])
        listeners = _listening(port) if not self.order.launcher else frozenset()
        if listeners and not listeners & self.child.pids:
            pids = ", ".join(map(str, sorted(listeners)))
            raise LaunchError(Cause.WRONG_SERVER, f"port {port} is served by process {pids}")
        with contextlib.suppress(HttpGoneError):
            names = served_models(self.url)
            if self.order.model not in names:
                told = f"{self.url} serves {', '.join(names)}, not {self.order.model}"
                raise LaunchError(Cause.WRONG_SERVER, told)


class Silence:
    """How long a log has not grown."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._size = -1
        self._since = time.monotonic()

    def seconds(self) -> float:
        """Since it last grew, as far as it was looked at."""
        size = self._log.stat().st_size
        if size != self._size:
            self._size, self._since = size, time.monotonic()
        return time.monotonic() - self._since

    def last_line(self) -> str:
        """What it ends with."""
        lines = [line for line in _logs.read(self._log).splitlines() if line.strip()]
        return f"the log ends with: {_signs.clean(lines[-1])}" if lines else "the log is empty"


def ended(child: process.Child, *, starting: bool) -> LaunchError:
    """Why a child is no more, or no more than a shell."""
    text, code = _logs.read(child.log), child.exit_status
    if code is None:
        status = "its HTTP server still answers"
    elif code < 0:
        killed = " (SIGKILL: by the kernel for want of memory, or by hand)"
        status = f"signal {-code}{killed if -code == signal.SIGKILL else ''}"
    else:
        status = f"exit status {code}"
    error = _signs.diagnose(text, starting=starting, status=status)
    after_s = child.age_s if starting and code is not None else None
    return LaunchError(error.cause, error.detail, error.remedy, after_s=after_s)


def whose_memory(error: LaunchError, others: Sequence[Holder], *, gpu: bool) -> LaunchError:
    """Whether the missing memory is held by others, or is not there at all.

    vLLM has one message for both. Together with everybody else gone, there would be `free` and what
    they hold; where even that does not suffice, too much was asked for.
    """
    room = _ROOM.search(error.detail)
    if error.cause is not Cause.MEMORY_OCCUPIED or room is None:
        return error
    free, total, wanted = (float(room[name]) for name in ("free", "total", "wanted"))
    held = sum(h.held_bytes for h in others) / GIB
    if gpu:  # their ids may be out of sight, in other containers
        held = max(held, total - free - GPU_RESERVE_GIB)
    if free + held < wanted:
        return LaunchError(Cause.UTILIZATION_TOO_HIGH, error.detail, after_s=error.after_s)
    told = ", ".join(h.told() for h in others[:HOLDERS_TOLD]) or "processes out of sight"
    detail = f"{error.detail}; held by {told}"
    return LaunchError(error.cause, detail, after_s=error.after_s)


def wait_for_memory(error: LaunchError, visible: str) -> None:
    """Return when there is what the engine found missing, or time is up."""
    room = _ROOM.search(error.detail)
    if room:
        _settle(visible, [float(room["wanted"]) * GIB] * len(free_memory(visible)))


@contextlib.contextmanager
def memory_back(visible: str) -> Iterator[None]:
    """When this ends, however it ends, every device has back what it had free, or time is up."""
    before = free_memory(visible)
    try:
        yield
    finally:
        # Page cache may keep some; what matters is that the next launch is not refused for memory.
        _settle(visible, [then * (1 - MEMORY_SLACK) for then in before])


def _settle(visible: str, wanted: Sequence[float]) -> None:
    deadline = time.monotonic() + MEMORY_SETTLE_S
    while time.monotonic() < deadline:
        if all(now >= need for now, need in zip(free_memory(visible), wanted, strict=False)):
            return
        time.sleep(0.2)


def _no_proxy(url: str, error: HttpGoneError) -> None:
    """Our clients ask no proxy: an answer of one means that something redirects loopback."""
    if not error.proxy:
        return
    given = [name for name in os.environ if name.lower() in PROXIES]
    told = f"{url} was answered by a proxy ({error.proxy}): {error}"
    if given:
        told += f"; set in the environment: {', '.join(given)}"
    raise LaunchError(Cause.PROXY_ANSWERED, told) from error


def _listening(port: int) -> frozenset[int]:
    """Who listens on that port, as far as it can be seen."""
    try:
        found = psutil.net_connections(kind="tcp")
    except (psutil.AccessDenied, OSError):
        return frozenset()
    return frozenset(
        c.pid
        for c in found
        if c.status == psutil.CONN_LISTEN and c.laddr and c.laddr.port == port and c.pid
    )
