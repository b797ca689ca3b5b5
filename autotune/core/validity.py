"""Whether a pass may enter a curve: every check is a sentence that names numbers, and a remedy.

Rules: an invalid pass is neither slow nor fast, it is not a measurement; the first broken rule is
the cause; what was observed is an argument, nothing is guessed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from autotune.core.acceptance import SpecCounters
from autotune.core.counting import counted
from autotune.core.methods import Method
from autotune.core.steps import StepStats

TOKEN_TOLERANCE = 0.02
PREFIX_HIT_LIMIT = 0.05
TRIM_TOLERANCE = 0.10
"""Share of draft tokens that trimming at the end of replies and contexts may take away."""
LAG_LIMIT_S = 0.2
LAG_LIMIT_STEPS = 0.5
"""A client is late beyond both. Lag is the worst moment of a pass, and one hiccup does no harm: the
time of a step is a median of groups, and lateness of less than half a step moves no token into the
next one. On two cores, one of them the engine's, passes of seconds have 2 to 100 ms, seldom 140:
beyond that the client was kept from running, and its times and pauses are not the engine's.
"""
CPU_LIMIT = 0.8
CPU_MIN_S = 0.5
"""A client is the bottleneck when it computes for most of the time; below half a second of it what
was measured is the opening of its connections."""
LOOP_LIMIT = 0.5
"""Share of the replies that may be loops."""


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
    prefix_hit_rate: float | None
    """None when the engine does not count it."""
    client_lag_s: float
    """The latest that the client came to a due timer."""
    spec: SpecCounters | None
    steps_by_k: Mapping[int, int] | None
    """Engine steps by the K in force, live launches only."""
    steps: StepStats | None
    concurrency: int = 1
    duration_s: float = 0.0
    client_cpu_s: float = 0.0
    backwards: Sequence[str] = ()
    """The counters that were lower after the pass than before."""
    disturbances: Sequence[str] = ()
    """Lines of the engine's log that tell of work other than serving."""
    warnings: Mapping[str, int] = field(default_factory=dict)
    """What the engine's log warned of, and how often; such a pass may count."""
    looping: int = 0
    """Replies that are one phrase over and over."""
    scheduled: bool = False
    """Whether K follows the batch size: `num_speculative_tokens` is the most it may be."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """Why a pass is no measurement, and what to do about it."""

    why: str
    remedy: str


def first_flaw(seen: Observed) -> Flaw | None:
    """The first rule that the pass breaks, with its numbers; None for a valid pass."""
    return next((Flaw(why, remedy) for check, remedy in CHECKS if (why := check(seen))), None)


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
        return f"K = 0 was asked for, the engine counted {counted(spec.drafts, 'draft')}"
    per_draft = spec.draft_tokens / spec.drafts
    fixed = seen.method.fixed_length and not seen.scheduled
    low = k * (1 - TRIM_TOLERANCE) if fixed else 0.0
    if not low <= per_draft <= k:
        return f"K = {k} was asked for, {per_draft:.2f} tokens per draft were counted"
    return None


def _restarted(seen: Observed) -> str | None:
    if not seen.backwards:
        return None
    return f"the server restarted during the pass: {', '.join(seen.backwards)} ran backwards"


def _failed(seen: Observed) -> str | None:
    if seen.failed == 0:
        return None
    return f"{seen.failed} of {counted(seen.requests, 'request')} failed: {seen.first_error}"


def _tokens_differ(seen: Observed) -> str | None:
    if abs(seen.client_tokens - seen.server_tokens) <= TOKEN_TOLERANCE * seen.client_tokens:
        return None
    return f"the client counted {seen.client_tokens} tokens, the server {seen.server_tokens}"


def _counters_frozen(seen: Observed) -> str | None:
    if seen.client_tokens == 0 or seen.server_tokens != 0:
        return None
    return (
        f"the client got {seen.client_tokens} tokens, the engine's counter of generated tokens "
        "did not move"
    )


def _disturbed(seen: Observed) -> str | None:
    if not seen.disturbances:
        return None
    first, count = seen.disturbances[0], len(seen.disturbances)
    more = f" (and {counted(count - 1, 'more such line')})" if count > 1 else ""
    return f"the engine did other work than serving: {first}{more}"


def _no_tokens(seen: Observed) -> str | None:
    return "no output tokens at all" if seen.client_tokens == 0 else None


def _prefix_cache(seen: Observed) -> str | None:
    if seen.prefix_hit_rate is None or seen.prefix_hit_rate <= PREFIX_HIT_LIMIT:
        return None
    return f"{seen.prefix_hit_rate:.0%} of the prompt tokens came from the prefix cache"


def _miscounted(seen: Observed) -> str | None:
    k, spec = seen.num_speculative_tokens, seen.spec
    if spec is None:
        return None
    if spec.accepted_tokens > spec.draft_tokens:
        return f"{spec.accepted_tokens} tokens were accepted of {spec.draft_tokens} drafted"
    if spec.accepted_tokens > k * spec.drafts:
        length = 1 + spec.accepted_tokens / max(spec.drafts, 1)
        return f"K = {k}, an acceptance length of {length:.2f} was counted: K + 1 is the most"
    return None


def _above_the_ceiling(seen: Observed) -> str | None:
    k, steps = seen.num_speculative_tokens, sum((seen.steps_by_k or {}).values())
    most = steps * seen.concurrency * (k + 1)
    if seen.steps_by_k is None or seen.client_tokens <= most:
        return None
    return (
        f"{seen.client_tokens} tokens in {steps} steps at concurrency {seen.concurrency}: with "
        f"K = {k} no more than {most} can be"
    )


def _never_drafted(seen: Observed) -> str | None:
    k, spec = seen.num_speculative_tokens, seen.spec
    if k == 0 or spec is None or spec.drafts > 0 or seen.client_tokens <= seen.requests:
        return None
    if seen.scheduled:
        return None  # K may be 0 at this level
    if seen.method is None or not seen.method.fixed_length:
        return None  # a lookup may find nothing; a model always drafts
    return f"K = {k} was asked for, not one draft was counted over {seen.client_tokens} tokens"


def _client_late(seen: Observed) -> str | None:
    step_s = seen.steps.step_s if seen.steps else 0.0
    if seen.client_lag_s <= max(LAG_LIMIT_S, LAG_LIMIT_STEPS * step_s):
        return None
    step = f", a step takes {step_s * 1e3:.0f} ms" if seen.steps else ""
    return f"the client was kept from running for {seen.client_lag_s * 1e3:.0f} ms{step}"


def _client_busy(seen: Observed) -> str | None:
    if seen.client_cpu_s <= max(CPU_LIMIT * seen.duration_s, CPU_MIN_S):
        return None
    return (
        f"the client computed for {seen.client_cpu_s:.1f} of {seen.duration_s:.1f} s: it is "
        "the bottleneck"
    )


def _loops(seen: Observed) -> str | None:
    if seen.looping <= LOOP_LIMIT * seen.requests:
        return None
    return f"{seen.looping} of {seen.requests} replies are one phrase over and over"


CHECKS: tuple[tuple[Callable[[Observed], str | None], str], ...] = (
    (_restarted, "see the engine's log, or the launcher's, for why it started again"),
    (_failed, "see that error, and the engine's log in the launch folder"),
    (
        _no_tokens,
        "the model ends its replies at once: try one prompt by hand, chat template and all",
    ),
    (
        _counters_frozen,
        "its statistics are off: take disable_log_stats out of what `target.launcher` adds",
    ),
    (
        _disturbed,
        "repeated by itself; if it comes back, no warm-up covers that shape: see the engine's log",
    ),
    (
        _tokens_differ,
        "nothing else may send to this server: see the engine's log for whose it were",
    ),
    (
        _prefix_cache,
        "this engine heeds no cache_salt: target.engine_args.enable_prefix_caching: false",
    ),
    (_drafted_wrong, "see speculative_config in the engine's log: what it resolved is another K"),
    (_miscounted, "an accounting error of this engine version: believe none of its acceptance"),
    (_above_the_ceiling, "an accounting error: compare the usage of one reply with its text"),
    (_never_drafted, "see the engine's log for why it does not speculate"),
    (
        _client_busy,
        "run autotune on a faster or a less busy core, or lower workload.concurrency",
    ),
    (_client_late, "leave the client a core: end other work, or give the engine one core less"),
    (
        _loops,
        "such text is drafted for free: see chat template, sampling parameters, quantization",
    ),
)
"""Every check with its remedy, causes before their consequences."""
