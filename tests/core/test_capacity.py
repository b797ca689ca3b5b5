"""How much KV cache a utilization has: told by a launch, from a line, or bounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.core.capacity import Capacities, Line, Source, capacities
from autotune.core.trial import Stage
from tests.builders_memory import GIB, launched

DEVICE_GIB = 80.0


def tokens_at(share: float, weights_gib: float, bytes_per_token: int) -> int:
    """What vLLM does: the share less what is no KV cache, cut into tokens."""
    return int((share * DEVICE_GIB - weights_gib) * GIB / bytes_per_token)


@given(
    weights_gib=st.floats(1.0, 20.0),
    bytes_per_token=st.integers(20_000, 400_000),
    share=st.floats(0.35, 0.95),
)
def test_one_launch_that_told_its_bytes_gives_every_other(
    weights_gib: float, bytes_per_token: int, share: float
) -> None:
    """The device's memory and the bytes of a token are the line's slope."""
    whole = tokens_at(0.9, weights_gib, bytes_per_token)
    gib = (0.9 * DEVICE_GIB - weights_gib, DEVICE_GIB)
    found = capacities([launched(0.9, whole, gib=gib)], "eagle", 2).at(share)
    assert found is not None
    assert found.tokens == pytest.approx(tokens_at(share, weights_gib, bytes_per_token), abs=9)


@given(weights_gib=st.floats(1.0, 20.0), share=st.floats(0.35, 0.95))
def test_two_launches_give_the_line_without_any_bytes(weights_gib: float, share: float) -> None:
    """Capacity is linear in utilization."""
    records = [launched(s, tokens_at(s, weights_gib, 100_000)) for s in (0.5, 0.9)]
    found = capacities(records, "eagle", 2).at(share)
    assert found is not None
    assert found.tokens == pytest.approx(tokens_at(share, weights_gib, 100_000), abs=9)


@given(weights_gib=st.floats(0.0, 20.0), share=st.floats(0.3, 0.89))
def test_one_launch_alone_bounds_what_less_memory_holds(weights_gib: float, share: float) -> None:
    """Weights take their part first, so less memory holds less than its share of the tokens."""
    whole = tokens_at(0.9, weights_gib, 100_000)
    found = capacities([launched(0.9, whole)], "eagle", 2).at(share)
    assert found is not None
    assert found.source is Source.BOUND
    assert found.words.startswith("at most ")
    assert found.tokens >= max(tokens_at(share, weights_gib, 100_000) - 1, 0)


def test_what_a_launch_told_wins_over_the_line() -> None:
    """Three launches that are not on one line are believed, each at its own utilization."""
    told = {0.5: 1000, 0.7: 5000, 0.9: 6000}
    found = capacities([launched(s, tokens) for s, tokens in told.items()], "eagle", 2)
    for share, tokens in told.items():
        capacity = found.at(share)
        assert capacity is not None
        assert (capacity.tokens, capacity.source) == (tokens, Source.LAUNCH)


def test_a_launch_like_the_one_to_deploy_counts_before_one_for_a_larger_k() -> None:
    """A live launch for K = 5 leaves less room; where K = 2 was launched itself, that counts."""
    live = launched(0.9, 5000, k=5)
    assert capacities([live], "eagle", 2).at(0.9) == capacities([live], "eagle", 5).at(0.9)
    cold = launched(0.9, 6000, stage=Stage.CONFIRM)
    found = capacities([live, cold], "eagle", 2).at(0.9)
    assert found is not None
    assert found.tokens == 6000


def test_another_candidate_says_nothing() -> None:
    """Its weights and its part of the KV cache are others."""
    assert capacities([launched(0.9, 5000, name="draft-4l")], "eagle", 2).at(0.9) is None
    assert capacities([launched(0.9, None)], "eagle", 2).at(0.9) is None


def test_a_falling_line_is_none() -> None:
    """More memory with less KV cache is no line: other things changed in between."""
    found = capacities([launched(0.5, 5000), launched(0.9, 4000)], "eagle", 2)
    assert found.line is None
    with pytest.raises(ValueError, match="must rise"):
        Line(per_share=0.0, at_none=1.0)


@given(tokens=st.integers(1, 10**6))
def test_a_line_reads_both_ways(tokens: int) -> None:
    """The utilization of a capacity has that capacity."""
    line = Line(per_share=2e6, at_none=-1e5)
    assert line.tokens(line.utilization(tokens) + 1e-9) == pytest.approx(tokens, abs=1)
    assert line.tokens(0.01) == 0


def test_nothing_told_is_nothing_known() -> None:
    """Without a launch there is no number."""
    assert Capacities(reported={}, line=None).at(0.5) is None
