"""No process outlives its block, and nothing that we did not start is touched."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from autotune import process
from autotune.cli import running as running_study
from autotune.process import NOTE, TornNoteError, end_orphan, running, write_note
from autotune.tuning.paths import StudyPaths

TREE = """
import os, signal, subprocess, sys, time
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "parent" in sys.argv:
    rest = [a for a in sys.argv[1:] if a not in ("parent", "leaves")]
    subprocess.Popen([sys.executable, "-c", os.environ["CODE"], *rest])
    if "leaves" in sys.argv:
        sys.exit(7)
else:
    with open(os.environ["PIDS"], "a") as file:
        file.write(f"{os.getpid()}\\n")
time.sleep(60)
"""

STARTER = """
import os, sys, time
from pathlib import Path
from autotune.process import running
with running(sys.argv[1:], env=os.environ, log=Path(os.environ["PIDS"] + ".log")) as child:
    time.sleep(60)
"""


def wait_for(true: Callable[[], bool], timeout_s: float = 20.0) -> bool:
    """Whether it becomes true in time."""
    deadline = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def lives(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Tree:
    """A child that starts a grandchild, and where the grandchild writes its process id."""

    def __init__(self, folder: Path) -> None:
        self.pids = folder / "pids"
        self.log = folder / "child.log"
        self.note = folder / "process.json"
        self.env = {**os.environ, "CODE": TREE, "PIDS": str(self.pids)}

    def argv(self, *words: str) -> list[str]:
        """How to start it."""
        return [sys.executable, "-c", TREE, *words]

    def grandchild(self) -> int:
        """Its process id, once it runs."""
        assert wait_for(lambda: self.pids.exists() and self.pids.read_text().endswith("\n"))
        return int(self.pids.read_text().split()[0])


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    """A tree that is cleaned up even when the code under test fails to."""
    made = Tree(tmp_path)
    yield made
    if made.pids.exists():
        for pid in map(int, made.pids.read_text().split()):
            if lives(pid):
                os.kill(pid, signal.SIGKILL)


def test_whole_tree_is_gone_after_the_block(tree: Tree) -> None:
    """Child and grandchild have ended when the block has."""
    with running(tree.argv("parent"), env=tree.env, log=tree.log) as child:
        pids = (child.pid, tree.grandchild())
        assert all(map(lives, pids))
        assert child.exit_status is None
    assert not any(map(lives, pids))
    assert child.exit_status == -signal.SIGTERM


def test_tree_is_gone_when_the_block_raises(tree: Tree) -> None:
    """An exception ends the tree and goes on its way."""
    with (  # noqa: PT012 - the block under test is what raises
        pytest.raises(RuntimeError, match="measuring failed"),
        running(tree.argv("parent"), env=tree.env, log=tree.log) as child,
    ):
        pids = (child.pid, tree.grandchild())
        raise RuntimeError("measuring failed")
    assert not any(map(lives, pids))


def test_deaf_tree_is_killed(tree: Tree) -> None:
    """Who ignores SIGTERM gets SIGKILL when the grace is over."""
    with running(tree.argv("parent", "deaf"), env=tree.env, log=tree.log, grace_s=0.2) as child:
        pids = (child.pid, tree.grandchild())
    assert not any(map(lives, pids))
    assert child.exit_status == -signal.SIGKILL


@pytest.mark.parametrize("noticed", [True, False])
def test_deaf_grandchild_of_a_dead_child_is_killed(tree: Tree, *, noticed: bool) -> None:
    """A child that has crashed does not hide what it had started, noticed (reaped) or not."""
    argv = tree.argv("parent", "deaf", "leaves")
    with running(argv, env=tree.env, log=tree.log, grace_s=0.2) as child:
        grandchild = tree.grandchild()
        assert wait_for(lambda: not lives(child.pid))
        if noticed:
            assert child.exit_status == 7
        assert lives(grandchild)
    assert not lives(grandchild)
    assert child.exit_status == 7


def test_second_interrupt_kills_at_once(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the tree is given its grace ends the wait, not the ending."""
    sleep, interrupts = time.sleep, iter([KeyboardInterrupt])

    def impatient(seconds: float) -> None:
        for interrupt in interrupts:
            raise interrupt
        sleep(seconds)

    with pytest.raises(KeyboardInterrupt):  # noqa: PT012, SIM117 - the block's end raises
        with running(tree.argv("parent", "deaf"), env=tree.env, log=tree.log) as child:
            pids = (child.pid, tree.grandchild())
            monkeypatch.setattr(time, "sleep", impatient)
    assert not any(map(lives, pids))


def test_exit_status_and_output_are_kept(tmp_path: Path) -> None:
    """A child that ends by itself leaves its status, and all it said in the log."""
    log = tmp_path / "child.log"
    code = "import sys; print('out', flush=True); print('err', file=sys.stderr); sys.exit(3)"
    with running([sys.executable, "-c", code], env=os.environ, log=log) as child:
        assert wait_for(lambda: child.exit_status is not None)
        assert child.exit_status == 3
    assert child.exit_status == 3
    assert log.read_text().split() == ["out", "err"]


def test_killed_starter_takes_its_child_along(tree: Tree) -> None:
    """SIGKILL of the process that started a child ends the child, too."""
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, *tree.argv()], env=tree.env, start_new_session=True
    )
    child = tree.grandchild()
    starter.kill()
    starter.wait()
    assert wait_for(lambda: not lives(child))


def test_killed_starter_takes_a_deaf_tree_along(tree: Tree) -> None:
    """A server that is starting may not listen to signals yet, nor learn that anybody is gone."""
    argv = [sys.executable, "-c", STARTER, *tree.argv("parent", "deaf")]
    starter = subprocess.Popen(argv, env=tree.env, start_new_session=True)
    grandchild = tree.grandchild()
    child = psutil.Process(grandchild).ppid()
    starter.kill()
    starter.wait()
    assert wait_for(lambda: not lives(child) and not lives(grandchild))


def test_killed_starter_takes_along_what_a_dead_child_left(tree: Tree) -> None:
    """The session of the child is what counts, also when its leader is gone."""
    argv = [sys.executable, "-c", STARTER, *tree.argv("parent", "deaf", "leaves")]
    starter = subprocess.Popen(argv, env=tree.env, start_new_session=True)
    grandchild = tree.grandchild()
    starter.kill()
    starter.wait()
    assert wait_for(lambda: not lives(grandchild))


def guards() -> list[int]:
    """The guards that this process has started."""
    found = psutil.Process().children()
    return [p.pid for p in found if "autotune.process" in p.cmdline()]


def test_a_guard_goes_with_the_block(tree: Tree) -> None:
    """One while the child lives, none after it, and it ends nothing that ended well."""
    with running(tree.argv(), env=tree.env, log=tree.log):
        assert len(guards()) == 1
    assert guards() == []


def test_a_wedged_process_is_told_by_its_id(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stuck in the kernel: SIGKILL is sent, and it is still there."""
    monkeypatch.setattr(psutil.Process, "send_signal", lambda *_: None)
    monkeypatch.setattr(process, "KILL_S", 0.2)
    with pytest.raises(process.ProcessWedgedError) as told:  # noqa: SIM117 - the block's end raises
        with running(tree.argv(), env=tree.env, log=tree.log, grace_s=0.2) as child:
            tree.grandchild()
    monkeypatch.undo()
    child.stop(grace_s=0.2)
    assert str(child.pid) in str(told.value)


def test_orphan_is_ended_by_id_and_start_time(tree: Tree) -> None:
    """The tree that an earlier, killed autotune left behind ends, deaf or not."""
    popen = subprocess.Popen(tree.argv("parent"), env=tree.env, start_new_session=True)
    pids = (popen.pid, tree.grandchild())
    write_note(tree.note, popen.pid)
    assert end_orphan(tree.note) == popen.pid
    assert not any(map(lives, pids))
    assert popen.wait() == -signal.SIGTERM
    assert end_orphan(tree.note) is None


def test_orphan_whose_leader_is_gone_is_ended(tree: Tree) -> None:
    """What a server's main process left behind is found by the session it led."""
    argv = tree.argv("parent", "leaves")
    popen = subprocess.Popen(argv, env=tree.env, start_new_session=True)
    write_note(tree.note, popen.pid)
    grandchild = tree.grandchild()
    assert popen.wait() == 7
    assert end_orphan(tree.note) == popen.pid
    assert not lives(grandchild)


def changed(note: Path, **fields: object) -> Path:
    """The note with other values."""
    note.write_text(json.dumps(json.loads(note.read_text()) | fields))
    return note


def test_recycled_pid_is_left_alone(tree: Tree) -> None:
    """A process of that id but another start time is not ours."""
    popen = subprocess.Popen(tree.argv(), env=tree.env, start_new_session=True)
    try:
        child = tree.grandchild()
        write_note(tree.note, popen.pid)
        started = json.loads(tree.note.read_text())["created"]
        assert end_orphan(changed(tree.note, created=started - 60)) is None
        assert lives(child)
    finally:
        popen.kill()
        popen.wait()


@pytest.mark.parametrize("leader", ["lives", "leaves"])
def test_a_note_of_another_boot_touches_nothing(tree: Tree, leader: str) -> None:
    """After a reboot the same numbers, with or without a session's leader, are somebody else's."""
    words = ["parent", "leaves"] if leader == "leaves" else ["parent"]
    popen = subprocess.Popen(tree.argv(*words), env=tree.env, start_new_session=True)
    try:
        write_note(tree.note, popen.pid)
        grandchild = tree.grandchild()
        if leader == "leaves":
            assert popen.wait() == 7
        assert end_orphan(changed(tree.note, boot_id="another")) is None
        assert lives(grandchild)
    finally:
        popen.kill()
        popen.wait()


@pytest.mark.parametrize("text", ["", '{"pid": 1', "[]", '{"pid": 1, "created": 0.0}', "null"])
def test_a_torn_note_is_told(tree: Tree, text: str) -> None:
    """It names no process, so none is touched."""
    tree.note.write_text(text)
    with pytest.raises(TornNoteError, match=r"process\.json does not tell"):
        end_orphan(tree.note)


def test_the_note_lies_there_for_as_long_as_the_child_lives(tree: Tree) -> None:
    """A normal end leaves nothing for a later autotune to look for."""
    with running(tree.argv(), env=tree.env, log=tree.log, note=tree.note) as child:
        about = json.loads(tree.note.read_text())
        assert about["pid"] == child.pid
        assert about["created"] == pytest.approx(time.time(), abs=30)
        assert about["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        assert list(tree.note.parent.glob(".*")) == []
    assert not tree.note.exists()


def test_a_run_ends_what_a_killed_one_left(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    """Every launch folder's note is read, what lives is ended, a torn note is told; all go."""
    paths = StudyPaths(root=tree.note.parent, name="s")
    torn, real = paths.next_launch() / NOTE, paths.next_launch() / NOTE
    torn.write_text('{"pid": 1')
    popen = subprocess.Popen(tree.argv("parent"), env=tree.env, start_new_session=True)
    pids = (popen.pid, tree.grandchild())
    write_note(real, popen.pid)
    running_study.end_orphans(paths)
    assert not any(map(lives, pids))
    assert not list(paths.launches.glob(f"*/{NOTE}"))
    said = capsys.readouterr().out
    assert f"{torn} does not tell which process it is about: removed" in said
    assert f"ended server {popen.pid}, left behind by a killed run" in said
    popen.wait()
