"""Loops are found whatever is repeated, and honest text is left alone; JSON is told from text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.core.texts import asks_for_json, is_json, looping

PROSE = (
    "The library opens at nine on weekdays and at ten on Saturdays; on Sundays it is closed. "
    "Members may borrow six books for four weeks, and renew them twice if nobody else waits. "
)
LIST = "\n".join(f"{i}. Step {i} of the recipe: stir, wait and taste." for i in range(1, 9))
CODE = "for i in range(10):\n    x = x + 1\n    y = y + 1\n    z = z + 1\n    print(x, y, z)\n"


@pytest.mark.parametrize(
    "text",
    [
        "- the " * 20,
        PROSE + "and so on " * 40,
        "I cannot say. " * 12,
        "go " * 16,
        "很好" * 40,
        "the" * 90,
    ],
)
def test_one_phrase_over_and_over_is_a_loop(text: str) -> None:
    """Words, phrases, sentences, and text without spaces."""
    assert looping(text)


@pytest.mark.parametrize("text", ["", "yes", "no no no no no", PROSE, PROSE * 2, LIST, CODE])
def test_text_that_says_something_is_no_loop(text: str) -> None:
    """Short replies, prose said twice, lists and code repeat a little."""
    assert not looping(text)


def test_a_short_loop_at_the_end_of_a_long_reply_is_forgiven() -> None:
    """More than half must be the loop."""
    assert not looping(PROSE * 2 + "done " * 20)


@given(st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=10), st.integers(0, 5))
def test_a_phrase_of_ten_words_is_found_wherever_it_begins(phrase: list[str], cut: int) -> None:
    """The loop may begin and end in the middle of the phrase."""
    words = (phrase * 20)[cut:]
    assert looping(" ".join(words)) == (len(words) >= 16)


@given(st.integers(16, 300))
def test_words_that_never_come_again_are_no_loop(count: int) -> None:
    """However long the reply is."""
    assert not looping(" ".join(f"w{i}" for i in range(count)))


@pytest.mark.parametrize("text", ['{"a": [1, 2]}', ' {"a": "b"}\n', "3", '"\\ud800"'])
def test_json_is_what_a_parser_takes(text: str) -> None:
    """White space around it does no harm."""
    assert is_json(text)


@pytest.mark.parametrize(
    "text",
    ["", "yes", '{"a": 1', '{"a": 1} {"a": 2}', pytest.param("[" * 100_000, id="nested")],
)
def test_what_no_parser_takes_is_no_json(text: str) -> None:
    """Cut, doubled, or nested without end."""
    assert not is_json(text)


def test_two_formats_of_vllm_are_json() -> None:
    """A structural tag wraps JSON in text of its own."""
    asked = [t for t in ("json_schema", "json_object", "structural_tag", "text") if asks(t)]
    assert asked == ["json_schema", "json_object"]
    assert not asks_for_json(None)


def asks(kind: str) -> bool:
    """Whether a format of this type asks for JSON."""
    return asks_for_json({"type": kind})
