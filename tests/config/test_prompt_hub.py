"""Data sets of the hub, read through a double of `datasets`, and without it."""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from autotune.config.prompts import HubDataset, Prompts, read_hub
from autotune.config.prompts.hub import Load
from autotune.core.jsontype import JSON

SOURCE = HubDataset(name="org/name", subset="en", split="test")


def giving(*rows: Mapping[str, JSON]) -> Load:
    """A loader that gives these rows."""
    return lambda source: iter(rows)


def ids(prompts: Prompts) -> set[str]:
    """The ids of both splits."""
    assert prompts.faults == ()
    return {p.id for p in (*prompts.search, *prompts.confirmation)}


ROWS: dict[str, JSON] = {
    "prompt": "hello",
    "messages": [{"role": "user", "content": "hello"}],
    "turns": ["hello", "more"],
    "conversations": [{"from": "human", "value": "hello"}, {"from": "gpt", "value": "x"}],
}


@pytest.mark.parametrize("column", list(ROWS))
def test_a_column_decides_what_a_row_is(column: str) -> None:
    """Other columns may be called as they like, also as request fields are."""
    others: dict[str, JSON] = {"model": "x", "split": "y", column: ROWS[column]}
    rows: list[dict[str, JSON]] = [{**others, "id": f"r{i}"} for i in range(30)]
    prompts = read_hub(SOURCE, seed=0, load=giving(*rows))
    assert ids(prompts) == {f"r{i}" for i in range(30)}
    assert prompts.search[0].messages == ({"role": "user", "content": "hello"},)
    assert prompts.search[0].requests == (2 if column == "turns" else 1)


def test_the_file_chooses_between_columns() -> None:
    """`column: turns` where there is also a prompt."""
    source = HubDataset(name="org/name", column="turns")
    row: dict[str, JSON] = {"prompt": "p", "turns": ["a", "b"]}
    rows: list[dict[str, JSON]] = [{**row, "question_id": i} for i in range(30)]
    assert read_hub(source, seed=0, load=giving(*rows)).search[0].later_turns == ("b",)


def test_no_more_rows_than_wanted_are_read() -> None:
    """A limit takes the first rows, which a stream gives without the rest."""
    source = HubDataset(name="org/name", limit=20)
    rows = ({"prompt": f"p{i}", "id": str(i)} for i in range(1000))
    assert ids(read_hub(source, seed=0, load=lambda s: rows)) == {str(i) for i in range(20)}
    assert next(iter(rows))["id"] == "21"


def test_repeated_rows_are_passed_over_and_told() -> None:
    """Nobody mends a data set of the hub."""
    rows = [*({"prompt": f"p{i}"} for i in range(30)), {"prompt": "p3"}]
    prompts = read_hub(SOURCE, seed=0, load=giving(*rows))
    assert len(ids(prompts)) == 30
    assert "1 row passed over: the id of another" in prompts.notes[0]


def unreachable(source: HubDataset) -> list[Mapping[str, JSON]]:
    """A hub that is not to be had."""
    raise ConnectionError("no route to the hub")


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (giving({"text": "x"}), "row 1 has no column messages or prompt or"),
        (giving(), "no column of"),
        (unreachable, "no route to the hub"),
        (giving({"prompt": 3}), ":1: "),
    ],
)
def test_what_cannot_be_read_is_a_fault_that_names_the_data_set(load: Load, message: str) -> None:
    """Never a traceback."""
    (fault,) = read_hub(SOURCE, seed=0, load=load).faults
    assert fault.startswith("org/name/en[test]")
    assert message in fault


@pytest.mark.skipif(importlib.util.find_spec("datasets") is not None, reason="it is installed")
def test_without_the_package_the_remedy_is_told() -> None:
    """`datasets` is no dependency of autotune."""
    (fault,) = read_hub(SOURCE, seed=0).faults
    assert "pip install datasets" in fault
    assert "save the prompts as JSON lines" in fault


PACKAGE = {
    "__init__.py": """
from datasets import exceptions

def load_dataset(name, subset, *, split, streaming):
    {before}
    def rows():
        yield from ({{"prompt": f"p{{i}}"}} for i in range(30))
        {after}
    return rows()
""",
    "exceptions.py": """
class DatasetsError(Exception):
    pass

class DatasetBuildError(DatasetsError):
    pass

class DatasetGenerationError(DatasetBuildError):
    pass
""",
}
Install = Callable[..., None]
GENERATION = 'raise exceptions.DatasetGenerationError("An error occurred") from KeyError("column")'


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """A package `datasets` that fails as a test wants, found before any that is installed."""

    def install(before: str = "pass", after: str = "pass") -> None:
        (tmp_path / "datasets").mkdir()
        for name, text in PACKAGE.items():
            code = text.format(before=before, after=after) if name == "__init__.py" else text
            (tmp_path / "datasets" / name).write_text(code, encoding="utf-8")
        importlib.invalidate_caches()

    for name in loaded():
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    yield install
    for name in loaded():
        del sys.modules[name]


def loaded() -> list[str]:
    """The modules of `datasets`, whichever it is."""
    return [name for name in sys.modules if name.partition(".")[0] == "datasets"]


def test_rows_of_the_package_are_read(installed: Install) -> None:
    """As any loader's."""
    installed()
    assert len(ids(read_hub(SOURCE, seed=0))) == 30


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        (GENERATION, "An error occurred: 'column'"),
        ('raise exceptions.DatasetsError("no such split\\nsecond line")', "no such split"),
        ('raise RuntimeError("Dataset scripts are no longer supported.")', "no longer supported"),
        ('raise ImportError("To support decoding, install soundfile")', "install soundfile"),
        ("raise EOFError", "EOFError"),
    ],
)
@pytest.mark.parametrize("place", ["before", "after"])
def test_what_the_package_raises_is_one_fault(
    installed: Install, raised: str, message: str, place: str
) -> None:
    """At once or at some row, with what began it and the remedy; the rest of it is left out."""
    installed(**{place: raised})
    (fault,) = read_hub(SOURCE, seed=0).faults
    assert fault.startswith("org/name/en[test]: ")
    assert message in fault
    assert "second line" not in fault
    assert ".;" not in fault
    assert fault.endswith("; save the prompts as JSON lines and name that file")


def test_a_fault_of_ours_is_not_taken_for_one_of_the_package(installed: Install) -> None:
    """It ends as a traceback, which is where it can be mended."""
    installed(before='raise TypeError("ours")')
    with pytest.raises(TypeError, match="ours"):
        read_hub(SOURCE, seed=0)
