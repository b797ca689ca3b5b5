"""Loops are found whatever is repeated, and honest text is left alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.core.texts import looping

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
