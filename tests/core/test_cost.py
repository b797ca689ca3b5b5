"""The cost model against data whose truth is known."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.core.cost import Cost, Step, StepCost, fit_line
from autotune.core.expectation import expected_tokens, walltime_improvement
from autotune.core.methods import Drafting

MS = st.floats(0.1, 50.0)
SMALL_MS = st.floats(0.0, 5.0)
ALPHAS = st.floats(0.05, 0.95)


def step(k: int, ms: float, *, tokens: float = 1.0, error: float = 0.01) -> Step:
    """A step of K drafted tokens; its error is a share."""
    return Step(
        num_speculative_tokens=k,
        seconds=ms / 1e3,
        error_s=error * ms / 1e3,
        tokens=tokens,
        drafted=float(k),
    )


def cost(
    plain_ms: float,
    steps: Sequence[Step],
    *,
    check_ms: float | None = None,
    drafting: Drafting = Drafting.SEQUENTIAL,
) -> StepCost:
    """The costs of a candidate at one stream."""
    check = None if check_ms is None else Cost(seconds=check_ms / 1e3, error_s=1e-6)
    return StepCost(
        candidate="draft",
        drafting=drafting,
        concurrency=1,
        plain=step(0, plain_ms),
        steps=tuple(steps),
        line=fit_line(steps),
        check=check,
    )


def steps_of(
    base_ms: float, slope_ms: float, alpha: float, ks: Sequence[int] = (1, 2, 3, 5)
) -> list[Step]:
    """Steps on a line, with the tokens of one constant acceptance."""
    return [step(k, base_ms + slope_ms * k, tokens=expected_tokens(alpha, k)) for k in ks]


@given(MS, SMALL_MS)
def test_a_line_is_found_back(base_ms: float, slope_ms: float) -> None:
    """Whatever step and slope, from steps that lie on it."""
    line = fit_line(steps_of(base_ms, slope_ms, 0.5))
    assert line is not None
    assert line.base.seconds == pytest.approx(base_ms / 1e3, rel=1e-6)
    assert line.slope.seconds == pytest.approx(slope_ms / 1e3, abs=1e-9)


def test_a_line_needs_points_that_differ() -> None:
    """One K, or a lookup that never finds more, tells no slope."""
    assert fit_line([step(3, 20.0)]) is None
    same = [replace(step(k, 20.0), drafted=0.4) for k in (3, 5)]
    assert fit_line(same) is None


@given(MS, ALPHAS, st.floats(0.01, 0.5))
def test_without_overhead_and_checking_it_is_the_formula_of_leviathan(
    plain_ms: float, alpha: float, share: float
) -> None:
    """Theorem 3.8, for every K at once."""
    found = cost(plain_ms, steps_of(plain_ms, share * plain_ms, alpha), check_ms=0.0)
    for k in found.ks:
        assert found.speedup(k) == pytest.approx(walltime_improvement(alpha, k, share))
    assert found.draft is not None
    assert found.draft.seconds == pytest.approx(share * plain_ms / 1e3)


@given(MS, SMALL_MS, SMALL_MS, SMALL_MS)
def test_the_parts_of_a_step_are_those_it_was_made_of(
    plain_ms: float, overhead_ms: float, check_ms: float, draft_ms: float
) -> None:
    """And they add up to it."""
    found = cost(
        plain_ms,
        steps_of(plain_ms + overhead_ms, check_ms + draft_ms, 0.6),
        check_ms=check_ms,
    )
    split = found.split(3)
    assert split.target_s == pytest.approx(plain_ms / 1e3)
    assert split.checking_s == pytest.approx(3 * check_ms / 1e3, abs=1e-8)
    assert split.drafting_s == pytest.approx(3 * draft_ms / 1e3, abs=1e-8)
    assert split.overhead_s == pytest.approx(overhead_ms / 1e3, abs=1e-8)
    assert found.overhead is not None
    assert found.overhead.seconds == pytest.approx(overhead_ms / 1e3, abs=1e-8)
    parts = (split.target_s, split.checking_s, split.drafting_s, split.overhead_s)
    assert sum(part or 0.0 for part in parts) == pytest.approx(found.at(3).seconds)


def test_where_nothing_tells_checking_it_stays_with_drafting() -> None:
    """Together they are known, apart they are not guessed."""
    found = cost(10.0, steps_of(11.0, 2.0, 0.6))
    split = found.split(3)
    assert found.draft is None
    assert (split.checking_s, split.drafting_s) == (None, None)
    assert split.together_s == pytest.approx(6e-3)
    assert split.overhead_s == pytest.approx(1e-3)


def test_one_k_alone_tells_only_what_speculating_adds() -> None:
    """No slope, so that nothing is called overhead that may be the draft."""
    found = cost(10.0, [step(3, 14.0, tokens=2.0)])
    split = found.split(3)
    assert split.speculating_s == pytest.approx(4e-3)
    parts = (split.checking_s, split.drafting_s, split.together_s, split.overhead_s)
    assert parts == (None, None, None, None)


@pytest.mark.parametrize("drafting", [Drafting.PARALLEL, Drafting.LOOKUP])
def test_what_is_not_drafted_token_by_token_has_checking_alone_in_its_slope(
    drafting: Drafting,
) -> None:
    """A parallel drafter's one forward, or the search of a lookup, is overhead."""
    split = cost(10.0, steps_of(14.0, 0.5, 0.6), drafting=drafting).split(3)
    assert split.checking_s == pytest.approx(1.5e-3)
    assert split.drafting_s == 0.0
    assert split.overhead_s == pytest.approx(4e-3)


@given(MS, SMALL_MS, SMALL_MS, SMALL_MS, ALPHAS)
def test_no_measured_speedup_is_above_the_ceiling(
    plain_ms: float, overhead_ms: float, check_ms: float, draft_ms: float, alpha: float
) -> None:
    """Neither with the cost of checking known nor without."""
    steps = steps_of(plain_ms + overhead_ms, check_ms + draft_ms, alpha)
    for known in (check_ms, None):
        found = cost(plain_ms, steps, check_ms=known)
        best = max(found.speedup(k) for k in found.ks)
        assert found.ceiling[1] >= best - 1e-9


def test_the_ceiling_is_what_a_free_draft_would_give() -> None:
    """2.533 tokens a step at K = 3 and alpha 0.7, checked for 0.5 ms each beside steps of 10 ms."""
    found = cost(10.0, steps_of(13.0, 2.5, 0.7, ks=(1, 2, 3)), check_ms=0.5)
    k, ceiling = found.ceiling
    assert k == 3
    assert ceiling == pytest.approx(2.533 * 10.0 / 11.5)
    free = cost(10.0, steps_of(13.0, 2.5, 0.7, ks=(1, 2, 3)))
    assert free.ceiling[1] == pytest.approx(2.533)


def test_a_supposition_never_makes_a_step_faster_than_a_plain_one() -> None:
    """Whatever is saved: the target still runs."""
    found = cost(10.0, steps_of(11.0, 2.0, 0.7))
    assert found.supposing(2, saved_s=1.0) == pytest.approx(found.at(2).tokens)
    assert found.supposing(2, tokens=3.0) == pytest.approx(3.0 * 10.0 / 15.0)


def test_another_k_is_predicted_from_positions_and_the_line() -> None:
    """K = 8 as if it had been measured, where acceptance is constant."""
    found = cost(10.0, steps_of(11.0, 1.0, 0.8, ks=(1, 2, 3)))
    positions = [0.8, 0.64, 0.512]
    wanted = expected_tokens(0.8, 8) * 10.0 / 19.0
    assert found.predicted(8, positions) == pytest.approx(wanted)
    assert found.predicted(8, ()) is None
    lookup = cost(10.0, steps_of(11.0, 1.0, 0.8), drafting=Drafting.LOOKUP)
    assert lookup.predicted(8, positions) is None


@given(MS, SMALL_MS, ALPHAS)
def test_leaving_one_k_out_of_a_line_costs_nothing(
    base_ms: float, slope_ms: float, alpha: float
) -> None:
    """The model is exact where the truth is the model."""
    found = cost(base_ms, steps_of(base_ms, slope_ms, alpha))
    assert [one.num_speculative_tokens for one in found.left_out] == [1, 2, 3, 5]
    assert found.left_out_error == pytest.approx(0.0, abs=1e-6)


def test_a_cliff_is_seen_when_its_k_is_left_out() -> None:
    """Slow graphs at one K: the model does not know them, and its error says so."""
    steps = steps_of(10.0, 1.0, 0.8, ks=(1, 2, 3, 4))
    steps[3] = replace(steps[3], seconds=28e-3)
    found = cost(10.0, steps)
    assert found.left_out[-1].error == pytest.approx(28.0 / 14.0 - 1)
    assert (found.left_out_error or 0.0) >= 1.0
    assert cost(10.0, steps[:2]).left_out_error is None


def test_a_draft_is_found_back_through_the_noise_as_often_as_its_error_says() -> None:
    """90 % of two-sided bounds hold it; steps scatter by 2 %, as the recorded passes do."""
    dice, held, rounds = np.random.default_rng(0), 0, 400
    for _ in range(rounds):
        steps = [
            step(k, (11.0 + 2.5 * k) * (1 + 0.01 * dice.standard_normal())) for k in (1, 2, 3, 5)
        ]
        draft = cost(10.0, steps, check_ms=0.5).draft
        assert draft is not None
        held += draft.low_s <= 2e-3 <= draft.high_s
    assert held / rounds > 0.87


@pytest.mark.parametrize("ks", [(2, 1), (1, 1), ()])
def test_a_cost_needs_each_k_once_and_rising(ks: tuple[int, ...]) -> None:
    """What follows goes by their order."""
    with pytest.raises(ValueError, match="each once, rising"):
        cost(10.0, [step(k, 11.0) for k in ks] or [])


def test_a_step_takes_time() -> None:
    """Nothing is divided by."""
    with pytest.raises(ValueError, match="takes time"):
        step(1, 0.0)
    assert math.isfinite(step(1, 1.0).whole_s)
