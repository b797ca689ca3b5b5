"""The knee of every shape a curve can have."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.core.knee import Knee, find_knee

KS = (1, 2, 3, 4, 5, 6, 8)


def untied(k: int, best: int) -> bool:
    """A world without noise: only a K itself is as good as it."""
    return k == best


def knee_of(speedups: Sequence[float], ks: Sequence[int] = KS, tolerance: float = 0.02) -> Knee:
    """The knee of a curve without noise."""
    return find_knee(dict(zip(ks, speedups, strict=True)), untied, tolerance)


@pytest.mark.parametrize(
    ("speedups", "knee", "best", "at_edge"),
    [
        pytest.param((1.35, 1.62, 1.78, 1.86, 1.89, 1.90, 1.90), 5, 6, False, id="classic"),
        pytest.param((1.35, 1.62, 1.78, 1.80, 1.74, 1.66, 1.45), 3, 4, False, id="rise then fall"),
        pytest.param((1.10, 1.30, 1.45, 1.55, 1.62, 1.68, 1.75), 8, 8, True, id="still rising"),
        pytest.param((1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8), 8, 8, True, id="linear"),
        pytest.param((1.02,) * 7, 1, 1, False, id="exactly flat"),
        pytest.param((1.02, 1.01, 1.03, 1.02, 1.01, 1.02, 1.03), 1, 3, False, id="flat"),
        pytest.param((1.0, 1.02, 1.05, 1.1, 1.2, 1.35, 1.9), 8, 8, True, id="convex"),
        pytest.param((1.35, 1.70, 1.66, 1.88, 1.80, 1.93, 1.85), 6, 6, False, id="ragged"),
        pytest.param((0.95, 0.90, 0.84, 0.78, 0.70, 0.65, 0.50), 1, 1, False, id="falling"),
    ],
)
def test_every_shape_has_its_knee(
    speedups: Sequence[float], knee: int, best: int, *, at_edge: bool
) -> None:
    """The smallest K within the tolerance of the best, whatever the shape."""
    found = knee_of(speedups)
    assert (found.num_speculative_tokens, found.best) == (knee, best)
    assert found.at_edge is at_edge
    assert not found.single


def test_a_cliff_is_not_stepped_over() -> None:
    """With the peak just before a cliff the choice is on the near side of it."""
    speedups = (1.25, 1.45, 1.60, 1.71, 1.80, 1.87, 1.92, 1.10, 1.02, 0.95)
    assert knee_of(speedups, range(1, 11)).num_speculative_tokens == 7
    assert knee_of(speedups, range(1, 11), tolerance=0.05).num_speculative_tokens == 6


def test_holes_are_no_points() -> None:
    """Only what was measured can be chosen; K between is not interpolated."""
    found = knee_of((1.2, 1.5, 1.8, 1.5), (1, 2, 6, 8))
    assert (found.num_speculative_tokens, found.best) == (6, 6)


@pytest.mark.parametrize("speedup", [0.5, 1.0, 2.0])
def test_a_single_point_is_no_knee(speedup: float) -> None:
    """One K is the best known, and said to be no more; nor is it the edge of anything."""
    found = knee_of((speedup,), (4,))
    assert found == Knee(num_speculative_tokens=4, best=4, at_edge=False, single=True)


def test_an_empty_curve_has_no_knee() -> None:
    """No points is an error that says so."""
    with pytest.raises(ValueError, match="without points"):
        find_knee({}, untied, 0.02)


def test_a_tie_with_the_best_goes_to_the_smaller() -> None:
    """A K that the noise cannot tell from the best is as good, even outside the tolerance."""
    speedups = {1: 1.2, 2: 1.5, 3: 1.6}
    assert find_knee(speedups, lambda k, best: k in (2, best), 0.02).num_speculative_tokens == 2


curves = st.dictionaries(st.integers(1, 32), st.floats(0.2, 4.0), min_size=1, max_size=12)


@given(curves, st.sampled_from([0.01, 0.02, 0.1]))
def test_the_knee_is_good_and_nothing_smaller_is(
    speedups: dict[int, float], tolerance: float
) -> None:
    """Within the tolerance of the best measured, and the smallest such K."""
    knee = find_knee(speedups, untied, tolerance).num_speculative_tokens
    bound = max(speedups.values()) * (1 - tolerance)
    assert speedups[knee] >= bound
    assert all(value < bound for k, value in speedups.items() if k < knee)


@given(curves, st.dictionaries(st.integers(33, 64), st.floats(0.1, 1.0), max_size=5))
def test_trying_larger_k_that_lose_changes_nothing(
    speedups: dict[int, float], more: dict[int, float]
) -> None:
    """The answer does not depend on how far the range went beyond the best."""
    worse = {k: share * min(speedups.values()) for k, share in more.items()}
    found, wider = (find_knee(s, untied, 0.02) for s in (speedups, speedups | worse))
    if all(value < max(speedups.values()) for value in worse.values()):
        assert found.num_speculative_tokens == wider.num_speculative_tokens
        assert found.best == wider.best


@given(curves, st.integers(-3, 3))
def test_a_faster_machine_has_the_same_knee(speedups: dict[int, float], power: int) -> None:
    """Only ratios count: scaling every speed leaves the knee."""
    scaled = {k: value * 2.0**power for k, value in speedups.items()}
    assert find_knee(scaled, untied, 0.02) == find_knee(speedups, untied, 0.02)
