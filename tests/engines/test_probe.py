"""What the engine's own Python is asked, and what a machine has of memory in all."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.core.methods import METHODS
from autotune.engines import _host, vllm

_SMI = """#!/bin/sh
case "$1" in
  --query-gpu=name) echo "NVIDIA Test" ;;
  --query-gpu=index,uuid,memory.total,memory.free)
    echo "0, GPU-a, 1000, 900"; echo "1, GPU-b, [N/A], [N/A]"; echo "2, GPU-c, 2000, 100" ;;
esac
"""


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine with three GPUs, one of which does not tell its memory."""
    program = tmp_path / "nvidia-smi"
    program.write_text(_SMI)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    _host._nvidia.cache_clear()
    yield
    _host._nvidia.cache_clear()


@pytest.mark.usefixtures("gpus")
def test_memory_is_told_of_each_gpu_that_the_engine_may_use() -> None:
    """All of it and what is free, in bytes."""
    assert _host.memory() == ((1000 << 20, 900 << 20), (2000 << 20, 100 << 20))
    assert _host.memory("2") == ((2000 << 20, 100 << 20),)


def test_packages_that_methods_need_are_told_where_they_are() -> None:
    """One that is not there is no part of what a measurement depends on."""
    asked = vllm._PROBE % (("pytest", "no-such-package"),)
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    assert told["pytest"] == pytest.__version__
    assert "no-such-package" not in told
    assert {row.package.partition("==")[0] for row in METHODS.values() if row.package} == set(
        vllm.BESIDE
    )
