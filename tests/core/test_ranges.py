"""Which K of a range come first, next, and beyond its end."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.core.stages.ranges import around, between, coarse, doubled, universe
from autotune.core.study import Candidate

HEAD = Candidate(name="head", method="eagle", model="a/head")
KS = st.lists(st.integers(1, 128), min_size=1, unique=True).map(lambda ks: tuple(sorted(ks)))


@pytest.mark.parametrize(
    ("ks", "first"),
    [
        ((1, 2, 3, 4, 5, 6, 7, 8), (1, 2, 4, 8)),
        ((1, 2, 3, 5), (1, 2, 5)),
        ((1, 3, 5, 8), (1, 3, 8)),
        ((2, 4, 6), (2, 4, 6)),
        ((5,), (5,)),
    ],
)
def test_coarse_k_double(ks: tuple[int, ...], first: tuple[int, ...]) -> None:
    """The smallest, each that is at least twice the one before, and always the largest."""
    assert coarse(ks) == first


@given(KS)
def test_coarse_k_are_few_and_keep_the_ends(ks: tuple[int, ...]) -> None:
    """No more than the doublings between the ends need, and one."""
    chosen = coarse(ks)
    assert (chosen[0], chosen[-1]) == (ks[0], ks[-1])
    assert set(chosen) <= set(ks)
    assert len(chosen) <= (ks[-1] // ks[0]).bit_length() + 1


@given(KS, st.data())
def test_following_the_best_ends_with_its_neighbours_known(
    ks: tuple[int, ...], data: st.DataObject
) -> None:
    """Whatever K is the best, gap after gap closes on both sides of it."""
    tried = coarse(ks)
    best = data.draw(st.sampled_from(ks))
    for _ in range(20):
        nearest = min(tried, key=lambda k: (abs(k - best), k))
        new = set(around(ks, tried, {nearest}))
        if not new:
            break
        tried = tuple(sorted({*tried, *new}))
    place = ks.index(nearest)
    assert set(ks[max(place - 1, 0) : place + 2]) <= set(tried)


def test_a_small_gap_is_measured_whole_a_wide_one_is_halved() -> None:
    """Curves have cliffs; where every K is a launch, only gaps of one are taken at once."""
    ks = tuple(range(1, 17))
    assert list(around(ks, (1, 2, 4, 8, 16), {4})) == [3, 5, 6, 7]
    assert list(around(ks, (1, 2, 4, 8, 16), {16})) == [12]
    assert list(around(ks, (1, 2, 4, 8, 16), {2, 16})) == [3, 12]
    assert list(around(ks, (1, 2, 4, 8, 16), {4}, window=1)) == [3, 6]
    assert between(ks, (1, 2, 4, 8, 16), 4) == (2, 3, 4, 5, 6, 7, 8)
    assert between(ks, (1, 2, 4, 8, 16), 16) == (8, 9, 10, 11, 12, 13, 14, 15, 16)


@pytest.mark.parametrize(
    ("ks", "more"),
    [
        ((1, 2, 4, 8), (12, 16, 24, 32)),
        ((1, 2, 3, 5), (7, 10, 15, 20)),
        ((2, 4, 6), (12, 18, 24)),  # a checkpoint of two prediction layers takes even K alone
        ((1, 48), (72, 96)),  # the rejection sampler's ceiling is 128
        ((5,), ()),
    ],
)
def test_a_range_is_doubled_twice_at_most(ks: tuple[int, ...], more: tuple[int, ...]) -> None:
    """With the middles; no more than the engine takes, and no range out of one K."""
    assert universe(HEAD, ks) == (*ks, *more)


def test_a_range_that_ends_by_itself_is_not_extended() -> None:
    """A head for each token, or a block that was trained: more K than asked for are no use."""
    medusa = Candidate(name="m", method="medusa", model="a/medusa")
    block = replace(HEAD, settings={"parallel_drafting": True})
    assert doubled(HEAD, (1, 4)) == (8, 16)
    assert doubled(medusa, (1, 4)) == doubled(block, (1, 4)) == ()
