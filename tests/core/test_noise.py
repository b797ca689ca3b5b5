"""The noise of equal measurements: priors, what launches and passes show, how they shrink."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.core.noise import (
    BESIDE_PRIOR_SD,
    PASS_PRIOR_DOF,
    PASS_PRIOR_SD,
    PRIOR_DOF,
    PRIOR_SD,
    LaunchEffect,
    equal_launches,
    launch_effect,
    noise_of,
    pass_effect,
)
from autotune.core.statistics import Estimate
from autotune.core.steps import StepStats
from autotune.core.trial import Measurement, Record
from tests.builders import make_record, make_workload
from tests.builders_study import make_screen


def test_prior_stands_in_until_launches_are_known() -> None:
    """Without equal launches the prior counts; groups of one tell nothing."""
    for groups in ([], [[1.0]], [[1.0], [2.0]]):
        effect = launch_effect(groups)
        assert (effect.sd, effect.dof, effect.launches) == (PRIOR_SD, PRIOR_DOF, 0)


@given(st.integers(0, 10**6))
def test_many_launches_outvote_the_prior(seed: int) -> None:
    """The estimate goes from the prior to the deviation that launches really show."""
    dice = np.random.default_rng(seed)
    groups = [list(dice.normal(0, 0.1, 3)) for _ in range(200)]
    effect = launch_effect(groups)
    assert effect.sd == pytest.approx(0.1, rel=0.2)
    assert effect.dof == PRIOR_DOF + 400
    assert effect.launches == 600


def test_launch_effect_shrinks_with_launches() -> None:
    """Two launches on each side halve the variance that one on each side has."""
    effect = LaunchEffect(sd=0.1, dof=4, launches=0)
    found = Estimate(mean=0.0, variance=0.0, dof=3, n=4)
    assert effect.on(found, 1, 1).variance == pytest.approx(0.02)
    assert effect.on(found, 2, 2).variance == pytest.approx(0.01)


def test_what_launch_and_block_share_is_no_pass_effect() -> None:
    """Slow launches and long blocks leave nothing over: the passes are equal."""
    observed = [
        (launch, block, slow + long)
        for launch, slow in (("a", 0.0), ("b", -0.1), ("c", 0.05))
        for block, long in (("0", 0.3), ("1", 0.0), ("2", -0.2))
    ]
    effect = pass_effect(observed)
    assert effect.dof == PASS_PRIOR_DOF + 4  # (3 - 1) * (3 - 1)
    assert effect.sd == pytest.approx(PASS_PRIOR_SD * math.sqrt(PASS_PRIOR_DOF / effect.dof))


def test_passes_that_differ_outvote_the_prior() -> None:
    """With many passes the effect is what they show, launches of unequal length included."""
    dice = np.random.default_rng(3)
    observed = [
        (f"launch {i}", str(b), float(0.1 * i + 0.2 * b + dice.normal(0, 0.04)))
        for i in range(12)
        for b in range(4 + i % 5)
    ]
    assert pass_effect(observed).sd == pytest.approx(0.04, rel=0.15)


def test_without_passes_the_prior_counts() -> None:
    """Nothing observed, or one pass, leaves the prior as it is."""
    for observed in ([], [("a", "0", 1.0)]):
        effect = pass_effect(observed)
        assert effect.sd == pytest.approx(PASS_PRIOR_SD)
        assert effect.dof == PASS_PRIOR_DOF


def live_records(
    dice: np.random.Generator, *, weather: float, own: float, acceptance: float = 0.0
) -> list[Record]:
    """One live launch; its blocks, its passes, and the tokens of its steps vary by so much."""
    blocks = 40
    slow = dice.normal(0, weather, blocks)
    records = []
    for k in (0, 1, 2, 3):
        record = make_record("eagle", k, live=True, blocks=blocks)
        assert record.measurement
        passes = []
        for p in record.measurement.passes:
            factor = math.exp(slow[p.block] + dice.normal(0, own))
            tokens = round(1000 * math.exp(dice.normal(0, acceptance if k else 0.0)))
            steps = StepStats(
                tokens=tokens, steps=500, merged=0, step_s=0.04 * factor, first_token_s=0.0
            )
            passes.append(replace(p, steps=steps))
        records.append(replace(record, outcome=Measurement(passes=tuple(passes))))
    return records


@pytest.mark.parametrize("acceptance", [0.0, 0.2])
def test_slow_minutes_are_no_noise_between_the_k_of_a_launch(acceptance: float) -> None:
    """What all K of a block have in common is left out, and so is the text of their replies."""
    records = live_records(np.random.default_rng(4), weather=0.1, own=0.02, acceptance=acceptance)
    noise = noise_of(records, make_workload().levels)
    for c in (1, 4):
        assert noise.side_by_side(c).sd == pytest.approx(0.02, rel=0.2)
        assert noise.side_by_side(c).dof == PASS_PRIOR_DOF + 3 * 39


def test_a_restless_machine_is_restless_side_by_side_until_its_passes_tell() -> None:
    """The prior between passes of a block grows with the pass effect that was seen."""
    calm = noise_of([], make_workload().levels)
    assert calm.side_by_side(1).sd == pytest.approx(BESIDE_PRIOR_SD)
    dice = np.random.default_rng(5)
    seen = [
        replace(live_records(dice, weather=0.0, own=0.1)[0], launch_id=str(i)) for i in range(4)
    ]
    plain = [replace(r, trial=replace(r.trial, live=False)) for r in seen]
    restless = noise_of(plain, make_workload().levels)
    assert restless.side_by_side(1).sd == pytest.approx(
        BESIDE_PRIOR_SD * restless.of_passes(1, speculating=False).sd / PASS_PRIOR_SD
    )
    assert restless.of_passes(1, speculating=False).sd == pytest.approx(0.1, rel=0.15)


def test_the_k_of_one_live_launch_are_one_observation() -> None:
    """Two live launches of four K differ once, not four times."""
    levels = make_workload().levels
    launches = [
        replace(r, launch_id=launch_id, trial=replace(r.trial, repeat=repeat))
        for repeat, launch_id in enumerate(("a", "b"))
        for r in make_screen("eagle", "x", scale=1.0 + 0.1 * repeat)
    ]
    assert [len(group) for group in equal_launches(launches, levels)] == [2]
