"""`init`: a first candidates file for a target, from what lies on this machine.

Rule: nothing is downloaded or started, and no file is overwritten unless asked for.
"""

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape

from autotune import starting
from autotune.config.workload import PLACEHOLDER
from autotune.core.checkpoint import Checkpoint
from autotune.core.jsontype import JSON
from autotune.core.known import MODEL_DEFAULTS
from autotune.engines.vllm import MODULE
from autotune.errors import UserError
from autotune.files import write_text
from autotune.ports import Engine, find

STDOUT = "-"
GPU_SHARE, RAM_SHARE = 0.9, 0.4
"""vLLM's own default for a GPU; a machine that decodes on its CPU needs RAM for other things."""
ENGINE_DEFAULT = {"temperature": 1.0}
"""What vLLM takes for a request that does not say, where the model has no default of its own."""

console = Console(soft_wrap=True, highlight=False, stderr=True)


def init(model: str, output: str, prompts: Path | None, python: str | None, *, force: bool) -> None:
    """Write the file, or print it for the output `-`."""
    file = Path("candidates.yaml") if output == STDOUT else Path(output)
    if output != STDOUT and file.exists() and not force:
        raise UserError(f"{file} is there already: --force overwrites it, --output names another")
    if prompts is not None and not prompts.is_file():
        raise UserError(f"--prompts: there is no file {prompts}")
    text = starting.render(_start(model, file.parent, prompts, python))
    if output == STDOUT:
        typer.echo(text, nl=False)
        return
    write_text(file, text)
    console.print(f"wrote {file}: say what is marked YOURS in it, then `autotune plan {file}`")


def _start(model: str, root: Path, prompts: Path | None, python: str | None) -> starting.Start:
    seen = starting.read_target(model)
    target = replace(seen, name=_placed(model, root))
    near = [replace(m, name=_placed(m.name, root)) for m in starting.beside(model, seen)]
    near += [m for m in starting.cached(seen) if m.name != model]
    sampling, told = _sampling(seen)
    device = _device(python)
    on_cpu = device.startswith("cpu")
    proposals = starting.propose(
        target, near, suffix=starting.has_package(python or sys.executable, "arctic_inference")
    )
    return starting.Start(
        study=_slug(seen.label),
        model=target.name,
        launcher=(python, *MODULE) if python else (),
        context=seen.number("max_position_embeddings"),
        sampling=sampling,
        sampling_from=told,
        prompts=_placed(str(prompts), root) if prompts else PLACEHOLDER,
        placeholder=prompts is None,
        gpu_memory_utilization=RAM_SHARE if on_cpu else GPU_SHARE,
        on_cpu=on_cpu,
        proposals=proposals,
        notes=_notes(seen, device),
    )


def _placed(name: str, root: Path) -> str:
    """A path as the file names it, relative to its folder where it lies below; ids stay."""
    path = Path(name).expanduser()
    if not path.exists():
        return name
    whole = Path(os.path.abspath(path))  # noqa: PTH100 - links are kept, as the engine sees them
    home = Path(os.path.abspath(root))  # noqa: PTH100
    return f"./{whole.relative_to(home)}" if whole.is_relative_to(home) else str(whole)


def _slug(label: str) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", label.lower()).strip("-._") or "study"


def _sampling(target: Checkpoint) -> tuple[Mapping[str, JSON], str]:
    """What a request gets that says nothing, and where that comes from."""
    given = {name: target.generation[name] for name in MODEL_DEFAULTS if name in target.generation}
    # While it speculates vLLM refuses min_p, which is off in every checkpoint that has it at 0.
    given = {name: value for name, value in given.items() if name != "min_p"}
    if given:
        return ENGINE_DEFAULT | given, "These are the model's own (generation_config.json)."
    return ENGINE_DEFAULT, "This is vLLM's own default: what a request gets that says nothing."


def _device(python: str | None) -> str:
    """The device as the engine's probe tells it; empty where vLLM is not to be found."""
    engine: Engine = find("engines", "vllm")
    try:
        return engine.probe((python,) if python else ())["device"]
    except UserError as error:
        console.print(f"[yellow]note[/]: {escape(str(error))}")
        return ""


def _notes(target: Checkpoint, device: str) -> list[str]:
    found = []
    if not target.config:
        found.append(
            f"the files of {target.name}, which is not in the hub's cache on this machine. With "
            "its\n# config.json the layers it drafts with, its size and its vocabulary would be "
            f"known:\n# `hf download {target.name} config.json generation_config.json "
            "tokenizer.json`, then `autotune init` again."
        )
    if not device:
        found.append("the engine: vLLM is not installed where it was looked for (--python).")
    return found
