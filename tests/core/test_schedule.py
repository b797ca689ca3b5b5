"""The value: ranges from levels, the K of a batch size, the candidate that has it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.core.schedule import (
    FIELD,
    k_at,
    k_max,
    ranges_for,
    ranges_of,
    schedule_words,
    scheduled,
)
from autotune.core.space import meant_by
from autotune.core.study import Candidate
from autotune.core.trial import Stage
from tests.builders import make_spec, make_trial

SPEC = make_spec()
EAGLE = SPEC.candidate("eagle")


@pytest.mark.parametrize(
    ("ks", "ranges"),
    [
        ({1: 3, 8: 0}, ((1, 1, 3), (2, 8, 0))),
        ({1: 5, 4: 5, 16: 2, 64: 0}, ((1, 4, 5), (5, 16, 2), (17, 64, 0))),
        ({4: 2, 8: 2}, ((1, 8, 2),)),
        ({8: 0, 1: 3}, ((1, 1, 3), (2, 8, 0))),
    ],
)
def test_a_level_holds_down_to_the_one_below(
    ks: dict[int, int], ranges: tuple[tuple[int, int, int], ...]
) -> None:
    """Ranges start at 1, and equal neighbours are one."""
    assert ranges_for(ks) == ranges


@given(st.dictionaries(st.integers(1, 64), st.integers(0, 8), min_size=1, max_size=5))
def test_each_level_has_its_own_k(ks: dict[int, int]) -> None:
    """The ranges follow each other without a gap, and give every level the K it was made from."""
    ranges = ranges_for(ks)
    assert [start for start, _, _ in ranges] == [1, *(end + 1 for _, end, _ in ranges[:-1])]
    assert {c: k_at(ranges, c) for c in ks} == ks
    assert k_at(ranges, 1000) == ks[max(ks)], "beyond the last range its K goes on"
    assert k_max(ranges) == max(ks.values())


def test_words() -> None:
    """As they stand in the report."""
    assert schedule_words(((1, 1, 3), (2, 8, 0))) == "K = 3 up to a batch of 1, 0 beyond"


def test_the_candidate_is_another_one() -> None:
    """It has a name of its own, the setting as vLLM takes it, and the family of the file's."""
    found = scheduled(EAGLE, ((1, 1, 3), (2, 8, 0)))
    assert (found.name, found.family) == ("eagle(K=3, 0 from 2)", "eagle")
    config = found.speculative_config(3)
    assert config is not None
    assert config[FIELD] == [[1, 1, 3], [2, 8, 0]]
    assert config["num_speculative_tokens"] == 3
    assert ranges_of(found.settings) == ((1, 1, 3), (2, 8, 0))
    assert ranges_of(EAGLE.settings) == ()


def test_a_damaged_schedule_is_refused() -> None:
    """A stored one that is no list of three numbers."""
    with pytest.raises(ValueError, match="first, last, K"):
        ranges_of({FIELD: [[1, 3]]})


def test_a_stored_trial_is_known_again_by_its_settings() -> None:
    """Also when the candidate has been renamed; a candidate that is gone takes it along."""
    found = scheduled(EAGLE, ((1, 1, 3), (2, 8, 0)))
    trial = replace(
        make_trial(found.name, 3, Stage.SCHEDULE),
        method="eagle",
        model=EAGLE.model,
        settings=found.settings,
        variant_of="eagle",
    )
    assert meant_by(SPEC, trial) == found
    renamed = replace(EAGLE, name="head")
    meant = meant_by(replace(SPEC, candidates=(renamed,)), trial)
    assert meant is not None
    assert meant.name == "head(K=3, 0 from 2)"
    other = Candidate(name="eagle", method="ngram")
    assert meant_by(replace(SPEC, candidates=(other,)), trial) is None
