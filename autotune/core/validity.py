"""Whether a pass may enter a curve: every check is a sentence that names numbers.

Rules: an invalid pass is neither slow nor fast, it is not a measurement; the first broken rule is
the cause; what was observed is an argument, nothing is guessed.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.core.acceptance import SpecCounters
from autotune.core.methods import Method

TOKEN_TOLERANCE = 0.02
PREFIX_HIT_LIMIT = 0.05
TRIM_TOLERANCE = 0.10
"""Share of draft tokens that trimming at the end of replies and contexts may take away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What client and server saw of one pass."""

    num_speculative_tokens: int
    method: Method | None
    requests: int
    failed: int
    first_error: str
    client_tokens: int
    server_tokens: int
    prefix_hit_rate: float
    spec: SpecCounters | None
    steps_by_k: Mapping[int, int] | None
    """Engine steps by the K in force, live launches only."""


def why_invalid(seen: Observed) -> str | None:
    """The first rule that the pass breaks, with its numbers; None for a valid pass."""
    return next((why for check in CHECKS if (why := check(seen))), None)


def k_not_in_force(seen: Observed) -> str | None:
    """Whether another K than the asked one was drafted: by the scheduler's record and counters."""
    k = seen.num_speculative_tokens
    others = {other: n for other, n in (seen.steps_by_k or {}).items() if other != k}
    if others:
        return f"K = {k} was asked for, the scheduler had {others} in force (steps by K)"
    if seen.steps_by_k == {}:
        return f"K = {k} was asked for, the scheduler recorded no step at all"
    return _drafted_wrong(seen)


def _drafted_wrong(seen: Observed) -> str | None:
    k, spec = seen.num_speculative_tokens, seen.spec
    if spec is None or seen.method is None or spec.drafts == 0:
        return None
    if k == 0:
        return f"K = 0 was asked for, {spec.drafts} drafts were counted"
    per_draft = spec.draft_tokens / spec.drafts
    low = k * (1 - TRIM_TOLERANCE) if seen.method.fixed_length else 0.0
    if not low <= per_draft <= k:
        return f"K = {k} was asked for, {per_draft:.2f} tokens per draft were counted"
    return None


def _failed(seen: Observed) -> str | None:
    if seen.failed == 0:
        return None
    return f"{seen.failed} of {seen.requests} requests failed: {seen.first_error}"


def _tokens_differ(seen: Observed) -> str | None:
    if abs(seen.client_tokens - seen.server_tokens) <= TOKEN_TOLERANCE * seen.client_tokens:
        return None
    return f"the client counted {seen.client_tokens} tokens, the server {seen.server_tokens}"


def _no_tokens(seen: Observed) -> str | None:
    return "no output tokens at all" if seen.client_tokens == 0 else None


def _prefix_cache(seen: Observed) -> str | None:
    if seen.prefix_hit_rate <= PREFIX_HIT_LIMIT:
        return None
    return f"{seen.prefix_hit_rate:.0%} of the prompt tokens came from the prefix cache"


def _never_drafted(seen: Observed) -> str | None:
    k, spec = seen.num_speculative_tokens, seen.spec
    if k == 0 or spec is None or spec.drafts > 0 or seen.client_tokens <= seen.requests:
        return None
    if seen.method is None or not seen.method.fixed_length:
        return None  # a lookup may find nothing; a model always drafts
    return f"K = {k} was asked for, not one draft was counted over {seen.client_tokens} tokens"


CHECKS = (_failed, _no_tokens, _tokens_differ, _prefix_cache, _drafted_wrong, _never_drafted)
