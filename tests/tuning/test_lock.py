"""One autotune per study, and no lock that outlives its holder."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.errors import StudyLockedError, UserError
from autotune.tuning.lock import held

HOLDER = """
import sys, time
from pathlib import Path
from autotune.tuning.lock import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The lock of a study whose folder does not exist yet."""
    return tmp_path / "studies" / "demo" / "study.lock"


@pytest.fixture
def holder(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another autotune that holds the lock."""
    argv = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as popen:
        assert popen.stdout
        assert popen.stdout.readline() == b"held\n"
        yield popen
        popen.kill()


def test_second_holder_is_told_who_is_first(path: Path, holder: "subprocess.Popen[bytes]") -> None:
    """The message names the process to wait for, and where the lock lies."""
    with pytest.raises(StudyLockedError) as caught, held(path):
        pytest.fail("two at once")
    assert f"process {holder.pid} on " in str(caught.value)
    assert str(path) in str(caught.value)
    assert isinstance(caught.value, UserError)


def test_a_killed_holder_holds_nothing(path: Path, holder: "subprocess.Popen[bytes]") -> None:
    """After SIGKILL the lock is free at once, though its file still names the dead."""
    holder.kill()
    holder.wait()
    assert str(holder.pid) in path.read_text()
    with held(path):
        assert path.read_text().startswith(f"autotune, process {os.getpid()} on ")


def test_the_lock_is_free_after_the_block(path: Path) -> None:
    """However the block ends; also within one process, a second holder is refused."""
    with pytest.raises(RuntimeError, match="stop"), held(path):  # noqa: PT012 - two blocks
        with pytest.raises(StudyLockedError, match=f"process {os.getpid()} "), held(path):
            pytest.fail("two at once")
        raise RuntimeError("stop")
    with held(path):
        pass
