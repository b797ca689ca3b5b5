"""What an engine is asked for, and what it says, beside its log: the environment that counts."""

from pathlib import Path

import pytest

from autotune.ports import Engine, find
from tests.engines.orders import order, world_env

ENGINE: Engine = find("engines", "simulated")


def batch_invariant(folder: Path, **env: str) -> object:
    """What the facts of a launch say of the mode."""
    folder.mkdir()
    with ENGINE.serve(order(folder / "launch", env={**world_env(folder), **env})) as server:
        return server.facts.resolved.get("VLLM_BATCH_INVARIANT")


def test_batch_invariant_mode_is_recorded_wherever_it_was_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the shell or in the file; no line of the engine's log tells."""
    monkeypatch.delenv("VLLM_BATCH_INVARIANT", raising=False)
    assert batch_invariant(tmp_path / "0") is None
    assert batch_invariant(tmp_path / "1", VLLM_BATCH_INVARIANT="1") == "1"
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    assert batch_invariant(tmp_path / "2") == "1"
