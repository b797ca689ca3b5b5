"""The command line answers at once: help and version, and what they do not import."""

import json
import subprocess
import sys
from collections.abc import Mapping

import pytest

from autotune.cli.exits import MEANING, VERIFIED, Exit

HEAVY = (
    "aiohttp",
    "datasets",
    "matplotlib",
    "mlflow",
    "numpy",
    "optuna",
    "pandas",
    "pyarrow",
    "scipy",
    "tokenizers",
    "torch",
    "transformers",
    "vllm",
)
VERBS = (
    "init",
    "check",
    "run",
    "plan",
    "show",
    "explain",
    "report",
    "export",
    "verify",
    "serve",
    "ui",
    "clean",
)

_IMPORTED = """
import json, runpy, sys
sys.argv = ["autotune", *json.loads(sys.argv[1])]
try:
    if sys.argv[1:] == ["import"]:
        import autotune.cli
    else:
        runpy.run_module("autotune", run_name="__main__")
except SystemExit:
    pass
print("\\n" + json.dumps(sorted(sys.modules)))
"""


def python(*words: str) -> "subprocess.CompletedProcess[str]":
    """Run this Python."""
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)


def imported(*words: str) -> set[str]:
    """The top-level packages that a command has imported."""
    done = python("-c", _IMPORTED, json.dumps(words))
    assert done.returncode == 0, done.stderr
    names: list[str] = json.loads(done.stdout.splitlines()[-1])
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize(
    "words", [("import",), ("--help",), ("run", "--help"), ("verify", "--help")]
)
def test_help_imports_nothing_heavy(words: tuple[str, ...]) -> None:
    """Neither importing the command line nor asking for help loads an engine or a plotter."""
    assert imported(*words) & set(HEAVY) == set()


def test_every_verb_has_help() -> None:
    """`autotune --help` lists the verbs; each explains itself."""
    listed = python("-m", "autotune", "--help").stdout
    for verb in VERBS:
        assert verb in listed
        done = python("-m", "autotune", verb, "--help")
        assert done.returncode == 0, done.stderr
        assert "Usage: " in done.stdout


@pytest.mark.parametrize(("verb", "meaning"), [("run", MEANING), ("verify", VERIFIED)])
def test_help_tells_every_exit_code(verb: str, meaning: Mapping[Exit, str]) -> None:
    """Scripts need them; they stand where people look for them."""
    shown = " ".join(python("-m", "autotune", verb, "--help").stdout.split())
    for code in Exit:
        assert str(code.value) in shown
        assert meaning[code].split(",")[0] in shown


def test_version_prints_the_environment() -> None:
    """One `name version` a line, without loading the engine to know it."""
    done = python("-m", "autotune", "--version")
    assert done.returncode == 0, done.stderr
    names = [line.split(" ")[0] for line in done.stdout.splitlines()]
    assert names[:5] == ["autotune", "python", "platform", "vllm", "device"]
    assert {"optuna", "mlflow", "torch"} <= set(names)
    assert all(len(line.split(" ", 1)[1]) > 0 for line in done.stdout.splitlines())


def test_no_verb_is_help() -> None:
    """`autotune` alone tells what there is, and is no success."""
    done = python("-m", "autotune")
    assert done.returncode == 2
    assert "Usage: " in done.stdout + done.stderr
