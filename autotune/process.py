"""A child process that always goes with us: own session, log file, TERM - wait - KILL - reap.

Rules: no shell; only processes that we started are touched, by id and start time; when `stop`
returns, the whole tree is gone, or it raises. A child also gets SIGTERM from the kernel when
autotune itself is killed.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import psutil

PR_SET_PDEATHSIG = 1
POLL_S = 0.1
KILL_S = 10.0
ORPHAN_GRACE_S = 20.0
SAME_START_S = 1.0

_LIBC = ctypes.CDLL(None)  # loaded here: between fork and exec the loader's lock may be held


class ProcessWedgedError(RuntimeError):
    """A process survived SIGKILL: the machine needs a person."""


class Child:
    """A running child and everything it started."""

    def __init__(self, popen: "subprocess.Popen[bytes]", log: Path) -> None:
        self._popen = popen
        self.log = log
        self.pid = popen.pid
        self.stopped_by_us = False

    @property
    def exit_status(self) -> int | None:
        """The exit status (negative: killed by that signal), or None while it runs."""
        return self._popen.poll()

    def stop(self, grace_s: float = 20.0) -> None:
        """End the whole tree; raises ProcessWedgedError if something outlives SIGKILL.

        An interrupt while it waits (a second Ctrl-C) kills at once instead of waiting any longer.
        """
        self.stopped_by_us = True
        try:
            left = _end(self.pid, self._tree, grace_s)
        except BaseException:
            _end(self.pid, self._tree, 0.0)
            raise
        if left:
            pids = ", ".join(str(p.pid) for p in left)
            raise ProcessWedgedError(f"processes {pids} survived SIGKILL; free them by hand")
        self._popen.wait(timeout=KILL_S)

    def _tree(self) -> list[psutil.Process]:
        ended = self._popen.poll() is not None  # reaps the leader, which would stay a zombie
        if ended and psutil.pid_exists(self.pid):
            return []  # someone else's: the kernel gives no id away while its session lives
        return _members(self.pid)


@contextlib.contextmanager
def running(
    argv: Sequence[str], *, env: Mapping[str, str], log: Path, grace_s: float = 20.0
) -> Iterator[Child]:
    """Start a child with its output in `log`; it is gone when the block ends, however it ends."""
    with log.open("ab") as sink:
        popen = subprocess.Popen(
            list(argv),
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - one prctl call, no locks are taken
        )
    child = Child(popen, log)
    try:
        yield child
    finally:
        child.stop(grace_s)


def end_orphan(pid: int, created: float) -> bool:
    """End what an earlier autotune left behind of a child's tree; True if something was.

    `created` is psutil's create_time of the child: a recycled pid is never touched.
    """

    def tree() -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            if abs(psutil.Process(pid).create_time() - created) > SAME_START_S:
                return []
        return [p for p in _members(pid) if _started(p) > created - SAME_START_S]

    found = any(map(_lives, tree()))
    if found:
        _end(pid, tree, ORPHAN_GRACE_S)
    return found


def created(pid: int) -> float:
    """When a process was started, seconds since the epoch."""
    return float(psutil.Process(pid).create_time())


def _die_with_parent() -> None:
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _end(
    pid: int, tree: Callable[[], list[psutil.Process]], grace_s: float
) -> list[psutil.Process]:
    """SIGTERM, wait, SIGKILL, wait; gives what is left. `tree` lists who lives, anew each time."""
    seen: dict[int, psutil.Process] = {}
    for number, timeout_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, KILL_S)):
        for process in _living(seen, tree):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                process.send_signal(number)
        deadline = time.monotonic() + timeout_s
        while _living(seen, tree) and time.monotonic() < deadline:
            time.sleep(POLL_S)
    return _living(seen, tree)


def _living(
    seen: dict[int, psutil.Process], tree: Callable[[], list[psutil.Process]]
) -> list[psutil.Process]:
    # What was once part of the tree stays part of it, also when its parent has ended.
    seen.update((p.pid, p) for p in tree() if p.pid not in seen)
    return [p for p in seen.values() if _lives(p)]


def _members(pid: int) -> list[psutil.Process]:
    """The child, its descendants, and its session: whoever lost its parent is still in that."""
    found = [p for p in psutil.process_iter() if _session(p.pid) == pid]
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        found += [root, *root.children(recursive=True)]
    return found


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None


def _started(process: psutil.Process) -> float:
    try:
        return float(process.create_time())
    except psutil.NoSuchProcess:
        return 0.0


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
