"""Which K a candidate is looked at, from what is known of its curve."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from autotune.core.stages.survey import Survey, compared
from autotune.core.trial import Stage
from tests.builders import BASE, make_record, make_spec

EVERY = tuple(range(1, 9))


def survey(gains: Mapping[int, float]) -> Survey:
    """A candidate of K = 1 to 8 with these speedups, the same at every level."""
    candidate = replace(make_spec().candidates[0], num_speculative_tokens=EVERY)
    spec = make_spec(candidates=[candidate])
    records = [make_record(stage=Stage.BASELINE)] + [
        make_record(
            candidate.name,
            k,
            tput={c: v * gain for c, v in BASE.items()},
            launch_id="001",
            live=True,
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
