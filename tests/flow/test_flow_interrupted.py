"""Studies that are stopped in the middle: nothing measured is lost, nothing is left running."""

import json
import signal
import time
from pathlib import Path

import pytest
import yaml

from tests.flow.study import BEST_K, Desk, candidates, desk

pytestmark = pytest.mark.timeout(300)  # the first start compiles what it imports

SMALL = candidates(search={"num_speculative_tokens": [BEST_K], "max_blocks": 2})


def stages(study: Desk) -> list[str]:
    """Why each launch was made, in order."""
    files = [folder / "launch.json" for folder in study.launches]
    return [json.loads(file.read_text(encoding="utf-8"))["launch"]["stage"] for file in files]


def passes(study: Desk) -> int:
    """How many passes are on disk."""
    return sum(len(f.read_bytes().splitlines()) for f in study.folder.rglob("passes.jsonl"))


def known_passes(study: Desk) -> int:
    """How many passes the study knows of."""
    shown = study.autotune("show", "s", "--passes").text
    return len([x for x in shown.partition("passes\n")[2].splitlines() if x.startswith("│ 0")])


def wait_until_gone(study: Desk, within_s: float) -> None:
    """Fail if a server of the study lives longer than that."""
    deadline = time.monotonic() + within_s
    while study.servers():
        assert time.monotonic() < deadline, study.servers()
        time.sleep(0.05)


def test_ctrl_c_in_a_launch(tmp_path: Path) -> None:
    """Exit 130, the server is gone, the next run keeps what was measured and finishes."""
    study = desk(tmp_path, SMALL)
    with study.started("run", "candidates.yaml") as process:
        study.wait_for_passes(launch=2, count=3)
        process.send_signal(signal.SIGINT)
        text = process.communicate(timeout=60)[0]
    assert process.returncode == signal.SIGINT + 128
    assert "interrupted; nothing is left running" in text
    assert "go on with `autotune run candidates.yaml`" in text
    assert "Traceback" not in text
    assert not study.servers()
    done = study.run()
    assert done.code == 0, done.text
    assert "known already" in done.text
    assert stages(study).count("baseline") == 1
    assert known_passes(study) == passes(study)


def test_ctrl_c_while_a_server_starts(tmp_path: Path) -> None:
    """A server that is not ready yet is ended, too."""
    slow = yaml.safe_load((desk(tmp_path, SMALL).folder / "world.yaml").read_text())
    study = desk(tmp_path, SMALL, slow | {"startup_s": 500.0})
    with study.started("run", "candidates.yaml") as process:
        study.wait_for("s/launches/001/process.json")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == signal.SIGINT + 128
    assert not study.servers()


def test_two_at_once_and_a_termination(tmp_path: Path) -> None:
    """The second `run` is refused with exit 2; SIGTERM ends the first one with exit 143."""
    world = yaml.safe_load((desk(tmp_path, SMALL).folder / "world.yaml").read_text())
    study = desk(tmp_path, SMALL, world | {"time_scale": 10 * world["time_scale"]})
    with study.started("run", "candidates.yaml") as process:
        study.wait_for_passes(launch=1, count=1)
        second = study.run()
        process.send_signal(signal.SIGTERM)
        text = process.communicate(timeout=60)[0]
    assert second.code == 2, second.text
    assert f"process {process.pid}" in second.text
    assert "is working on this study" in second.text
    assert process.returncode == signal.SIGTERM + 128
    assert "terminated; nothing is left running" in text
    assert not study.servers()


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """A study whose autotune was killed in the confirmation."""
    study = desk(tmp_path_factory.mktemp("killed"), SMALL)
    with study.started("run", "candidates.yaml") as process:
        study.wait_for_passes(launch=3, count=1)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
    return study


def test_after_a_kill_no_server_is_left(killed: Desk) -> None:
    """The kernel ends the server with its autotune."""
    wait_until_gone(killed, within_s=30.0)


def test_after_a_kill_a_run_without_time_reports_the_best_known(killed: Desk) -> None:
    """Exit 6: the answer of the search is there, and called unverified."""
    done = killed.run("--budget", "1s")
    assert done.code == 6, done.text
    assert "unverified" in done.text
    assert yaml.safe_load(killed.report("best-config.yaml"))["basis"] == "search"
    assert len(killed.launches) == 3


def test_after_a_kill_every_pass_on_disk_is_kept(killed: Desk) -> None:
    """Only the pass in flight is lost, and the study finishes."""
    assert known_passes(killed) == passes(killed)
    done = killed.run()
    assert done.code == 0, done.text
    assert stages(killed)[:2] == ["baseline", "screen"]
    assert set(stages(killed)[2:]) == {"confirm"}
    assert not killed.servers()
