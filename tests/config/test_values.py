"""The small languages of the file read back what they were written from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.config.values import (
    parse_duration,
    parse_fraction,
    parse_ks,
    parse_latency,
    parse_utilizations,
)


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))
def test_durations_add_up(hours: int, minutes: int, seconds: int) -> None:
    """Each unit given counts, whichever are left out."""
    parts = ((hours, "h"), (minutes, "m"), (seconds, "s"))
    text = "".join(f"{count}{unit}" for count, unit in parts if count)
    if text:
        assert parse_duration(text) == hours * 3600 + minutes * 60 + seconds


@given(st.floats(min_value=1e-3, max_value=1e6))
def test_a_number_is_seconds(seconds: float) -> None:
    """A bare number needs no unit: seconds are the only one."""
    assert parse_duration(seconds) == seconds


@given(st.text(max_size=6))
def test_no_text_is_a_surprise(text: str) -> None:
    """Any other text is refused with a ValueError, nothing else."""
    for parse in (parse_duration, parse_fraction, parse_latency, parse_ks, parse_utilizations):
        try:
            parse(text)
        except ValueError:
            continue
        assert any(character.isdigit() for character in text)


@given(st.integers(0, 10000))
def test_percents_are_fractions(hundredths: int) -> None:
    """`2.5%` and 0.025 are the same number, to the last digit."""
    assert parse_fraction(f"{hundredths / 100}%") == hundredths / 10000
    assert parse_fraction(hundredths / 10000) == hundredths / 10000


@given(st.integers(1, 10**6))
def test_latencies_are_milliseconds(milliseconds: int) -> None:
    """The unit is part of the value."""
    assert parse_latency(f"{milliseconds} ms") == milliseconds
    assert parse_latency(f"{milliseconds}s") == milliseconds * 1000


@pytest.mark.parametrize("bad", [True, None, [], "m", "5", "1.h", "10 m 5", -1, "1d"])
def test_what_is_no_duration(bad: object) -> None:
    """Truth values, bare digits in quotes and unknown units are refused."""
    with pytest.raises(ValueError, match="duration"):
        parse_duration(bad)


@given(st.integers(1, 128), st.integers(1, 128))
def test_a_range_of_k_holds_both_ends(one: int, other: int) -> None:
    """{low, high} is inclusive, as vLLM's own ranges are."""
    low, high = sorted((one, other))
    ks = parse_ks({"low": low, "high": high})
    assert (ks[0], ks[-1], len(ks)) == (low, high, high - low + 1)


@given(st.integers(1, 100))
def test_one_memory_share_may_stand_alone(percent: int) -> None:
    """A number is a list of one."""
    share = percent / 100
    assert parse_utilizations(share) == parse_utilizations([share]) == (share,)


@given(st.integers(1, 99), st.integers(1, 99), st.integers(1, 99))
def test_a_range_of_shares_holds_both_ends_and_has_the_numbers_of_a_list(
    one: int, other: int, step: int
) -> None:
    """In steps from low; the search runs at high, so that is always there."""
    low, high = sorted((one, other))
    found = parse_utilizations({"low": low / 100, "high": high / 100, "step": step / 100})
    expected = [*range(low, high + 1, step)]
    assert found == tuple(x / 100 for x in ([*expected, high] if expected[-1] < high else expected))
    assert parse_utilizations({"low": 0.6, "high": 0.8}) == (0.6, 0.65, 0.7, 0.75, 0.8)
