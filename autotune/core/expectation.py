"""How many tokens a draft of K is worth, from how often its tokens are accepted.

Rule: positions that were measured count as measured; only beyond them, or where a rate is all there
is, one constant acceptance alpha stands in, as in Leviathan, Kalman and Matias, Fast Inference from
Transformers via Speculative Decoding, ICML 2023, whose gamma is K. It holds for greedy decoding and
for the rejection sampling of Chen et al., Accelerating Large Language Model Decoding with
Speculative Sampling, 2023, alike: both accept a token or end the draft there.
"""

from collections.abc import Sequence

HALVINGS = 60
"""Of the interval [0, 1]: beyond the precision of a float."""


def expected_tokens(alpha: float, k: int) -> float:
    """Tokens per step of a draft of K, the target's own included (Leviathan et al., equation 1)."""
    return 1.0 + sum(alpha**i for i in range(1, k + 1))


def walltime_improvement(alpha: float, k: int, cost: float) -> float:
    """Leviathan et al., theorem 3.8: `cost` is the draft's step over the target's; checking K
    tokens takes as long as decoding one.
    """
    return expected_tokens(alpha, k) / (k * cost + 1.0)


def acceptance_rate(alpha: float, k: int) -> float:
    """Accepted over drafted tokens at a constant alpha: it falls with K by arithmetic alone."""
    return (expected_tokens(alpha, k) - 1.0) / k


def alpha_of(rate: float, k: int) -> float:
    """The constant alpha at which a draft of K has this acceptance rate."""
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if acceptance_rate(middle, k) < rate:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def tokens_at(per_position: Sequence[float], k: int) -> float:
    """Tokens per step of a draft of K from unconditional acceptance by position.

    Beyond the last position measured each is worth as much less as the last one was.
    """
    if not per_position:
        raise ValueError("need the acceptance of one position at least")
    measured = list(per_position[:k])
    before = measured[-2] if len(measured) > 1 else 1.0
    ratio = min(measured[-1] / before, 1.0) if before > 0 else 0.0
    while len(measured) < k:
        measured.append(measured[-1] * ratio)
    return 1.0 + sum(measured)
