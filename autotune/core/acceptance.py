"""Acceptance from counters: subtract two readings, pool, never average ratios.

Rules: counts are pooled before they are divided; a counter that runs backwards is an error, not a
negative rate; no drafts means "no acceptance known" (None), never 0.
Source of the words: vllm/v1/spec_decode/metrics.py.
"""

from dataclasses import dataclass, field

from autotune.core.proportion import wilson

MIN_DRAFTS = 200
"""Fewer drafts than this say too little about acceptance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecCounters:
    """vLLM's speculative-decoding counters, cumulative or a difference of two readings."""

    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    accepted_per_pos: tuple[int, ...] = ()

    def __add__(self, other: "SpecCounters") -> "SpecCounters":
        length = max(len(self.accepted_per_pos), len(other.accepted_per_pos))
        return SpecCounters(
            drafts=self.drafts + other.drafts,
            draft_tokens=self.draft_tokens + other.draft_tokens,
            accepted_tokens=self.accepted_tokens + other.accepted_tokens,
            accepted_per_pos=tuple(
                _at(self.accepted_per_pos, i) + _at(other.accepted_per_pos, i)
                for i in range(length)
            ),
        )

    def __sub__(self, before: "SpecCounters") -> "SpecCounters":
        """What happened since `before`; raises ValueError when a counter ran backwards."""
        length = max(len(self.accepted_per_pos), len(before.accepted_per_pos))
        delta = SpecCounters(
            drafts=self.drafts - before.drafts,
            draft_tokens=self.draft_tokens - before.draft_tokens,
            accepted_tokens=self.accepted_tokens - before.accepted_tokens,
            accepted_per_pos=tuple(
                _at(self.accepted_per_pos, i) - _at(before.accepted_per_pos, i)
                for i in range(length)
            ),
        )
        counts = (delta.drafts, delta.draft_tokens, delta.accepted_tokens, *delta.accepted_per_pos)
        if min(counts) < 0:
            raise ValueError(f"a speculation counter ran backwards: {before} -> {self}")
        return delta

    @property
    def profile(self) -> "AcceptanceProfile | None":
        """The acceptance these counts show; None without a single draft."""
        return AcceptanceProfile(counters=self) if self.drafts > 0 else None


@dataclass(frozen=True, slots=True)
class AcceptanceProfile:
    """How much of what was drafted was accepted; needs at least one draft."""

    counters: SpecCounters = field()

    def __post_init__(self) -> None:
        if self.counters.drafts < 1:
            raise ValueError("an acceptance profile needs at least one draft")

    @property
    def rate(self) -> float | None:
        """Accepted over drafted tokens, a fraction in [0, 1]; None when no token was drafted."""
        if self.counters.draft_tokens == 0:
            return None
        return self.counters.accepted_tokens / self.counters.draft_tokens

    @property
    def rate_interval(self) -> tuple[float, float] | None:
        """Wilson's score interval of the rate, as if tokens were accepted one by one.

        They are not: within a draft the first refusal ends it, so the truth is somewhat wider.
        """
        if self.counters.draft_tokens == 0:
            return None
        return wilson(self.counters.accepted_tokens, self.counters.draft_tokens)

    @property
    def sufficient(self) -> bool:
        """Whether there are enough drafts to say anything."""
        return self.counters.drafts >= MIN_DRAFTS

    @property
    def length(self) -> float:
        """Tokens per verification step, the bonus token included: from 1 to K + 1."""
        return 1.0 + self.counters.accepted_tokens / self.counters.drafts

    @property
    def per_position(self) -> tuple[float, ...]:
        """Accepted at position i over the number of drafts: unconditional, for fixed K falling."""
        return tuple(n / self.counters.drafts for n in self.counters.accepted_per_pos)


def _at(counts: tuple[int, ...], index: int) -> int:
    return counts[index] if index < len(counts) else 0
