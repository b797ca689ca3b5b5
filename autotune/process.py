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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

PR_SET_PDEATHSIG = 1
POLL_S = 0.1


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
        """End the whole tree; raises ProcessWedgedError if something outlives SIGKILL."""
        self.stopped_by_us = True
        tree = self._tree()
        _signal_group(self.pid, signal.SIGTERM)
        left = self._wait(tree, grace_s)
        if left:
            _signal_group(self.pid, signal.SIGKILL)
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            left = self._wait(left, 10.0)
        self._popen.wait(timeout=10.0)
        if left:
            pids = ", ".join(str(p.pid) for p in left)
            raise ProcessWedgedError(f"processes {pids} survived SIGKILL; free them by hand")

    def _tree(self) -> list[psutil.Process]:
        try:
            root = psutil.Process(self.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return _group_members(self.pid)

    def _wait(self, processes: Sequence[psutil.Process], timeout_s: float) -> list[psutil.Process]:
        deadline = time.monotonic() + timeout_s
        left = [p for p in processes if _lives(p)]
        while left and time.monotonic() < deadline:
            self._popen.poll()  # reaps the leader, so that it does not count as a zombie
            time.sleep(POLL_S)
            left = [p for p in left if _lives(p)]
        return left


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
    """End a process tree left by an earlier autotune; True if it was still there.

    `created` is psutil's create_time: a recycled pid is never touched.
    """
    try:
        root = psutil.Process(pid)
        if abs(root.create_time() - created) > 1.0:
            return False
        tree = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return False
    for process in tree:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    _, left = psutil.wait_procs(tree, timeout=20.0)
    for process in left:
        process.kill()
    psutil.wait_procs(left, timeout=10.0)
    return True


def created(pid: int) -> float:
    """When a process was started, seconds since the epoch."""
    return float(psutil.Process(pid).create_time())


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _signal_group(pgid: int, number: signal.Signals) -> None:
    # The child leads its own session, so its group holds only what it started.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pgid, number)


def _group_members(pgid: int) -> list[psutil.Process]:
    members = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            if os.getpgid(process.pid) == pgid:
                members.append(process)
    return members


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
