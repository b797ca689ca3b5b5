"""A child process that always goes with us: own session, log file, TERM - wait - KILL - reap.

Rules: no shell; only processes that we started are touched, by id and start time, and only in the
boot that they were started in; when `stop` returns, the whole tree is gone, or it raises. When
autotune itself is killed, a child gets SIGTERM from the kernel and its whole tree is ended by a
guard (`python -m autotune.process`) that waits for nothing else; what outlives that is found by the
note that lies in a file for as long as a child lives.
"""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from autotune.files import write_text

NOTE = "process.json"
PR_SET_PDEATHSIG = 1
POLL_S = 0.1
KILL_S = 10.0
ORPHAN_GRACE_S = 20.0
GUARD_GRACE_S = 3.0
DONE = "done"
SAME_START_S = 1.0

_LIBC = ctypes.CDLL(None)  # loaded here: between fork and exec the loader's lock may be held


class ProcessWedgedError(RuntimeError):
    """A process survived SIGKILL: the machine needs a person."""


class TornNoteError(ValueError):
    """A note that does not say which process it is about."""


class Child:
    """A running child and everything it started."""

    def __init__(self, popen: "subprocess.Popen[bytes]", log: Path) -> None:
        self._popen = popen
        self.log = log
        self.pid = popen.pid
        self._started = time.monotonic()

    @property
    def exit_status(self) -> int | None:
        """The exit status (negative: killed by that signal), or None while it runs."""
        return self._popen.poll()

    @property
    def age_s(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self._started

    @property
    def pids(self) -> frozenset[int]:
        """The ids of the whole tree, as it is now."""
        return frozenset(p.pid for p in self._tree())

    def stop(self, grace_s: float = 20.0) -> None:
        """End the whole tree; raises ProcessWedgedError if something outlives SIGKILL.

        An interrupt while it waits (a second Ctrl-C) kills at once instead of waiting any longer.
        """
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
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    log: Path,
    note: Path | None = None,
    grace_s: float = 20.0,
) -> Iterator[Child]:
    """Start a child with its output in `log`; it is gone when the block ends, however it ends.

    `note` is the file that tells of it until then, for `end_orphan`.
    """
    with _guard() as guard:
        child = _start(argv, env, log)
        try:
            about = _about(child.pid)
            _tell(guard, about)
            if note:
                write_text(note, about)
            yield child
        finally:
            child.stop(grace_s)
            if note:
                note.unlink(missing_ok=True)


def _start(argv: Sequence[str], env: Mapping[str, str], log: Path) -> Child:
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
    return Child(popen, log)


@contextlib.contextmanager
def _guard() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that ends a child's tree when we go without having done so.

    The kernel's signal on the death of a parent reaches the child alone, and a server that is
    starting may take its time over it; its workers learn nothing. The guard reads which process
    it is about, and then the end of its input: the pipe closes with us, however we end.
    """
    guard = subprocess.Popen(
        [sys.executable, "-m", "autotune.process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield guard
    finally:
        _tell(guard, DONE)
        if guard.stdin:
            with contextlib.suppress(OSError):
                guard.stdin.close()
        try:
            guard.wait(timeout=KILL_S)
        except subprocess.TimeoutExpired:
            guard.kill()
            guard.wait()


def _tell(guard: "subprocess.Popen[bytes]", line: str) -> None:
    if guard.stdin is None:
        return
    with contextlib.suppress(OSError):  # it was killed: the note is left
        guard.stdin.write(line.encode() + b"\n")
        guard.stdin.flush()


def _stand_guard() -> None:
    """What the guard does."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    lines = sys.stdin.read().splitlines()
    if lines and lines[-1] != DONE:
        _end_tree(lines[0], GUARD_GRACE_S)


def _about(pid: int) -> str:
    """Which process that is: its id, its start, and the boot that both belong to."""
    created = psutil.Process(pid).create_time()
    return json.dumps({"pid": pid, "created": created, "boot_id": _boot_id()})


def write_note(path: Path, pid: int) -> None:
    """Write down which process that is."""
    write_text(path, _about(pid))


def end_orphan(note: Path) -> int | None:
    """End what an earlier autotune left behind of a child's tree; gives its id if something was.

    A recycled id is never touched. Raises TornNoteError.
    """
    try:
        return _end_tree(note.read_text(encoding="utf-8"), ORPHAN_GRACE_S)
    except (ValueError, KeyError, TypeError) as error:
        raise TornNoteError(f"{note} does not tell which process it is about") from error


def _end_tree(text: str, grace_s: float) -> int | None:
    about = json.loads(text)
    pid, created, boot = int(about["pid"]), float(about["created"]), about["boot_id"]
    if boot != _boot_id():
        return None

    def tree() -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            if abs(psutil.Process(pid).create_time() - created) > SAME_START_S:
                return []
        return [p for p in _members(pid) if _started(p) > created - SAME_START_S]

    if not any(map(_lives, tree())):
        return None
    _end(pid, tree, grace_s)
    return pid


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


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


if __name__ == "__main__":
    _stand_guard()
