"""`serve`: the engine, started as it was measured; autotune itself is gone by then.

Rule: arguments come from vllm.yaml, environment and launcher from best-config.yaml; what a caller
adds stands behind them, so that it wins.
"""

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from autotune.errors import UserError
from autotune.exporters.deployed import Deployed, read_deployed
from autotune.ports import Engine, ServeOrder, find

console = Console(soft_wrap=True, highlight=False, stderr=True)


def serve(file: Path, port: int, further: Sequence[str], *, dry_run: bool) -> None:
    """Become the engine, or print how it would be started."""
    deployed = read_deployed(file)
    if not deployed.vllm_yaml.is_file():
        raise UserError(
            f"there is no {deployed.vllm_yaml}, which the engine is started from: `autotune export "
            f"{deployed.study} --format vllm_yaml` prints it"
        )
    argv = [*_argv(deployed, port), *further]
    for text in _doubts(deployed, os.environ):
        console.print(f"[yellow]warning[/]: {escape(text)}")
    if dry_run:
        print(_shown(deployed.env, argv))
        return
    try:
        os.execvpe(argv[0], argv, {**os.environ, **deployed.env})  # noqa: S606 - the user's engine
    except OSError as error:
        raise UserError(f"{argv[0]!r} cannot be started: {error.strerror}") from error


def _argv(deployed: Deployed, port: int) -> Sequence[str]:
    engine: Engine = find("engines", deployed.engine)
    order = ServeOrder(
        config_file=deployed.vllm_yaml.absolute(),
        folder=deployed.file.parent,
        launcher=deployed.launcher,
        env=deployed.env,
        live=False,
        model=deployed.parsed.engine.args.model,
    )
    return engine.command(order, port)


def _doubts(deployed: Deployed, environ: Mapping[str, str]) -> list[str]:
    told = []
    if not deployed.as_measured:
        told.append(f"{deployed.vllm_yaml} is not the file that was measured (another hash)")
    if deployed.unverified:
        told.append("the configuration is `unverified`: it was never launched as it is deployed")
    missing = [name for name in deployed.env_withheld if name not in environ]
    if missing:
        told.append(f"not set here, but when it was measured: {', '.join(missing)}")
    return told


def _shown(env: Mapping[str, str], argv: Sequence[str]) -> str:
    """A line for a shell."""
    words = [f"{name}={shlex.quote(value)}" for name, value in env.items()]
    return " ".join(["env", *words, shlex.join(argv)] if words else [shlex.join(argv)])
