"""Prompts in each format: what becomes of a row, how the format is told, and what is refused."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from autotune.config.prompts import Prompts, read_prompts
from autotune.config.prompts.formats import FORMATS
from autotune.core.workload import Prompt

COUNT = 30
"""Enough that both splits get some."""


def lines(rows: Iterable[object]) -> str:
    """JSON lines."""
    return "".join(json.dumps(row) + "\n" for row in rows)


def of_each_format() -> dict[str, str]:
    """A file of each format, all asking the same."""
    asked = [f"question {i}" for i in range(COUNT)]
    talks = [[{"from": "human", "value": q}, {"from": "gpt", "value": "x"}] for q in asked]
    return {
        "openai": lines({"messages": [{"role": "user", "content": q}]} for q in asked),
        "vllm_custom": lines({"prompt": q} for q in asked),
        "sharegpt": json.dumps([{"id": f"s{i}", "conversations": t} for i, t in enumerate(talks)]),
        "spec_bench": lines(
            {"question_id": i, "category": "math", "turns": [q]} for i, q in enumerate(asked)
        ),
        "text": "\n\n".join(asked),
    }


def read(
    folder: Path,
    content: str,
    name: str = "p.jsonl",
    *,
    format_name: str | None = None,
    limit: int | None = None,
) -> Prompts:
    """The prompts of a file with this content."""
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return read_prompts(path, seed=0, format_name=format_name, limit=limit)


def by_id(prompts: Prompts) -> dict[str, Prompt]:
    """All prompts, both splits."""
    assert prompts.faults == ()
    return {p.id: p for p in (*prompts.search, *prompts.confirmation)}


@pytest.mark.parametrize("name", list(FORMATS))
def test_every_format_is_told_by_its_content(tmp_path: Path, name: str) -> None:
    """The same questions come out of each, and naming the format changes nothing."""
    suffix = "p.txt" if name == "text" else "p.data"
    content = of_each_format()[name]
    found = by_id(read(tmp_path, content, suffix))
    asked = {str(p.messages[0]["content"]) for p in found.values()}
    assert asked == {f"question {i}" for i in range(COUNT)}
    assert all(p.messages[0]["role"] == "user" for p in found.values())
    assert by_id(read(tmp_path, content, suffix, format_name=name)) == found


def test_the_id_of_a_prompt_without_one_is_the_hash_of_what_is_asked(tmp_path: Path) -> None:
    """The same in every format that has no ids, so that splits stay as they were."""
    contents = of_each_format()
    ids = [
        set(by_id(read(tmp_path, contents[name], suffix)))
        for name, suffix in (("openai", "a"), ("vllm_custom", "b"), ("text", "c.txt"))
    ]
    assert ids[0] == ids[1] == ids[2]
    assert "a70e1fd8a453" in ids[0]


def test_a_text_file_may_hold_json_lines(tmp_path: Path) -> None:
    """Its first line decides, whatever the name says."""
    found = by_id(read(tmp_path, of_each_format()["spec_bench"], "p.txt"))
    assert set(found) == {str(i) for i in range(COUNT)}


def test_a_file_of_words_with_brackets_is_text(tmp_path: Path) -> None:
    """A first line that begins as JSON does makes no JSON of a .txt file."""
    found = by_id(read(tmp_path, "[INST] hi\n" + of_each_format()["text"], "p.txt"))
    assert len(found) == COUNT + 1


def test_a_turn_after_the_first_is_kept_for_later(tmp_path: Path) -> None:
    """Spec-Bench's question 81 has two turns: one conversation, two requests."""
    rows = [{"question_id": i, "category": "writing", "turns": ["a", "b"]} for i in range(81, 101)]
    prompt = by_id(read(tmp_path, lines(rows)))["81"]
    assert (prompt.task, prompt.later_turns, prompt.requests) == ("writing", ("b",), 2)
    assert prompt.messages == ({"role": "user", "content": "a"},)


def test_the_length_of_a_reply_comes_with_vllms_custom_rows(tmp_path: Path) -> None:
    """`output_tokens` is the prompt's own bound; without it the workload's holds."""
    rows = [{"id": i, "prompt": f"p{i}", **({"output_tokens": 9} if i else {})} for i in range(20)]
    found = by_id(read(tmp_path, lines(rows)))
    assert (found["0"].max_tokens, found["1"].max_tokens) == (None, 9)


def test_sharegpt_is_read_as_vllm_reads_it(tmp_path: Path) -> None:
    """The first turn of the human; what has fewer than two turns or no human is passed over."""
    rows = json.loads(of_each_format()["sharegpt"])
    gpt = {"from": "gpt", "value": "hello"}
    rows[0]["conversations"] = [gpt, {"from": "human", "value": "late"}]
    rows[1]["conversations"] = [{"from": "human", "value": "alone"}]
    rows[2]["conversations"] = [gpt, gpt]
    rows[4]["id"] = "s3"
    prompts = read(tmp_path, json.dumps(rows))
    found = by_id(prompts)
    assert found["s0"].messages[0]["content"] == "late"
    assert set(found) == {"s0", "s3", *(f"s{i}" for i in range(5, COUNT))}
    assert [note.partition(": ")[2] for note in prompts.notes] == [
        "2 rows passed over: nothing is asked",
        "1 row passed over: the id of another",
    ]


def test_the_lines_of_an_array_are_kept(tmp_path: Path) -> None:
    """A conversation is found again in the file by its line."""
    rows = json.loads(of_each_format()["sharegpt"])
    prompts = read(tmp_path, json.dumps(rows, indent=1))
    text = (tmp_path / "p.jsonl").read_text().splitlines()
    assert '"id": "s7"' in text[prompts.lines["s7"]]
    assert text[prompts.lines["s7"] - 1].strip() == "{"


def test_a_limit_stops_reading(tmp_path: Path) -> None:
    """The first prompts, and no look at the rest of a large file."""
    content = of_each_format()["spec_bench"] + "broken\n"
    assert set(by_id(read(tmp_path, content, limit=20))) == {str(i) for i in range(20)}


def test_a_prompt_may_say_what_its_reply_looks_like(tmp_path: Path) -> None:
    """In the shape that vLLM takes."""
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
    rows = [{"id": i, "prompt": f"p{i}", "response_format": form} for i in range(20)]
    assert by_id(read(tmp_path, lines(rows)))["3"].response_format == form


HUMAN = '{"from": "human", "value": "x"}'

# content, file name, the line named, part of the message
BAD = [
    ('{"prompt": 3}\n', "p", 1, '"prompt" must be a text that is not empty, got 3'),
    ('{"prompt": " "}\n', "p", 1, "not empty"),
    ('{"prompt": "a"}\n{"prompt": "a"}\n', "p", 2, "stands in line 1 already"),
    ('{"prompt": "a", "output_tokens": 0}\n', "p", 1, "whole number of at least 1, got 0"),
    ('{"prompt": "a", "output_tokens": true}\n', "p", 1, "whole number of at least 1"),
    ('{"prompt": "a", "top_p": 1}\n', "p", 1, "it stands in workload.sampling"),
    ('{"prompt": "a"}\n{"messages": []}\n', "p", 2, '"prompt" must be a text'),
    ('{"prompt": "a", "response_format": {"type": "object"}}\n', "p", 1, "a type of json_schema"),
    (
        '{"prompt": "a", "response_format": {"type": "json_schema", "json_schema": {}}}\n',
        "p",
        1,
        "is written {type: json_schema",
    ),
    ('{"turns": []}\n', "p", 1, "a list of at least one text"),
    ('{"turns": ["a", ""]}\n', "p", 1, "a turn must be a text"),
    ('{"turns": "a"}\n', "p", 1, "a list of at least one text"),
    ('{"question_id": 1.5, "turns": ["a"]}\n', "p", 1, '"question_id" must be a text'),
    ('{"question_id": 1, "turns": ["a"], "category": 2}\n', "p", 1, '"category" must be a text'),
    ('[\n{"conversations": 1}\n]', "p", 2, '"conversations" is a list'),
    ('[\n{"conversations": [{"role": "user"}]}]', "p", 2, 'a turn has "from" and "value"'),
    (f'[\n{{"conversations": [{HUMAN}]}},\n3]', "p", 3, "a line is an object"),
    (f'[\n{{"conversations": [{HUMAN}]}}\n{{}}]', "p", 3, "lacks a comma"),
    (f'[{{"conversations": [{HUMAN}]}}]\n1', "p", 2, "after the end of the array"),
    ('[{"conversations": []},\nx]', "p", 2, "not JSON"),
    ('[{"conversations": []}', "p", 1, "lacks a comma or its end"),
    ("same\nsame\n", "p.txt", 2, "measures the prefix cache"),
    ("[" * 100_000, "p", 1, "not JSON"),
    ('{"a":' * 100_000 + "\n", "p", 1, "not JSON"),
    ("9" * 5000 + "\n", "p", 1, "not JSON"),
]


@pytest.mark.parametrize(("content", "name", "line", "message"), BAD)
def test_a_bad_row_is_named_by_its_line(
    tmp_path: Path, content: str, name: str, line: int, message: str
) -> None:
    """File, line, rule: whatever the format."""
    found = read(tmp_path, content, name).faults
    assert any(f.startswith(f"{tmp_path / name}:{line}: ") and message in f for f in found), found


def test_all_bad_rows_come_at_once_but_no_more_than_ten(tmp_path: Path) -> None:
    """A large file of the wrong kind does not flood the screen."""
    found = read(tmp_path, lines({"turns": [i]} for i in range(25))).faults
    assert len(found) == 11
    assert found[-1].endswith("and 15 more lines at fault")


def test_a_later_turn_cannot_bear_the_id_of_another_prompt(tmp_path: Path) -> None:
    """Samples are told apart by their id: `81#2` is the second turn of 81."""
    rows = [{"question_id": 81, "turns": ["a", "b"]}, {"question_id": "81#2", "turns": ["c"]}]
    prompts = read(tmp_path, lines(rows))
    assert set(prompts.lines) == {"81"}
    assert "1 row passed over: the id of another" in prompts.notes[0]


def test_a_named_format_is_not_guessed(tmp_path: Path) -> None:
    """A row of another format is then at fault."""
    (fault,) = read(tmp_path, '{"prompt": "a"}\n', format_name="openai").faults
    assert '"messages" must be a list' in fault
