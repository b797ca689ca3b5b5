"""The verbs and their options; each hands over to the module that does the work.

Rule: nothing is decided here, and what a verb needs is imported when it is called.
"""

import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from autotune.cli.exits import MEANING, VERIFIED, Exit
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

DeployedArg = Annotated[
    Path, typer.Argument(help="What a study has recommended.", metavar="BEST-CONFIG.yaml")
]


def _exits(meaning: Mapping[Exit, str]) -> str:
    told = "\n\n".join(f"{code.value:>3}  {text}" for code, text in meaning.items())
    return f"Exit codes:\n\n{told}"


app = typer.Typer(
    name="autotune",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Find the best speculative-decoding configuration for a vLLM deployment, by measuring it.",
    epilog="Start with: autotune init MODEL, then autotune check and run candidates.yaml",
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


@app.command()
def init(
    model: Annotated[str, typer.Argument(help="A local folder, or an id of the hub (org/name).")],
    output: Annotated[
        str, typer.Option("--output", "-o", help="The file to write; - prints it.")
    ] = "candidates.yaml",
    prompts: Annotated[
        Path | None, typer.Option("--prompts", help="A file of prompts from your traffic.")
    ] = None,
    python: Annotated[
        str | None,
        typer.Option("--python", help="Python of the engine, if vLLM lives elsewhere."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Write a commented candidates.yaml for a model, from what lies on this machine."""
    from autotune.cli import init as first  # noqa: PLC0415

    first.init(model, output, prompts, python, force=force)


@app.command(epilog=_exits(MEANING))
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
def check(
    file: FileArg,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print faults and findings as JSON, for CI.")
    ] = False,
) -> None:
    """Check file, models and machine without starting the engine; also the first step of a run.

    Exit code 0: nothing but warnings and skipped K; 2: a candidate or the whole study is refused.
    """
    from autotune.cli import checking  # noqa: PLC0415

    raise typer.Exit(checking.check(file, as_json=as_json))


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
def explain(
    study: StudyArg,
    candidate: Annotated[
        str | None, typer.Argument(help="Only this candidate.", show_default=False)
    ] = None,
    root: RootOption = None,
) -> None:
    """Say why a study came out as it did: costs, diagnoses with remedies, what to change next."""
    from autotune.cli import explain as explaining  # noqa: PLC0415

    explaining.show(study, root, candidate)


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


@app.command(epilog=_exits(VERIFIED))
def verify(
    file: DeployedArg,
    prompts: Annotated[
        Path | None,
        typer.Option("--prompts", help="Other prompts; default: those it was measured on."),
    ] = None,
    budget: Annotated[
        str | None, typer.Option("--budget", help="Wall clock, such as 20m; default: no limit.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="Default reports/<study>/verify.json; - prints it."),
    ] = None,
    root: RootOption = None,
) -> None:
    """Measure a deployed configuration again, beside plain decoding: is it still good here?"""
    from autotune.cli import verifying  # noqa: PLC0415

    raise typer.Exit(verifying.verify(file, prompts, budget, root, output))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def serve(
    context: typer.Context,
    file: DeployedArg,
    port: Annotated[int, typer.Option(help="Port on loopback.")] = 8000,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the command line; start nothing.")
    ] = False,
) -> None:
    """Start the engine with it. Further words go to the engine, such as --host 0.0.0.0."""
    from autotune.cli import serving  # noqa: PLC0415

    serving.serve(file, port, context.args, dry_run=dry_run)


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
