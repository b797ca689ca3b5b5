"""The verbs and their options; each hands over to the module that does the work.

Rule: nothing is decided here, and what a verb needs is imported when it is called.
"""

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from autotune.cli.exits import MEANING, Exit
from autotune.errors import UserError

FileArg = Annotated[Path, typer.Argument(help="The candidates file.", metavar="CANDIDATES.yaml")]
StudyArg = Annotated[str, typer.Argument(help="Name of the study, a folder under studies/.")]
RootOption = Annotated[
    Path | None, typer.Option("--root", help="Folder that holds studies/ and reports/.")
]
BudgetOption = Annotated[
    str | None,
    typer.Option("--budget", help="Wall clock, such as 45m or 1h30m; overrides search.budget."),
]
StorageOption = Annotated[
    str | None,
    typer.Option("--storage", help="Optuna storage URL; default studies/<name>/study.db."),
]

_EXITS = "\n\n".join(f"{code.value:>3}  {text}" for code, text in MEANING.items())

app = typer.Typer(
    name="autotune",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Find the best speculative-decoding configuration for a vLLM deployment, by measuring it.",
    epilog="Start with: autotune plan candidates.yaml, then autotune run candidates.yaml",
)


def _version(value: bool) -> None:
    if value:
        from autotune.cli.environment import lines  # noqa: PLC0415

        typer.echo("\n".join(lines()))
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the environment."),
    ] = False,
) -> None:
    """Find the best speculative-decoding configuration for a vLLM deployment, by measuring it."""


@app.command(epilog=f"Exit codes:\n\n{_EXITS}")
def run(
    file: FileArg,
    budget: BudgetOption = None,
    storage: StorageOption = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Try failed trials again; they are kept else.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print launches, argv and minutes; start nothing.")
    ] = False,
) -> None:
    """Run a study, or go on with it; ends with a verdict, a report and best-config.yaml."""
    from autotune.cli import planning, running  # noqa: PLC0415

    if dry_run:
        planning.plan(file, budget, storage, argv=True)
        return
    raise typer.Exit(running.run(file, budget, storage, retry_failed=retry_failed))


@app.command()
def plan(file: FileArg, budget: BudgetOption = None, storage: StorageOption = None) -> None:
    """Print what a run would launch and how long it would take; start nothing."""
    from autotune.cli import planning  # noqa: PLC0415

    planning.plan(file, budget, storage, argv=False)


@app.command()
def show(
    study: StudyArg,
    passes: Annotated[
        bool, typer.Option("--passes", help="Every pass, too, those of a running launch included.")
    ] = False,
    requests: Annotated[
        str | None,
        typer.Option(
            "--requests",
            metavar="LAUNCH",
            help="Only the requests of one launch, by its number; `last` is the newest.",
        ),
    ] = None,
    root: RootOption = None,
) -> None:
    """Show the trials of a study and its answer so far."""
    if requests is not None:
        from autotune.cli import requests as one_launch  # noqa: PLC0415

        one_launch.show(study, root, requests)
        return
    from autotune.cli import showing  # noqa: PLC0415

    showing.show(study, root, passes=passes)


@app.command()
def report(study: StudyArg, root: RootOption = None) -> None:
    """Write reports/<study>/ again from what has been measured."""
    from autotune.cli import showing  # noqa: PLC0415

    showing.report(study, root)


@app.command()
def export(
    study: StudyArg,
    format: Annotated[  # noqa: A002 - the option's name
        str, typer.Option("--format", help="best_config or vllm_yaml.")
    ] = "best_config",
    root: RootOption = None,
) -> None:
    """Print the recommended deployment."""
    from autotune.cli import showing  # noqa: PLC0415

    showing.export(study, root, format)


@app.command()
def ui(
    port: Annotated[int, typer.Option(help="Port on loopback.")] = 5000,
    root: RootOption = None,
) -> None:
    """Open the MLflow UI of the studies here, on loopback."""
    from autotune.cli import showing  # noqa: PLC0415

    showing.ui(root, port)


@app.command()
def clean(
    study: StudyArg,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
    root: RootOption = None,
) -> None:
    """Show what belongs to a study (measurements, logs, report), then delete it."""
    from autotune.cli import showing  # noqa: PLC0415

    showing.clean(study, root, yes=yes)


def main() -> None:
    """Entry point: the user's errors become one message and exit 2, bugs stay tracebacks."""
    signal.signal(signal.SIGTERM, _terminated)
    try:
        app()
    except UserError as error:
        Console(stderr=True).print(Text.assemble(("error: ", "bold red"), str(error)))
        sys.exit(Exit.USER)


def _terminated(number: int, frame: object) -> None:
    sys.exit(Exit.TERMINATED)


if __name__ == "__main__":
    main()
