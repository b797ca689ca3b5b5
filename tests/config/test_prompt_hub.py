"""Data sets of the hub, read through a double of `datasets`, and without it."""

import importlib.util
from collections.abc import Mapping

import pytest

from autotune.config.prompts import HubDataset, Prompts, read_hub
from autotune.config.prompts.hub import Load
from autotune.core.study import JSON

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
    assert "1 rows repeat" in prompts.notes[0]


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
