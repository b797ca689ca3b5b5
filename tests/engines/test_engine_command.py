"""What a launch is started with: argv to the letter, environment, what is written down of it."""

import json
import sys
from pathlib import Path

import pytest

from autotune.core.trial import Cause
from autotune.engines.vllm import VllmEngine, cpu_preload
from autotune.errors import LaunchError, UserError
from autotune.ports import Engine, find
from tests.engines.orders import order, world_env

VLLM: Engine = find("engines", "vllm")
SIMULATED: Engine = find("engines", "simulated")
_ECHO = """
import json, os, pathlib
pathlib.Path(os.environ["ECHO"]).write_text(json.dumps(dict(os.environ)))
"""


def test_the_argv_of_a_baseline(tmp_path: Path) -> None:
    """All that is deployed stands in the file; loopback and the port are the launch's own."""
    assert VLLM.command(order(tmp_path), 8123) == [
        sys.executable,
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--config",
        str(tmp_path / "vllm.yaml"),
        "--host",
        "127.0.0.1",
        "--port",
        "8123",
    ]


def test_the_argv_of_a_live_launch_elsewhere(tmp_path: Path) -> None:
    """A launcher replaces the interpreter and the module; live K adds the scheduler."""
    argv = VLLM.command(order(tmp_path, live=True, launcher=("podman", "run", "vllm")), 1)
    assert argv == [
        "podman",
        "run",
        "vllm",
        "--config",
        str(tmp_path / "vllm.yaml"),
        "--host",
        "127.0.0.1",
        "--port",
        "1",
        "--scheduler-cls",
        "autotune_live_k.scheduler",
    ]


def environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, live: bool = False, **env: str
) -> dict[str, str]:
    """The environment that a launch has got, told by a launcher that ends at once."""
    echo = folder / "echo.json"
    monkeypatch.setenv("ECHO", str(echo))
    launcher = (sys.executable, "-c", _ECHO)
    with (
        pytest.raises(LaunchError),
        VLLM.serve(order(folder / "launch", live=live, env=env, launcher=launcher)),
    ):
        pass
    got: dict[str, str] = json.loads(echo.read_text())
    return got


def test_the_environment_of_every_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller's, without vLLM's usage statistics, and the target's own on top."""
    monkeypatch.setenv("CALLERS", "kept")
    got = environment(tmp_path, monkeypatch, VLLM_USE_AOT_COMPILE="0")
    assert got["VLLM_NO_USAGE_STATS"] == "1"
    assert got["CALLERS"] == "kept"
    assert got["VLLM_USE_AOT_COMPILE"] == "0"
    assert "AUTOTUNE_LIVE_K_FILE" not in got


def test_the_environment_of_a_live_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler is importable before what the caller has; where its steps go is told."""
    monkeypatch.setenv("PYTHONPATH", "/callers")
    got = environment(tmp_path, monkeypatch, live=True)
    first, second = got["PYTHONPATH"].split(":")
    assert second == "/callers"
    copied = (Path(first) / "autotune_live_k.py").read_text()
    assert "def scheduler(" in copied
    assert "autotune." not in copied.replace("`--scheduler-cls autotune_live_k.scheduler`", "")
    assert Path(got["AUTOTUNE_LIVE_K_FILE"]).parent == tmp_path / "launch"


def test_a_target_with_a_pythonpath_can_be_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """target.env may set PYTHONPATH: the scheduler stays importable, and theirs comes after."""
    got = environment(tmp_path, monkeypatch, live=True, PYTHONPATH="/theirs")
    first, second = got["PYTHONPATH"].split(":")
    assert (Path(first) / "autotune_live_k.py").exists()
    assert second == "/theirs"


def test_what_is_written_down_holds_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """launch.argv.json has what a result depends on; no key, no token, no foreign variable."""
    for name in ("HF_TOKEN", "VLLM_API_KEY", "AWS_SECRET_ACCESS_KEY", "SOMETHING_ELSE"):
        monkeypatch.setenv(name, "hush")
    environment(tmp_path, monkeypatch, VLLM_USE_AOT_COMPILE="0", OMP_NUM_THREADS="1")
    text = (tmp_path / "launch" / "launch.argv.json").read_text()
    noted = json.loads(text)
    assert "hush" not in text
    assert noted["env"]["VLLM_USE_AOT_COMPILE"] == "0"
    assert noted["env"]["OMP_NUM_THREADS"] == "1"
    assert noted["env"]["VLLM_NO_USAGE_STATS"] == "1"
    assert noted["argv"][0] == sys.executable


def test_libraries_are_preloaded_only_if_they_are_there(tmp_path: Path) -> None:
    """Intel's OpenMP from the engine's own environment; a missing one is not asked for."""
    (tmp_path / "lib").mkdir()
    assert str(tmp_path / "lib" / "libiomp5.so") not in cpu_preload(tmp_path)
    (tmp_path / "lib" / "libiomp5.so").touch()
    assert cpu_preload(tmp_path)[0] == str(tmp_path / "lib" / "libiomp5.so")


def test_a_launcher_that_is_not_there(tmp_path: Path) -> None:
    """A program that does not exist is a broken launcher, not a bug of ours."""
    missing = order(tmp_path, launcher=(str(tmp_path / "nowhere"),))
    with pytest.raises(LaunchError) as told, VLLM.serve(missing):
        pass
    assert told.value.cause is Cause.LAUNCHER_BROKEN
    assert "nowhere" in told.value.detail


def test_an_interpreter_without_vllm_is_told_before_any_launch(tmp_path: Path) -> None:
    """The probe runs the engine's own Python and names the remedy."""
    bare = VllmEngine()
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    python.chmod(0o755)
    with pytest.raises(UserError, match="vLLM is not installed for"):
        bare.probe((str(python),))
    with pytest.raises(UserError, match="does not run"):
        bare.probe((str(tmp_path / "nowhere" / "python"),))


def test_a_launcher_that_is_no_python_is_not_probed() -> None:
    """A container's versions are known when it serves."""
    assert VLLM.probe(("podman", "run"))["vllm"] == "unknown"


def test_a_start_that_takes_too_long(tmp_path: Path) -> None:
    """The engine is ended, and the cause is the time."""
    env = world_env(tmp_path, faults=[{"what": "hang_at_start"}])
    slow = order(tmp_path / "launch", env=env, timeout_s=1.5)
    with pytest.raises(LaunchError) as told, SIMULATED.serve(slow):
        pass
    assert told.value.cause is Cause.START_TIMEOUT
