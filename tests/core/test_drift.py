"""A machine that changes its pace is told of, one that does not is not."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from autotune.core.drift import drifts, restless
from autotune.core.noise import PRIOR_DOF, PRIOR_SD, LaunchEffect
from autotune.core.plan import pending
from autotune.core.steps import StepStats
from autotune.core.trial import BASELINE, Record, Stage
from tests.builders import make_record, make_spec
from tests.builders_study import make_confirmation, make_study_records

EFFECT = LaunchEffect(sd=PRIOR_SD, dof=PRIOR_DOF, launches=0)


def plain(
    pace: Callable[[int], float],
    *,
    launch_id: str = "000",
    stage: Stage = Stage.BASELINE,
    repeat: int = 0,
) -> Record:
    """A launch without speculation whose passes take so long a step, by their order."""
    record = make_record(BASELINE, 0, stage, blocks=6, launch_id=launch_id, repeat=repeat)
    assert record.measurement
    passes = tuple(
        replace(
            p,
            steps=StepStats(
                tokens=500, steps=500, merged=0, step_s=pace(p.order), first_token_s=0.1
            ),
        )
        for p in record.measurement.passes
    )
    return replace(record, outcome=replace(record.measurement, passes=passes))


def noisy(slope: float, seed: int = 1) -> Callable[[int], float]:
    """Steps of 20 ms that get longer by `slope` over twelve passes, with half a percent noise."""
    dice = np.random.default_rng(seed)
    return lambda order: 0.02 * math.exp(slope * order / 11 + float(dice.normal(0, 0.005)))


def test_a_launch_that_slows_down_is_told_with_its_interval() -> None:
    """A tenth slower at the end than at the start."""
    (drift,) = drifts([plain(noisy(0.1), launch_id="007")], EFFECT)
    assert drift.where == "launch 007"
    assert drift.change.low < math.exp(-0.1) < drift.change.high
    assert drift.told().startswith("launch 007: plain steps were 0.9")


@pytest.mark.parametrize("seed", range(5))
def test_a_steady_launch_is_not_told(seed: int) -> None:
    """Noise alone is no drift."""
    assert drifts([plain(noisy(0.0, seed))], EFFECT) == []


def test_a_baseline_that_is_another_at_the_end_is_told() -> None:
    """A quarter slower in the confirmation is beyond what equal launches differ by; 3 % is not."""
    start = plain(lambda order: 0.020)

    def ends(step_s: float) -> list[Record]:
        return [
            plain(lambda order: step_s, stage=Stage.CONFIRM, launch_id=f"1{i}", repeat=i)
            for i in range(3)
        ]

    (drift,) = drifts([start, *ends(0.025)], EFFECT)
    assert drift.where == "the baseline over the study"
    assert drift.change.mean == pytest.approx(0.8)
    assert len(drifts([start, *ends(0.0216)], EFFECT)) == 1  # 8 % slower hours later
    assert drifts([start, *ends(0.0206)], EFFECT) == []


def test_a_request_rate_is_not_asked_for_the_pace() -> None:
    """There the batch follows the arrivals: longer steps are a fuller batch, not a slower host."""
    record = plain(noisy(0.2))
    assert record.measurement
    passes = tuple(replace(p, request_rate=2.0) for p in record.measurement.passes)
    outcome = replace(record.measurement, passes=passes)
    assert drifts([replace(record, outcome=outcome)], EFFECT) == []


def test_speculation_is_not_asked_for_the_pace() -> None:
    """The step of a launch that speculates depends on its drafts, not on the machine alone."""
    record = plain(noisy(0.2))
    speculating = replace(record, trial=replace(record.trial, candidate="eagle"))
    speculating = replace(speculating, trial=replace(speculating.trial, num_speculative_tokens=2))
    assert drifts([speculating], EFFECT) == []


def constant(step_s: float, order: int) -> float:
    """The same at any time."""
    return step_s


def confirmation(*steps: float) -> list[Record]:
    """The baselines of a confirmation, by their step times."""
    return [
        plain(partial(constant, s), stage=Stage.CONFIRM, launch_id=f"2{i}", repeat=i)
        for i, s in enumerate(steps)
    ]


def test_baselines_far_apart_are_restless() -> None:
    """A third apart is no noise of launches; 2 % is what the prior expects."""
    assert restless(confirmation(0.020, 0.027, 0.020))
    assert restless(confirmation(1 / 29.9, 1 / 33.8))  # two equal baselines, 13 % apart
    assert not restless(confirmation(0.020, 0.0204, 0.0198))
    assert not restless(confirmation(0.020))


def test_a_restless_confirmation_is_measured_again_but_not_for_ever() -> None:
    """One round more than asked for, then a second one, and no third."""
    spec = make_spec()
    study = make_study_records(confirmed=False)
    head = [r for r in make_confirmation("eagle", 2) if r.trial.candidate != BASELINE]
    more = [replace(head[0], trial=replace(head[0].trial, repeat=i)) for i in range(4)]
    ahead = []
    for rounds in (2, 3, 4):
        steps = [0.020 if i % 2 else 0.030 for i in range(rounds)]
        records = [*study, *more[:rounds], *confirmation(*steps)]
        ahead.append(sorted({x.repeat for x in pending(spec, records)}))
    assert ahead == [[2], [3], []]
