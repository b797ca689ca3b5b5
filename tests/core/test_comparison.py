"""Two estimates of one ratio: what each is the mean of, and where its uncertainty comes from."""

import math
from dataclasses import replace

import numpy as np
import pytest
from loop_model import Costs, as_pass, draw_texts, run_loop

from autotune.core.arms import arms
from autotune.core.comparison import PLAIN, compare, comparer
from autotune.core.noise import LaunchEffect, Noise, PassEffect
from autotune.core.statistics import Estimate
from autotune.core.trial import BASELINE, Measurement, Pass, Record
from autotune.core.workload import Level
from tests.builders import make_record

EAGLE = ("eagle", 2)
QUIET = PassEffect(sd=1e-6, dof=1e6)
NOISE = Noise(
    launch=LaunchEffect(sd=0.0, dof=1e6, launches=0),
    passes={1: QUIET, 4: QUIET},
    beside={1: QUIET, 4: QUIET},
)


def passes_of(k: int, seed: int, blocks: int = 4, *, concurrency: int = 1) -> list[Pass]:
    """Passes of a model of continuous batching; the seed is their text."""
    dice = np.random.default_rng(seed)
    found = []
    for block in range(blocks):
        texts = draw_texts(dice, 4 * concurrency, k, acceptance=0.5, spread=0.3, tokens=33)
        replies = run_loop(texts, concurrency, k, Costs(), dice)
        found.append(as_pass(replies, k, concurrency, block))
    return found


def record_of(name: str, k: int, passes: list[Pass], launch_id: str = "1") -> Record:
    """A record of these passes."""
    record = make_record(name, k, launch_id=launch_id)
    return replace(record, outcome=Measurement(passes=tuple(passes)))


def by_steps(*records: Record, noise: Noise = NOISE) -> Estimate:
    """The estimate by steps of eagle over the baseline."""
    found = arms(records)
    pair = compare(found[EAGLE], found[PLAIN], 1, noise)
    assert pair
    assert pair.steps
    return pair.steps


PLAIN_RECORD = record_of(BASELINE, 0, passes_of(0, seed=1), launch_id="0")


def test_the_mean_is_that_of_reply_times() -> None:
    """The log ratio of a block is that of the times of a reply of equally many tokens."""
    fast = passes_of(2, seed=2)
    truth = [
        math.log(slow.steps.seconds_of(33) / quick.steps.seconds_of(33))
        for slow, quick in zip(passes_of(0, seed=1), fast, strict=True)
        if slow.steps and quick.steps
    ]
    found = by_steps(PLAIN_RECORD, record_of("eagle", 2, fast))
    assert found.mean == pytest.approx(sum(truth) / 4)
    assert found.n == 4


def test_every_reply_tells_of_the_text() -> None:
    """Four blocks of four replies give twelve degrees of freedom, not three."""
    assert by_steps(PLAIN_RECORD, record_of("eagle", 2, passes_of(2, seed=2))).dof == pytest.approx(
        12, rel=0.01
    )


def test_text_that_both_arms_share_is_no_noise() -> None:
    """A slower machine with the same replies: the ratio is known but for the timing."""
    passes = passes_of(2, seed=2)
    slower = [
        replace(
            p,
            steps=replace(
                p.steps,
                step_s=p.steps.step_s * 1.25,
                first_token_s=p.steps.first_token_s * 1.25,
                reply_s=tuple(s * 1.25 for s in p.steps.reply_s),
            ),
        )
        for p in passes
        if p.steps
    ]
    found = by_steps(record_of(BASELINE, 0, slower, launch_id="0"), record_of("eagle", 2, passes))
    assert found.mean == pytest.approx(math.log(1.25))
    assert found.margin < 1e-5


def test_more_launches_of_one_text_do_not_narrow_it() -> None:
    """Equal replies again say nothing new of the text; they only average the timing."""
    passes = passes_of(2, seed=2)
    once = by_steps(PLAIN_RECORD, record_of("eagle", 2, passes))
    twice = by_steps(
        PLAIN_RECORD, record_of("eagle", 2, passes), record_of("eagle", 2, passes, launch_id="2")
    )
    assert twice.variance == pytest.approx(once.variance, rel=1e-3)


def test_the_pass_effect_is_part_of_it() -> None:
    """Four passes on either side carry half of the variance of one pass each, in all."""
    loud = replace(NOISE, passes={1: PassEffect(sd=0.1, dof=1e6)})
    record = record_of("eagle", 2, passes_of(2, seed=2))
    quiet = by_steps(PLAIN_RECORD, record).variance
    assert by_steps(PLAIN_RECORD, record, noise=loud).variance == pytest.approx(
        quiet + 0.1**2 * (1 / 4 + 1 / 4)
    )


def test_passes_side_by_side_share_their_weather() -> None:
    """Two K of one launch carry what differs within a block, not what differs between launches."""
    loud = replace(NOISE, passes={1: PassEffect(sd=0.1, dof=1e6)}, beside={1: QUIET})
    one, other = record_of("eagle", 1, passes_of(1, 2)), record_of("eagle", 2, passes_of(2, 3))
    together = arms([one, other])
    apart = arms([one, replace(other, launch_id="2")])
    within, between = (
        compare(found["eagle", 1], found["eagle", 2], 1, loud) for found in (together, apart)
    )
    assert within
    assert within.steps
    assert between
    assert between.steps
    assert between.steps.variance == pytest.approx(within.steps.variance + 0.1**2 / 2)


def test_arms_of_one_launch_are_compared_in_there_alone() -> None:
    """A further launch of one of two K would bring its own launch effect into their ratio."""
    one, other = record_of("eagle", 1, passes_of(1, 2)), record_of("eagle", 2, passes_of(2, 3))
    elsewhere = record_of("eagle", 2, passes_of(2, 9), launch_id="2")
    alone, both = (arms(records) for records in ([one, other], [one, other, elsewhere]))
    expected = compare(alone["eagle", 1], alone["eagle", 2], 1, NOISE)
    assert compare(both["eagle", 1], both["eagle", 2], 1, NOISE) == expected


def test_without_step_times_the_throughput_decides() -> None:
    """One point without step times takes its whole level to the other estimate."""
    levels = [Level(concurrency=1)]
    whole = record_of("eagle", 2, passes_of(2, seed=2))
    bare = record_of("ngram", 2, [replace(p, steps=None) for p in passes_of(2, seed=3)])
    assert comparer(arms([PLAIN_RECORD, whole]), levels, NOISE).by_steps == {1: True}
    found = comparer(arms([PLAIN_RECORD, whole, bare]), levels, NOISE)
    assert found.by_steps == {1: False}
    pair = found.compare(EAGLE, PLAIN, 1)
    assert pair
    assert found.estimate(EAGLE, PLAIN, 1) == pair.throughput


def test_a_level_that_is_missing_leaves_no_mean() -> None:
    """The mean over the levels is of all of them or of none."""
    found = comparer(
        arms([PLAIN_RECORD, record_of("eagle", 2, passes_of(2, seed=2))]),
        [Level(concurrency=1), Level(concurrency=4)],
        NOISE,
    )
    assert found.over_levels(EAGLE, PLAIN, [Level(concurrency=1)]) is not None
    levels = [Level(concurrency=1), Level(concurrency=4)]
    assert found.over_levels(EAGLE, PLAIN, levels) is None
