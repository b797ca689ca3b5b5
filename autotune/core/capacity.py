"""How many tokens the KV cache holds at a gpu_memory_utilization, launched or not.

What a share of the memory leaves beside weights, activations and graphs is cut into blocks, so the
capacity is a line: C(u) = (u * M - W) / b, M the device's memory, W what is no KV cache, b bytes
per token (vllm/v1/worker/gpu_worker.py, cpu_worker.py: determine_available_memory).

Rules: what a launch reported wins over the line; the line comes from launches at two utilizations
or more, or from one that also told the bytes of its KV cache and of the device; with less there is
only a bound (W is not negative), and it says that it is one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from autotune.core.trial import EngineFacts, Record


class Source(StrEnum):
    """Where a capacity is from."""

    LAUNCH = "launch"
    LINE = "line"
    BOUND = "bound"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Tokens that the KV cache holds at one utilization."""

    tokens: int
    source: Source

    @property
    def words(self) -> str:
        """`12,345 tokens`, and how well that is known."""
        how = {Source.LAUNCH: "", Source.LINE: "about ", Source.BOUND: "at most "}[self.source]
        return f"{how}{self.tokens:,} tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Capacity over utilization."""

    per_share: float
    """Tokens for the whole memory: M / b."""
    at_none: float
    """Minus the tokens that would fit in the place of W."""

    def __post_init__(self) -> None:
        if not self.per_share > 0:
            raise ValueError(f"capacity must rise with utilization, got {self.per_share:g}")

    def tokens(self, utilization: float) -> int:
        """The capacity at a utilization; 0 where nothing is left."""
        return max(int(self.per_share * utilization + self.at_none), 0)

    def utilization(self, tokens: float) -> float:
        """The utilization that has this capacity."""
        return (tokens - self.at_none) / self.per_share


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacities:
    """What the launches of one candidate say of its KV cache."""

    reported: Mapping[float, int]
    """Tokens by utilization, as launches reported them."""
    line: Line | None

    def at(self, utilization: float) -> Capacity | None:
        """The capacity at a utilization; None where no launch has told any."""
        if utilization in self.reported:
            return Capacity(tokens=self.reported[utilization], source=Source.LAUNCH)
        if self.line is not None:
            return Capacity(tokens=self.line.tokens(utilization), source=Source.LINE)
        if not self.reported:
            return None
        nearest = min(self.reported, key=lambda known: abs(known - utilization))
        tokens = int(self.reported[nearest] * utilization / nearest)
        # Above the launch this is the least that there can be, which errs on the safe side.
        return Capacity(
            tokens=tokens, source=Source.BOUND if utilization < nearest else Source.LINE
        )


def capacities(records: Sequence[Record], name: str, num_speculative_tokens: int) -> Capacities:
    """Those of a candidate at this K: of launches like the one to deploy, else of any.

    A launch for a larger K has less room left, so among others the smallest counts.
    """
    told = [r for r in records if r.trial.candidate == name and r.facts and r.facts.kv_cache_tokens]
    reported: dict[float, int] = {}
    for utilization in sorted({r.trial.gpu_memory_utilization for r in told}):
        here = [r for r in told if r.trial.gpu_memory_utilization == utilization]
        same = [
            r
            for r in here
            if r.trial.num_speculative_tokens == num_speculative_tokens and not r.trial.live
        ]
        reported[utilization] = min(_tokens(r.facts) for r in same or here)
    return Capacities(reported=reported, line=_line(reported, [r.facts for r in told if r.facts]))


def _line(reported: Mapping[float, int], told: Sequence[EngineFacts]) -> Line | None:
    if len(reported) > 1:
        slope, intercept = np.polyfit(list(reported), list(reported.values()), 1)
        return Line(per_share=float(slope), at_none=float(intercept)) if slope > 0 else None
    if not reported:
        return None
    ((utilization, tokens),) = reported.items()
    slopes = [_per_share(facts) for facts in told]
    known = [slope for slope in slopes if slope is not None]
    if not known:
        return None
    return Line(per_share=max(known), at_none=tokens - max(known) * utilization)


def _per_share(facts: EngineFacts) -> float | None:
    """M / b, from one launch: the device's memory over the bytes of a token."""
    if not facts.kv_cache_bytes or not facts.memory_bytes:
        return None
    return facts.memory_bytes * _tokens(facts) / facts.kv_cache_bytes


def _tokens(facts: EngineFacts | None) -> int:
    return (facts.kv_cache_tokens or 0) if facts else 0
