"""What the device has free, and that nobody goes on before an ended engine has given it back.

A program named nvidia-smi, first on the PATH, tells what each test wants.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.core.trial import Cause
from autotune.engines import _host, _start
from autotune.errors import LaunchError
from autotune.ports import Engine, find
from tests.engines.orders import order

MIB = 1 << 20
_SMI = """#!/bin/sh
case "$1" in
  --query-gpu=name) echo "NVIDIA Test"; echo "NVIDIA Test" ;;
  --query-gpu=index,uuid,clocks.sm,temperature.gpu,power.draw)
    echo "0, GPU-aaaa-1, 1980, 61, 402.17"; echo "1, GPU-bbbb-2, 1200, 84, [N/A]" ;;
  --query-gpu=index,uuid,memory.total)
    echo "0, GPU-aaaa-1, 81559"; echo "1, GPU-bbbb-2, 40960" ;;
  --query-gpu=index,uuid,memory.free)
    head -n 1 "{folder}/free" | tr ';' '\\n'
    [ "$(wc -l < "{folder}/free")" -le 1 ] || sed -i 1d "{folder}/free" ;;
  --query-compute-apps=pid,process_name,used_memory)
    echo "4711, /usr/bin/python3, 600"; echo "4712, vllm, 300"; echo "4713, x, [N/A]" ;;
esac
"""


class Gpus:
    """Two GPUs: one line of their free MiB for each time that somebody asks, the last one stays."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "free"
        self.tell((0, 0))

    def tell(self, *free: tuple[int | str, int | str]) -> None:
        """What to answer from now on."""
        lines = [f"0, GPU-aaaa-1, {a};1, GPU-bbbb-2, {b}\n" for a, b in free]
        self._file.write_text("".join(lines))

    @property
    def left(self) -> int:
        """Answers that nobody has asked for, the lasting one apart."""
        return self._file.read_text().count("\n") - 1


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpus]:
    """A machine with two GPUs."""
    smi = tmp_path / "nvidia-smi"
    smi.write_text(_SMI.format(folder=tmp_path))
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    _host._nvidia.cache_clear()
    yield Gpus(tmp_path)
    _host._nvidia.cache_clear()


def test_the_free_memory_of_every_gpu(gpus: Gpus) -> None:
    """One number each; a GPU that does not tell (one cut in slices) counts as nothing."""
    gpus.tell((100, 200))
    assert _host.device_name() == "NVIDIA Test"
    assert _host.free_memory() == (100 * MIB, 200 * MIB)
    gpus.tell(("[N/A]", 200))
    assert _host.free_memory() == (0, 200 * MIB)


@pytest.mark.parametrize(
    ("visible", "free"),
    [
        ("", (100, 200)),
        ("1", (200,)),
        ("0, 1", (100, 200)),
        ("GPU-bbbb", (200,)),
        ("MIG-cccc", (100, 200)),  # nothing that we know of: all of them
    ],
)
def test_the_gpus_of_others_do_not_count(gpus: Gpus, visible: str, free: tuple[int, ...]) -> None:
    """CUDA_VISIBLE_DEVICES, by number or by the beginning of the UUID."""
    gpus.tell((100, 200))
    assert _host.free_memory(visible) == tuple(mib * MIB for mib in free)


def test_the_memory_that_a_utilization_is_a_share_of(gpus: Gpus) -> None:
    """The smallest of the GPUs in use."""
    assert _host.total_memory() == 40960 * MIB
    assert _host.total_memory("0") == 81559 * MIB


def test_a_cpu_is_named_with_its_instructions() -> None:
    """Machines of one name differ by factors: results of the one are not those of the other."""
    _host._nvidia.cache_clear()
    if _host.device_name().startswith("cpu"):
        assert _host.device_name().split(", ")[-1] in (
            *_host.INSTRUCTIONS,
            "no vector instructions known",
        )


def test_a_cpu_has_one_memory() -> None:
    """RAM that is available, where no GPU is."""
    _host._nvidia.cache_clear()
    if _host.device_name().startswith("cpu"):
        [free] = _host.free_memory()
        assert free > MIB


@pytest.mark.parametrize("full", [(1000, 10), (10, 1000)])
def test_memory_is_awaited_after_a_failed_start(
    gpus: Gpus, tmp_path: Path, full: tuple[int, int]
) -> None:
    """An engine that died may hold one GPU's memory for a while: the launch ends after that."""
    engine: Engine = find("engines", "vllm")
    dies = order(tmp_path / "launch", launcher=(sys.executable, "-c", "raise SystemExit(1)"))
    gpus.tell((1000, 1000), full, full, full, (980, 1000), (1000, 1000))
    with pytest.raises(LaunchError), engine.serve(dies):
        pass
    assert gpus.left == 0


_OCCUPIED = (
    "ValueError: Free memory on device cuda:0 (0.1/1.0 GiB) on startup is less than desired GPU "
    "memory utilization (0.9, 0.9 GiB). Decrease GPU memory utilization"
)


def test_memory_that_others_hold_is_awaited_and_they_are_named(gpus: Gpus, tmp_path: Path) -> None:
    """The launch ends when there is what it asked for; the largest holder is told first."""
    engine: Engine = find("engines", "vllm")
    code = f"import sys; print({_OCCUPIED!r}); sys.exit(1)"
    dies = order(tmp_path / "launch", launcher=(sys.executable, "-c", code))
    gpus.tell((100, 100), (100, 100), (100, 100), (950, 100), (950, 950))
    with pytest.raises(LaunchError) as told, engine.serve(dies):
        pass
    assert told.value.cause is Cause.MEMORY_OCCUPIED
    assert "; held by pid 4711 (python3, 0.6 GiB), pid 4712 (vllm, 0.3 GiB)" in told.value.detail
    assert gpus.left == 0


def test_memory_that_never_comes_back_is_not_awaited_for_ever(
    gpus: Gpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else may have taken it: the next launch will tell."""
    monkeypatch.setattr(_start, "MEMORY_SETTLE_S", 0.3)
    engine: Engine = find("engines", "vllm")
    dies = order(tmp_path / "launch", launcher=(sys.executable, "-c", "raise SystemExit(1)"))
    gpus.tell((1000, 1000), (10, 10))
    with pytest.raises(LaunchError), engine.serve(dies):
        pass


def test_clocks_heat_and_watts_of_the_gpus(gpus: Gpus) -> None:
    """The slowest clock, the hottest GPU; what one of them does not tell is passed over."""
    before = _host.HostReading.now()
    both = _host.host_load(before, gpu=True)
    assert (both.gpu_mhz, both.gpu_celsius, both.gpu_watts) == (1200.0, 84.0, 402.17)
    first = _host.host_load(before, gpu=True, visible="0")
    assert (first.gpu_mhz, first.gpu_celsius) == (1980.0, 61.0)
    assert _host.host_load(before, gpu=True, visible="1").gpu_watts is None
