"""Counters are added, subtracted and pooled; acceptance is what their counts say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.core.acceptance import AcceptanceProfile, SpecCounters


@st.composite
def draft_lengths(draw: st.DrawFn) -> tuple[int, list[int]]:
    """A K, and how many of the K tokens of each draft were accepted."""
    k = draw(st.integers(1, 12))
    return k, draw(st.lists(st.integers(0, k), min_size=1, max_size=30))


def count(k: int, accepted: list[int]) -> SpecCounters:
    """The counters of drafts of K tokens of which the first so many were accepted."""
    return SpecCounters(
        drafts=len(accepted),
        draft_tokens=k * len(accepted),
        accepted_tokens=sum(accepted),
        accepted_per_pos=tuple(sum(n > i for n in accepted) for i in range(k)),
    )


def positive_counts() -> st.SearchStrategy[SpecCounters]:
    """Any reading of the counters."""
    number = st.integers(0, 10**9)
    return st.builds(
        SpecCounters,
        drafts=number,
        draft_tokens=number,
        accepted_tokens=number,
        accepted_per_pos=st.lists(number, max_size=6).map(tuple),
    )


@given(draft_lengths())
def test_length_lies_between_one_and_k_plus_one(drafts: tuple[int, list[int]]) -> None:
    """Every step gives the bonus token, and at most all K before it."""
    k, accepted = drafts
    profile = count(k, accepted).profile
    assert profile
    assert 1 <= profile.length <= k + 1
    assert profile.length == pytest.approx(1 + sum(accepted) / len(accepted))


@given(draft_lengths())
def test_positions_fall_and_add_up(drafts: tuple[int, list[int]]) -> None:
    """Of drafts of one length, a later position is never accepted more often than an earlier."""
    k, accepted = drafts
    profile = count(k, accepted).profile
    assert profile
    assert profile.rate is not None
    assert list(profile.per_position) == sorted(profile.per_position, reverse=True)
    assert all(0 <= rate <= 1 for rate in (profile.rate, *profile.per_position))
    assert 1 + sum(profile.per_position) == pytest.approx(profile.length)
    assert sum(profile.per_position) / k == pytest.approx(profile.rate)


@given(positive_counts(), positive_counts())
def test_what_is_added_can_be_subtracted(before: SpecCounters, delta: SpecCounters) -> None:
    """Subtracting an earlier reading leaves what happened since; positions may appear late."""
    since = (before + delta) - before
    assert since.drafts == delta.drafts
    assert since.draft_tokens == delta.draft_tokens
    assert since.accepted_tokens == delta.accepted_tokens
    length = max(len(before.accepted_per_pos), len(delta.accepted_per_pos))
    padded = (*delta.accepted_per_pos, *[0] * length)[:length]
    assert since.accepted_per_pos == padded


@given(positive_counts(), positive_counts())
def test_addition_does_not_care_for_order(one: SpecCounters, other: SpecCounters) -> None:
    """Passes are pooled in any order, and nothing added changes nothing."""
    assert one + other == other + one
    assert one + SpecCounters() == one


@given(draft_lengths(), draft_lengths())
def test_pooled_before_divided(one: tuple[int, list[int]], other: tuple[int, list[int]]) -> None:
    """A pooled length weighs each draft alike, whichever pass it came from."""
    pooled = (count(*one) + count(*other)).profile
    every = one[1] + other[1]
    assert pooled
    assert pooled.length == pytest.approx(1 + sum(every) / len(every))


READING = SpecCounters(drafts=9, draft_tokens=27, accepted_tokens=12, accepted_per_pos=(6, 4, 2))


@pytest.mark.parametrize(
    "after",
    [
        SpecCounters(drafts=8, draft_tokens=27, accepted_tokens=12, accepted_per_pos=(6, 4, 2)),
        SpecCounters(drafts=9, draft_tokens=26, accepted_tokens=12, accepted_per_pos=(6, 4, 2)),
        SpecCounters(drafts=9, draft_tokens=27, accepted_tokens=11, accepted_per_pos=(6, 4, 2)),
        SpecCounters(drafts=9, draft_tokens=27, accepted_tokens=12, accepted_per_pos=(6, 4, 1)),
        SpecCounters(drafts=9, draft_tokens=27, accepted_tokens=12, accepted_per_pos=(6, 4)),
    ],
)
def test_a_counter_that_runs_backwards_is_refused(after: SpecCounters) -> None:
    """A restarted server is an error that shows both readings, not a negative rate."""
    with pytest.raises(ValueError, match="ran backwards") as caught:
        after - READING
    assert str(READING) in str(caught.value)
    assert SpecCounters(accepted_per_pos=(0, 0, 0)) == READING - READING


def test_no_drafts_no_acceptance() -> None:
    """Without a draft nothing is known, which is not an acceptance of zero."""
    assert SpecCounters(draft_tokens=0).profile is None
    with pytest.raises(ValueError, match="at least one draft"):
        AcceptanceProfile(counters=SpecCounters())
    undrafted = SpecCounters(drafts=3).profile
    assert undrafted
    assert undrafted.rate is None
    assert undrafted.length == 1.0


def test_few_drafts_have_a_wide_interval() -> None:
    """9 of 12 is Wilson's textbook kind of case: between 47 and 91 percent, and insufficient."""
    profile = SpecCounters(drafts=12, draft_tokens=12, accepted_tokens=9).profile
    assert profile is not None
    assert profile.rate_interval == pytest.approx((0.468, 0.911), abs=0.001)
    assert not profile.sufficient


@given(st.integers(1, 10**6), st.data())
def test_the_interval_holds_the_rate_and_stays_within_bounds(n: int, data: st.DataObject) -> None:
    """Also for no token and for all of them."""
    accepted = data.draw(st.integers(0, n))
    profile = SpecCounters(drafts=n, draft_tokens=n, accepted_tokens=accepted).profile
    assert profile is not None
    interval = profile.rate_interval
    assert interval is not None
    assert profile.rate is not None
    assert 0 <= interval[0] <= profile.rate + 1e-9
    assert profile.rate - 1e-9 <= interval[1] <= 1
    assert interval[1] - interval[0] < 2 / n**0.5


def test_nothing_drafted_has_no_interval() -> None:
    """Drafts without a token: no rate, so no interval either."""
    profile = SpecCounters(drafts=3).profile
    assert profile is not None
    assert profile.rate_interval is None
