"""The knee: the smallest K that is as good as the best, within the noise.

Rules: only measured K count, nothing is interpolated; the answer does not depend on the range that
was tried; a curve of one point has a best but is not called a knee.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee:
    """The chosen K of one curve, and what is to be said about it."""

    num_speculative_tokens: int
    best: int
    """The K with the highest mean."""
    at_edge: bool
    """The best K is the largest tried: a larger one may be better still."""
    single: bool
    """Only one K was measured: best known, not a knee."""


def find_knee(
    speedups: Mapping[int, float], tied: Callable[[int, int], bool], tolerance: float
) -> Knee:
    """The smallest K within `tolerance` of the best mean, or statistically tied with it.

    `speedups` maps K to the mean speedup; `tied(k, best)` says whether the paired difference of two
    K of one launch is indistinguishable from zero. Raises ValueError on an empty curve.
    """
    if not speedups:
        raise ValueError("a curve without points has no knee")
    best = max(speedups, key=lambda k: (speedups[k], -k))
    good = [
        k
        for k in sorted(speedups)
        if speedups[k] >= speedups[best] * (1 - tolerance) or tied(k, best)
    ]
    return Knee(
        num_speculative_tokens=good[0],
        best=best,
        at_edge=best == max(speedups) and len(speedups) > 1,
        single=len(speedups) == 1,
    )
