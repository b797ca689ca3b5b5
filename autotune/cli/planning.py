"""`plan` and `run --dry-run`: what a study would cost, before anything starts.

Rule: nothing is started and nothing is written; what is a guess is called one, and gives way to
what the study has seen.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
from rich.console import Console
from rich.markup import escape

from autotune.cli.checking import lines
from autotune.cli.preparing import Prepared, prepare
from autotune.core.counting import counted
from autotune.core.estimate import Estimate, estimate
from autotune.core.plan import pending
from autotune.core.space import to_come
from autotune.core.study import StudySpec
from autotune.core.trial import Launch, Record
from autotune.engines._host import total_memory
from autotune.exporters.vllm_yaml import render_engine_args
from autotune.tuning.ledger import read_records
from autotune.tuning.runner import serve_order
from autotune.tuning.tuner import to_retry, usable

console = Console(soft_wrap=True, highlight=False)
GIB = 1 << 30


def plan(file: Path, budget: str | None, storage: str | None, *, argv: bool) -> None:
    """Print the launches ahead, with their reasons, and what they cost in all."""
    ready = prepare(file, budget, storage)
    spec, records = ready.loaded.spec, _known(ready)
    warn(console, ready)
    ahead = estimate(spec, records, list(pending(spec, records)))
    for number, launch in enumerate(ahead.launches, 1):
        console.print(f"{number:>3}  {launch.stage.value:<9} {escape(launch.why)}")
        if argv:
            _print_argv(ready, launch)
    for text in to_come(spec, records):
        console.print(f"     {escape(text)}")
    limit = f", held to the budget of {ready.budget_s / 60:.0f}" if ready.budget_s else ""
    console.print(
        f"{counted(len(ahead.launches), 'launch', 'launches')}, about "
        f"{counted(ahead.passes, 'pass', 'passes')}: about "
        f"{counted(round(ahead.boot_s / 60), 'minute')} of starts and "
        f"{ahead.measure_s / 60:.0f} of measuring, "
        f"{ahead.total_s / 60:.0f} in all{limit}"
    )
    for line in (*_disk(ready, ahead), *_memory(ready, ahead.launches)):
        console.print(f"  {escape(line)}")


def launch_config(ready: Prepared, launch: Launch) -> str:
    """The `--config` text of a launch; on a GPU a live one asks for the graphs of every K."""
    graphs = launch.num_speculative_tokens if launch.live and ready.on_gpu else ()
    return render_engine_args(
        ready.loaded.spec, launch.candidate, launch.k_max, launch.gpu_memory_utilization, graphs
    )


def warn(to: Console, ready: Prepared) -> None:
    """What to know before the first launch."""
    for line in lines(ready.findings):
        to.print(f"  {line}")
    for text in ready.warnings:
        to.print(f"  [yellow]warning[/]: {escape(text)}")


def _disk(ready: Prepared, ahead: Estimate) -> Iterator[str]:
    """What the study will write, as far as known what the engine will fetch."""
    yield f"disk: about {max(ahead.disk_bytes >> 20, 1)} MiB of logs and samples"
    away = [model for model in _models(ready.loaded.spec) if not Path(model).exists()]
    if away:
        yield f"not here, to be downloaded unless the engine's cache has them: {', '.join(away)}"


def _models(spec: StudySpec) -> list[str]:
    models = [spec.target.model, *(c.model for c in spec.candidates if c.model is not None)]
    return list(dict.fromkeys(models))


def _memory(ready: Prepared, launches: Sequence[Launch]) -> Iterator[str]:
    """How much of the device's memory each server takes, where the device tells its size."""
    shares = sorted({launch.gpu_memory_utilization for launch in launches})
    of = (
        "the GPU's memory" if ready.on_gpu else "the RAM (no GPU: gpu_memory_utilization means RAM)"
    )
    total = _total_bytes(ready)
    for share in shares:
        size = f", {share * total / GIB:.1f} of {total / GIB:.1f} GiB" if total else ""
        yield f"memory: each server takes {share:g} of {of}{size}"


def _total_bytes(ready: Prepared) -> int | None:
    """Of the smallest device, or the RAM; None where nobody tells."""
    if ready.probe["device"].startswith("simulated"):
        return None
    visible = {**os.environ, **ready.loaded.spec.target.env}.get("CUDA_VISIBLE_DEVICES", "")
    return total_memory(visible) if ready.on_gpu else psutil.virtual_memory().total


def _known(ready: Prepared) -> list[Record]:
    if _not_there(ready.storage):
        return []
    spec = ready.loaded.spec
    stored = read_records(ready.storage, spec.name)
    return usable(stored, ready.fingerprint, spec, to_retry(stored, everything=False))


def _not_there(storage: str) -> bool:
    """Whether opening the storage would make a new file."""
    path = storage.removeprefix("sqlite:///")
    return path != storage and not Path(path).exists()


def _print_argv(ready: Prepared, launch: Launch) -> None:
    spec, folder = ready.loaded.spec, ready.paths.launches
    order = serve_order(spec, launch, Path("vllm.yaml"), folder)
    argv = " ".join(ready.engine.command(order, 8000))
    console.print(f"       {argv}", markup=False)
    for line in launch_config(ready, launch).splitlines():
        if not line.startswith("#"):
            console.print(f"         {line}", markup=False)
