"""Marks of replies: they find the first difference and hold no text."""

from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.core.replies import MARKED, ReplyPrint, agreeing_words, comparable, print_of

KEY, OTHER = b"one key", b"another key"
LONG = [f"w{i}" for i in range(700)]


def printed(*words: str, key: bytes = KEY) -> ReplyPrint:
    """The marks of these words in a row."""
    return print_of(" ".join(words), key)


@pytest.mark.parametrize(
    ("one", "other", "agree"),
    [
        ("the cat sat", "the cat sat", None),
        ("the cat sat", "the cat ran", 2),
        ("the cat sat", "a cat sat", 0),
        ("the cat", "the cat sat", 2),
        ("the cat", "the category", 1),
        ("the  cat sat", "the cat sat", 1),
        ("the cat\n", "the cat", 2),
        ("", "the", 0),
        ("", "", None),
    ],
)
def test_the_first_difference_is_found(one: str, other: str, agree: int | None) -> None:
    """Words before it, white space included; None when there is none; the order does not matter."""
    a, b = print_of(one, KEY), print_of(other, KEY)
    assert agreeing_words(a, b) == agreeing_words(b, a) == agree


@pytest.mark.parametrize(
    ("at", "told"), [(0, 0), (1, 1), (63, 63), (64, 64), (71, 64), (72, 72), (511, 504), (650, 512)]
)
def test_beyond_64_words_every_eighth_is_marked(at: int, told: int) -> None:
    """The word that differs is number `at`, from 0; what is told never exceeds what agrees."""
    changed = [*LONG[:at], "other", *LONG[at + 1 :]]
    assert agreeing_words(printed(*LONG), printed(*changed)) == told


@settings(derandomize=True)  # a mark of 16 bits is allowed to be wrong, seldom
@given(
    words=st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=60),
    at=st.integers(0, 59),
)
def test_any_changed_word_is_found_where_it_is(words: list[str], at: int) -> None:
    """Whatever comes before and after it."""
    at = min(at, len(words) - 1)
    changed = [*words[:at], words[at] + "x", *words[at + 1 :]]
    assert agreeing_words(printed(*words), printed(*changed)) == at


def test_characters_are_words_where_a_script_has_no_spaces() -> None:
    """Chinese and Thai; a Latin word among them is one."""
    assert print_of("我们用 vLLM 服务", KEY).words == 6
    assert print_of("ไทย", KEY).words == 3
    assert agreeing_words(print_of("我们好", KEY), print_of("我们坏", KEY)) == 2


def test_nothing_of_the_text_is_kept() -> None:
    """Only counts, a ratio and hex digits; under another key all marks are others."""
    one, other = printed("sesame", "opens"), printed("sesame", "opens", key=OTHER)
    assert "sesame" not in str(asdict(one))
    assert set(one.marks + one.whole) <= set("0123456789abcdef")
    assert not comparable(one, other)
    assert comparable(one, printed("something", "else"))
    assert not {one.marks[i : i + 4] for i in (0, 4, 8)} & {
        other.marks[i : i + 4] for i in (0, 4, 8)
    }


def test_marks_stay_short() -> None:
    """132 hex digits for a reply of 32 words, 484 for one of any length."""
    assert len(printed(*LONG[:32]).marks) == 4 * 33
    assert len(printed(*LONG).marks) == 4 * len(MARKED) == 4 * (65 + 56)


def test_distinct_2_by_hand() -> None:
    """a b a b a has the pairs ab ba ab ba: two of four."""
    assert print_of("a b a b a", KEY).distinct_2 == 0.5
    assert print_of("a b c", KEY).distinct_2 == 1.0
    assert print_of("a", KEY).distinct_2 is None
