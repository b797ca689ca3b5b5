"""What a draft is worth: the formulas of the papers, and positions that were measured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.core.expectation import (
    acceptance_rate,
    alpha_of,
    expected_tokens,
    tokens_at,
    walltime_improvement,
)

ALPHAS = st.floats(0.01, 0.99)
KS = st.integers(1, 20)


@given(ALPHAS, KS)
def test_expected_tokens_are_those_of_the_closed_form(alpha: float, k: int) -> None:
    """Leviathan et al. 2023, equation 1."""
    closed = (1 - alpha ** (k + 1)) / (1 - alpha)
    assert expected_tokens(alpha, k) == pytest.approx(closed)


def test_walltime_improvement_has_the_figures_of_the_paper() -> None:
    """Leviathan et al. 2023, table 1, whose draft costs nothing; and one that costs a twentieth."""
    table = {(0.6, 2): 1.96, (0.8, 5): 3.69, (0.9, 10): 6.86}
    for (alpha, k), speed in table.items():
        assert walltime_improvement(alpha, k, 0.0) == pytest.approx(speed, abs=0.005)
    assert walltime_improvement(0.8, 5, 0.05) == pytest.approx(3.68928 / 1.25)


@given(ALPHAS, KS)
def test_alpha_is_found_back_from_the_rate(alpha: float, k: int) -> None:
    """The rate of a constant alpha tells that alpha."""
    assert alpha_of(acceptance_rate(alpha, k), k) == pytest.approx(alpha, abs=1e-6)


@given(ALPHAS, KS, KS)
def test_the_rate_falls_with_k_by_arithmetic_alone(alpha: float, k: int, more: int) -> None:
    """A lower rate at a larger K is no worse draft."""
    assert acceptance_rate(alpha, k + more) < acceptance_rate(alpha, k) + 1e-12


@given(ALPHAS, KS, KS)
def test_positions_that_fall_by_a_constant_go_on_so(alpha: float, measured: int, k: int) -> None:
    """With a constant acceptance what is not measured is what the formula gives."""
    positions = [alpha**i for i in range(1, measured + 1)]
    assert tokens_at(positions, k) == pytest.approx(expected_tokens(alpha, k))


def test_measured_positions_count_as_measured() -> None:
    """No formula where there is a number; a tail of nothing stays nothing."""
    assert tokens_at([0.9, 0.2, 0.1], 2) == pytest.approx(2.1)
    assert tokens_at([0.9, 0.2, 0.0], 8) == pytest.approx(2.1)
    with pytest.raises(ValueError, match="one position"):
        tokens_at([], 3)
