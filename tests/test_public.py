"""The public face: plugins, verbs, exit codes and the README agree with each other."""

import json
import re
import tomllib
from pathlib import Path

import pytest
import typer.main
import yaml

import autotune.cli
import autotune.config
from autotune.cli.app import app
from autotune.cli.exits import MEANING, Exit
from autotune.config import load
from autotune.errors import UserError
from autotune.ports import find, names

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PLUGINS = {
    "engines": ("simulated", "vllm"),
    "exporters": ("best_config", "vllm_schedule", "vllm_yaml"),
    "loadgens": ("closed_loop", "open_loop"),
}


def verbs() -> set[str]:
    """The verbs of the command line."""
    group = typer.main.get_group(app)
    return set(group.commands)


@pytest.mark.parametrize("family", sorted(PLUGINS))
def test_a_folder_is_a_registry(family: str) -> None:
    """Each family has exactly these plugins, each can be loaded, others are refused by name."""
    assert names(family) == PLUGINS[family]
    for name in PLUGINS[family]:
        assert find(family, name) is not None
    with pytest.raises(UserError, match=f"there are: {', '.join(PLUGINS[family])}"):
        find(family, "nothing")


def test_what_packages_offer() -> None:
    """The names that others may import, no more."""
    assert autotune.cli.__all__ == ["main"]
    assert autotune.config.__all__ == ["LoadedFile", "Tracking", "fit", "json_schema", "load"]


def test_the_console_script_is_the_command_line() -> None:
    """`autotune` and `python -m autotune` are the same."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"] == {"autotune": "autotune.cli:main"}


COMMAND = re.compile(
    r"[`(]autotune (?P<quoted>[a-z]+)[^a-z]"  # `autotune run`, (autotune ui)
    r"|^(?: {4})?autotune (?P<typed>[a-z]+)(?: {2,}| [A-Z]{4,}| [a-z-]+\.yaml|$)"  # in a block
    r"|autotune (?P<called>[a-z]+) (?:[\w.-]+\.yaml|[A-Z]{4,}|\{)",
    re.MULTILINE,
)
TEXTS = sorted(
    path
    for pattern in ("autotune/**/*.py", "autotune/**/*.j2", "*.md", "docs/*.md", "*.yaml")
    for path in ROOT.glob(pattern)
)


def commands(text: str) -> set[str]:
    """The verbs that a text tells its reader to type."""
    return {next(filter(None, found.groups())) for found in COMMAND.finditer(text)}


def test_every_command_that_is_named_can_be_typed() -> None:
    """In messages, reports and documents: no verb that is not there."""
    named = {path: commands(path.read_text(encoding="utf-8")) for path in TEXTS}
    assert {path: found - verbs() for path, found in named.items() if found - verbs()} == {}
    assert {"plan", "run", "show", "export", "ui"} <= commands(README)
    assert "run" in set.union(*(found for path, found in named.items() if path.suffix == ".py"))


def test_a_command_is_told_from_prose() -> None:
    """What the test above would find, and what it passes over."""
    text = "`autotune sync` or autotune verify best-config.yaml\nautotune init MODEL\n"
    assert commands(text) == {"sync", "verify", "init"}
    assert commands("autotune measures it on\nautotune itself is killed.\n") == set()


ABSOLUTE = re.compile(r"(?<![\w.:/<~-])/(?:[\w.@+-]+/)+[\w.@+-]+")


def test_recorded_results_name_no_machine() -> None:
    """`make record` leaves paths relative to the repository and the host's name out."""
    assert ABSOLUTE.findall("a /opt/x/y b=/home/me/z.so tok/s ./a/b http://h/x/y") == [
        "/opt/x/y",
        "/home/me/z.so",
    ]
    for path in sorted(ROOT.glob("studies/*/results/**/*")):
        if path.suffix in {".yaml", ".md", ".log", ".csv", ".json", ".jsonl"}:
            text = path.read_text(encoding="utf-8")
            assert not ABSOLUTE.findall(text), path
            assert not re.search(r"^(\| host \||\s*host: )", text, re.MULTILINE), path


def test_the_readme_has_the_exit_codes() -> None:
    """The codes of a finished study, with the words of `run --help`."""
    for code in (Exit.SPECULATE, Exit.DO_NOT_SPECULATE, Exit.UNDECIDED, Exit.BUDGET):
        assert re.search(rf"\b{code.value} \([a-z ]+\)", README)
    assert set(MEANING) == set(Exit)


def test_the_readme_s_file_is_a_candidates_file(tmp_path: Path) -> None:
    """What a reader copies is accepted as it stands, with prompts of their own."""
    text = next(x for x in re.findall(r"```yaml\n(.*?)```", README, re.DOTALL) if "target:" in x)
    (tmp_path / "my.yaml").write_text(text, encoding="utf-8")
    level = max(yaml.safe_load(text)["workload"]["concurrency"])
    with (tmp_path / "prompts.jsonl").open("w", encoding="utf-8") as file:
        for number in range(20 * level):
            row = {"messages": [{"role": "user", "content": f"Question {number}?"}]}
            file.write(json.dumps(row) + "\n")
    spec = load(tmp_path / "my.yaml", check_models=False).spec
    assert [c.method for c in spec.candidates] == ["eagle3", "draft_model", "ngram"]


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#:]+)\)", README))))
def test_the_readme_s_links_lead_somewhere(link: str) -> None:
    """A file that is named is there."""
    assert (ROOT / link).exists()
