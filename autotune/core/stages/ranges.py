"""Which K of a range are looked at: first, around the best, and beyond its end.

Rule: pure arithmetic on the K asked for; what was measured comes in as the best K and no more.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from functools import reduce
from itertools import pairwise

from autotune.core.methods import MAX_SPECULATIVE_TOKENS
from autotune.core.study import Candidate

WINDOW = 3
"""A gap beside the best K that holds no more K than this is measured whole, a wider one is halved.
Where every K is a launch, only gaps of one are."""
DOUBLINGS = 2
"""How often the range is doubled while the curve rises."""


def coarse(ks: Sequence[int]) -> tuple[int, ...]:
    """The smallest K, then each that at least doubles the one before, and the largest."""
    chosen = [ks[0]]
    for k in ks:
        if k >= 2 * chosen[-1]:
            chosen.append(k)
    return tuple(dict.fromkeys((*chosen, ks[-1])))


def doubled(candidate: Candidate, ks: Sequence[int]) -> tuple[int, ...]:
    """The ends of a range that is extended, once and twice; none where K has an end by itself."""
    if len(ks) < 2 or not candidate.extends:  # noqa: PLR2004 - one K is no range
        return ()
    ends = [ks[-1] * 2**i for i in range(1, DOUBLINGS + 1)]
    return tuple(k for k in ends if k <= MAX_SPECULATIVE_TOKENS)


def universe(candidate: Candidate, ks: Sequence[int]) -> tuple[int, ...]:
    """All K that may ever be measured: those asked for, and beyond them the ends and their middles.

    Only multiples of what all K are multiples of: a checkpoint of several prediction layers takes
    no others.
    """
    ends = (ks[-1], *doubled(candidate, ks))
    middles = [(low + high) // 2 for low, high in pairwise(ends)]
    step = reduce(math.gcd, ks)
    return (*ks, *sorted(k for k in (*ends[1:], *middles) if k % step == 0))


def around(
    all_ks: Sequence[int], tried: Sequence[int], best: Collection[int], *, window: int = WINDOW
) -> Iterator[int]:
    """The K in the gaps on both sides of the best ones."""
    for low, high in pairwise(tried):
        gap = [k for k in all_ks if low < k < high]
        if {low, high}.intersection(best) and gap:
            yield from gap if len(gap) <= window else [gap[(len(gap) - 1) // 2]]


def between(all_ks: Sequence[int], tried: Sequence[int], best: int) -> tuple[int, ...]:
    """The K from the neighbour below the best one to that above it, tried or not."""
    low = max((k for k in tried if k < best), default=best)
    high = min((k for k in tried if k > best), default=best)
    return tuple(k for k in all_ks if low <= k <= high)
