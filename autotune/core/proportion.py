"""A share of counted things, with its interval.

Rule: nothing heavy is imported here: what a study's records are made of stands on it.
"""

import math
from statistics import NormalDist

CONFIDENCE = 0.95


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Wilson's score interval of a share (Wilson 1927), which is sound near 0 and 1, too."""
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(f"need 0 <= successes <= trials, one at least, got {successes}/{trials}")
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    share, weight = successes / trials, z**2 / trials
    centre = (share + weight / 2) / (1 + weight)
    spread = math.sqrt(share * (1 - share) * weight + weight**2 / 4) / (1 + weight)
    low = 0.0 if successes == 0 else centre - spread
    return low, 1.0 if successes == trials else centre + spread
