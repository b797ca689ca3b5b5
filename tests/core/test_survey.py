"""Which K a candidate is looked at, from what is known of its curve."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from autotune.core.stages.survey import Survey, compared
from autotune.core.trial import Stage
from tests.builders import BASE, make_record, make_spec

EVERY = tuple(range(1, 9))


PEAK = {1: 1.1, 2: 1.3, 3: 1.2, 4: 1.2, 8: 1.0}


def survey(gains: Mapping[int, float], blocks: Mapping[int, int] | None = None) -> Survey:
    """A candidate of K = 1 to 8 with these speedups, the same at every level; three blocks each
    unless it says else."""
    candidate = replace(make_spec().candidates[0], num_speculative_tokens=EVERY)
    spec = make_spec(candidates=[candidate])
    records = [make_record(stage=Stage.BASELINE)] + [
        make_record(
            candidate.name,
            k,
            tput={c: v * gain for c, v in BASE.items()},
            launch_id="001",
            live=True,
            blocks=(blocks or {}).get(k, 3),
        )
        for k, gain in {0: 1.0, **gains}.items()
    ]
    found = compared(spec, records)
    return Survey(spec=spec, candidate=candidate, records=records, found=found, live=True)


@pytest.mark.parametrize(
    ("gains", "asked"),
    [
        pytest.param({1: 1.1, 2: 1.3, 4: 1.2, 8: 1.0}, (1, 2, 3, 4, 8), id="a peak"),
        pytest.param({1: 1.1, 2: 1.3, 4: 1.29, 8: 1.0}, EVERY, id="two as good"),
        pytest.param({1: 1.31, 2: 1.3, 4: 1.3, 8: 1.3}, EVERY, id="flat"),
    ],
)
def test_the_gaps_beside_every_k_as_good_as_the_best_are_measured(
    gains: dict[int, float], asked: tuple[int, ...]
) -> None:
    """On a ragged curve the best K may lie beside any of the coarse ones that are level."""
    assert survey(gains).asked == asked


@pytest.mark.parametrize(("blocks", "lacking"), [(1, (6,)), (3, ())])
def test_what_is_begun_gets_enough_blocks(blocks: int, lacking: tuple[int, ...]) -> None:
    """K = 6 looked worth a block for a while: one is not left to stand for it."""
    found = survey({**PEAK, 6: 1.6}, {6: blocks})
    assert 6 not in found.asked
    assert found.lacking() == {1: (), 4: ()}
    assert replace(found, begun=frozenset({(1, 6)})).lacking() == {1: lacking, 4: ()}
