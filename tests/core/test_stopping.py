"""What is stopped, what is not, and what is said of it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from autotune.core.acceptance import SpecCounters
from autotune.core.latency import RequestTimes
from autotune.core.noise import LaunchEffect, Noise, PassEffect, noise_of
from autotune.core.statistics import Estimate
from autotune.core.stopping import (
    ERROR,
    Contest,
    State,
    Stopped,
    champion,
    is_below,
    outdone,
    settle,
    useless,
)
from autotune.core.study import Constraint, Objective
from autotune.core.trial import Launch, Pass, Record, Stage
from autotune.core.workload import Level
from tests.builders import GMU, make_pass, make_record, make_spec, make_workload

LEVEL = Level(concurrency=1)
SPEC = make_spec(workload=make_workload(concurrencies={1: 1.0}))
KS = (0, 1, 2, 3)
BASE = 30.0
QUIET = Noise(
    launch=LaunchEffect(sd=0.01, dof=20, launches=0), passes={1: PassEffect(sd=0.01, dof=20)}
)
LAUNCH = Launch(
    stage=Stage.SCREEN,
    candidate=SPEC.candidate("eagle"),
    num_speculative_tokens=KS,
    gpu_memory_utilization=GMU,
    live=True,
    max_blocks=8,
    why="a test",
)


def passes_of(speedups: Mapping[int, float], blocks: int = 6) -> list[Pass]:
    """Passes of a launch with these speedups over the baseline, K = 0 among them."""
    return [
        make_pass(k=k, concurrency=1, block=b, tput=BASE * s, seed="eagle")
        for b in range(blocks)
        for k, s in speedups.items()
    ]


def state_of(
    speedups: Mapping[int, float], known: Sequence[Record] | None = None, *, blocks: int = 6
) -> State:
    """A launch so far, with a baseline before it unless told otherwise."""
    baseline = make_record(stage=Stage.BASELINE, tput={1: BASE}, blocks=8)
    return State(
        spec=SPEC,
        launch=LAUNCH,
        passes=passes_of(speedups, blocks),
        known=[baseline] if known is None else known,
        noise=QUIET,
        fingerprint=baseline.fingerprint,
    )


def ks_of(stopped: Sequence[Stopped], *, beaten: bool) -> list[int]:
    """The K that were stopped so."""
    return [s.num_speculative_tokens for s in stopped if s.beaten == beaten]


def cannot_win(state: State, looks: int) -> str | None:
    """Why no K of the launch may be the answer, when it is looked at so often."""
    found, levels = state.comparer, state.spec.workload.levels
    others = [point for point in found.found if point[0] != "eagle"]
    contest = Contest(
        name="eagle",
        ks=KS[1:],
        levels=levels,
        rival=champion(state.spec, found, others, levels),
    )
    return outdone(state.spec, found, contest, error=ERROR / looks, least=state.least(LEVEL))


def test_a_k_that_is_clearly_worse_is_beaten() -> None:
    """Half the speed after six blocks is enough; the reason names the better K and the ratio."""
    stopped = settle(state_of({0: 0.9, 1: 1.2, 2: 1.25, 3: 0.7}), LEVEL, KS, 6)
    assert 3 in ks_of(stopped, beaten=True)
    why = next(s.why for s in stopped if s.num_speculative_tokens == 3)
    assert why.startswith("beaten by K = 2: 0.56x [")


def test_who_is_within_the_tolerance_is_not_beaten() -> None:
    """The knee is the smallest K within the tolerance of the best: such a K must stay."""
    stopped = settle(state_of({0: 0.9, 1: 1.235, 2: 1.25, 3: 1.249}), LEVEL, KS, 6)
    assert ks_of(stopped, beaten=True) == []


def test_a_level_is_known_when_its_intervals_are_within_the_tolerance() -> None:
    """Tight ratios to each other and to the baseline end the level; without a baseline nothing."""
    speedups = {0: 0.9, 1: 1.24, 2: 1.25, 3: 1.25}
    assert ks_of(settle(state_of(speedups), LEVEL, KS, 6), beaten=False) == [1, 2, 3]
    assert settle(state_of(speedups, known=[]), LEVEL, KS, 6) == []


def test_plain_steps_of_a_live_launch_are_no_rival() -> None:
    """K = 0 of a live launch is the drift reference, however fast it seems."""
    assert settle(state_of({0: 3.0}), LEVEL, (0,), 6) == []
    stopped = settle(state_of({0: 3.0, 1: 1.2}), LEVEL, (0, 1), 6)
    assert ks_of(stopped, beaten=True) == []


@pytest.mark.parametrize(("speed", "why"), [(0.8, "of plain decoding"), (1.2, None)])
def test_a_candidate_that_is_slower_than_plain_decoding_cannot_win(
    speed: float, why: str | None
) -> None:
    """All K surely below 1: no answer can come of it."""
    found = cannot_win(state_of({0: 0.9, 1: speed, 2: speed * 0.9, 3: speed * 0.8}), 6)
    assert (found is not None and why is not None and found.endswith(why)) or found is why


def test_a_candidate_must_beat_the_best_one_so_far() -> None:
    """A gain is not enough where another candidate has a far larger one."""
    baseline = make_record(stage=Stage.BASELINE, tput={1: BASE}, blocks=8)
    rival = make_record("ngram", 3, tput={1: BASE * 1.6}, blocks=8)
    state = state_of({0: 0.9, 1: 1.1, 2: 1.1, 3: 1.05}, [baseline, rival])
    found = cannot_win(state, 6)
    assert found
    assert found.endswith("of ngram at K = 3")
    assert cannot_win(replace(state, known=[baseline]), 6) is None


def test_the_gain_that_is_asked_for_is_the_bar() -> None:
    """With a minimum gain of half as much again, a gain of a tenth cannot win."""
    state = state_of({0: 0.9, 1: 1.1, 2: 1.1, 3: 1.05})
    assert cannot_win(state, 6) is None
    asking = replace(SPEC, objective=Objective(min_gain=0.5))
    assert cannot_win(replace(state, spec=asking), 6)


def test_one_k_that_may_still_win_keeps_the_candidate() -> None:
    """Three hopeless K do not end it while the fourth is good."""
    assert cannot_win(state_of({0: 0.9, 1: 0.7, 2: 0.6, 3: 1.1}), 6) is None


def test_the_error_is_one_sided_and_spent() -> None:
    """Below the bar by three standard errors is enough at one look, not at a thousandth of it."""
    estimate = Estimate(mean=-0.03, variance=0.01**2, dof=30, n=6)
    assert is_below(estimate, 0.0, 0.05)
    assert not is_below(estimate, 0.0, 0.0005)
    assert not is_below(estimate, -0.05, 0.05)
    assert not is_below(replace(estimate, dof=0), 0.0, 0.05)


@pytest.mark.parametrize(
    ("drafts", "accepted", "expected"), [(200, 0, True), (199, 0, False), (5000, 1, False)]
)
def test_a_draft_is_useless_after_two_hundred_drafts_in_vain(
    drafts: int, accepted: int, *, expected: bool
) -> None:
    """One accepted token is a draft that works, badly; fewer drafts say nothing yet."""
    counters = SpecCounters(drafts=drafts, draft_tokens=3 * drafts, accepted_tokens=accepted)
    assert useless(counters) is expected


def test_other_launches_of_the_same_candidate_are_not_mixed_in() -> None:
    """What a launch decides on is its own blocks, not those of an interrupted one before it."""
    slow = make_record("eagle", 1, tput={1: BASE / 3}, blocks=8)
    state = state_of({0: 0.9, 1: 1.24, 2: 1.25, 3: 1.25})
    again = replace(state, known=[*state.known, slow], noise=noise_of([], [LEVEL]))
    assert ks_of(settle(again, LEVEL, KS, 6), beaten=True) == []


def test_a_k_without_its_least_blocks_is_not_stopped() -> None:
    """Two valid blocks in common are not three, however far apart."""
    state = state_of({0: 0.9, 1: 1.2, 2: 1.25, 3: 0.7}, blocks=3)
    assert 3 in ks_of(
        settle(state_of({0: 0.9, 1: 1.2, 2: 1.25, 3: 0.5}, blocks=6), LEVEL, KS, 6), beaten=True
    )
    spoilt = [
        replace(p, invalid="1 of 4 requests failed")
        if (p.num_speculative_tokens, p.block) == (3, 0)
        else p
        for p in state.passes
    ]
    assert settle(replace(state, passes=spoilt), LEVEL, KS, 6) == []


def test_a_k_that_breaks_a_constraint_beats_nobody() -> None:
    """The fastest K, whose p99 is too long, neither stops the others nor is the champion."""
    spec = replace(
        SPEC, objective=Objective(constraints=(Constraint(metric="p99_tpot_ms", upper=30.0),))
    )
    state = replace(state_of({0: 0.9, 1: 1.2, 2: 1.2, 3: 2.0}), spec=spec)
    slow = [
        replace(p, times=RequestTimes(ttft_ms=(50.0,), tpot_ms=(99.0,), e2e_ms=(9e3,)))
        if p.num_speculative_tokens == 3
        else replace(p, times=RequestTimes(ttft_ms=(50.0,), tpot_ms=(20.0,), e2e_ms=(1e3,)))
        for p in state.passes
    ]
    assert ks_of(settle(replace(state, passes=slow), LEVEL, KS, 6), beaten=True) == []
    assert 1 in ks_of(settle(replace(state, spec=SPEC, passes=slow), LEVEL, KS, 6), beaten=True)
