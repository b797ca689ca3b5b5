"""What is no candidates file at all, and what is wrong with the prompts beside it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune.config import load
from autotune.errors import CandidatesFileError, Fault

Faults = Callable[..., list[Fault]]

# a whole file -> line, part of the message
FILES: list[tuple[str | bytes, int | None, str]] = [
    ("", None, "the file is empty"),
    ("# nothing\n", None, "the file is empty"),
    ("~\n", 1, "must be a mapping"),
    ("- a\n", 1, "must be a mapping"),
    ("text\n", 1, "must be a mapping"),
    ("a: 1\n\tb: 2\n", 2, "a tab; YAML indents with spaces"),
    ("a: [1\n", 1, "not YAML: expected"),
    ("a: 'x\n", 1, "not YAML"),
    ("a: b: c\n", 1, "mapping values are not allowed"),
    ("a: 1\n---\nb: 2\n", 2, "another document"),
    ("a: *b\n", 1, "undefined alias"),
    ("a: {<<: 1}\n", 1, "not YAML: expected a mapping"),
    (b"a: 1\nb: \xff\n", 2, "not UTF-8"),
    ("a: 1\nb: \x01\n", 2, "the character '\\x01'"),
    ("a: 1\na: 2\n", 2, "stands here twice, first in line 1"),
]


@pytest.mark.parametrize(("text", "line", "message"), FILES)
def test_what_is_not_a_candidates_file_at_all(
    faults_of: Faults, text: str | bytes, line: int | None, message: str
) -> None:
    """Broken YAML and files of another shape are faults with a line, never tracebacks."""
    found = faults_of(text)
    assert any(fault.line == line and message in fault.message for fault in found), found


def test_a_missing_file_and_a_folder_say_what_to_do(tmp_path: Path) -> None:
    """The two commonest slips on the command line have their remedy."""
    with pytest.raises(CandidatesFileError, match="autotune init MODEL"):
        load(tmp_path / "none.yaml")
    with pytest.raises(CandidatesFileError, match=r"name the candidates\.yaml in it"):
        load(tmp_path)


def row(content: str, extra: str = "") -> str:
    """A line of a prompts file."""
    return f'{{"messages": [{{"role": "user", "content": "{content}"}}]{extra}}}\n'


# a prompts file -> the line named, part of the message
PROMPT_FILES: list[tuple[str | bytes, str, str]] = [
    (row("a") + "nope\n", ":2: ", "not JSON"),
    (row("a") + "[1]\n", ":2: ", 'an object with "messages"'),
    (row("a") + "{}\n", ":2: ", '"messages" must be a list'),
    ('{"messages": []}\n', ":1: ", '"messages" must be a list'),
    ('{"messages": ["x"]}\n', ":1: ", '"role" and "content"'),
    ('{"messages": [{"role": "user"}]}\n', ":1: ", '"role" and "content"'),
    (row("a", ', "id": 1') + "\n" + row("b", ', "id": "1"'), ":3: ", "stands in line 1 already"),
    (row("a") + row("a"), ":2: ", "measures the prefix cache"),
    (row("a", ', "id": true'), ":1: ", '"id" must be a text'),
    (row("a", ', "split": "test"'), ":1: ", "search or confirmation"),
    (row("a", ', "task": 1'), ":1: ", '"task" must be a text'),
    (row("a", ', "temperature": 1'), ":1: ", "the same for every request"),
    (row("a", ', "split": "search"'), ": ", "no prompt of the split 'confirmation'"),
    ("", ": ", "no prompt of the split 'search'"),
    (row("a").encode() + b"\xff\n", ":2: ", "not UTF-8"),
    ("nope\n" * 30, ": ", "and 20 more lines"),
]


@pytest.mark.parametrize(("prompts", "line", "message"), PROMPT_FILES)
def test_faults_of_the_prompts_name_the_line_of_that_file(
    good: str, faults_of: Faults, prompts: str | bytes, line: str, message: str
) -> None:
    """The fault stands at workload.prompts and begins with the place in the prompts file."""
    found = faults_of(good, prompts)
    assert {(fault.line, fault.path) for fault in found} == {(6, "workload.prompts")}
    assert any(f"prompts.jsonl{line}" in f.message and message in f.message for f in found), found


def test_too_few_prompts_for_a_level_point_at_the_concurrency(good: str, faults_of: Faults) -> None:
    """The core's refusal comes out with its line."""
    (fault,) = faults_of(good.replace("[1]", "[1, 64]"))
    assert (fault.line, fault.path) == (7, "workload.concurrency")
    assert "add prompts or lower the concurrency" in fault.message


Json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


def places(data: object, above: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every place of some data."""
    pairs: list[tuple[str | int, object]] = []
    if isinstance(data, dict):
        pairs = list(data.items())
    elif isinstance(data, list):
        pairs = list(enumerate(data))
    return [above, *(p for key, inner in pairs for p in places(inner, (*above, key)))]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_nothing_in_a_file_makes_a_traceback(
    good: str, faults_of: Faults, data: st.DataObject
) -> None:
    """Whatever stands at a place, the file loads or has faults: no other error escapes."""
    content = {"file": yaml.safe_load(good)}
    *way, last = data.draw(st.sampled_from(places(content)[1:]))
    spoilt: Any = content
    for key in way:
        spoilt = spoilt[key]
    spoilt[last] = data.draw(Json)
    for fault in faults_of(yaml.safe_dump(content["file"])):
        assert fault.message
        assert fault.line is not None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 300), st.text(max_size=4))
def test_no_slip_of_the_pen_makes_a_traceback(
    good: str, faults_of: Faults, at: int, slip: str
) -> None:
    """Any text put anywhere into the file leaves a file that loads or has faults."""
    text = good[:at] + slip + good[at:]
    assert all(fault.message for fault in faults_of(text.encode("utf-8", "replace")))
