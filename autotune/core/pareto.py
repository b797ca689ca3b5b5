"""Speed against memory: which points no other one beats in both.

Rules: the memory of a point is what it would need on this load, not what it was given: everything
that is no KV cache (weights of target and draft, activations, graphs), and KV cache for the
measured peak with headroom; what was not told has no place here. Of a live launch what is no KV
cache is that of its largest K, an upper bound. The front goes by means: who is on it says nothing
of the intervals, which stand beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autotune.core.memory import HEADROOM, peak_need
from autotune.core.speedup import SpeedupCurve
from autotune.core.statistics import Interval
from autotune.core.trial import BASELINE, EngineFacts, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Tradeoff:
    """One point: a candidate at a K, or plain decoding."""

    candidate: str
    num_speculative_tokens: int
    speedup: Interval
    """Overall; 1 for plain decoding, which it is a ratio to."""
    memory_bytes: float
    on_front: bool = False

    @property
    def memory_gib(self) -> float:
        """What it needs, in GiB."""
        return self.memory_bytes / (1 << 30)

    def beats(self, other: "Tradeoff") -> bool:
        """Whether it is no worse in both, and better in one."""
        mine = (-self.speedup.mean, self.memory_bytes)
        theirs = (-other.speedup.mean, other.memory_bytes)
        return all(a <= b for a, b in zip(mine, theirs, strict=True)) and mine != theirs


def tradeoffs(records: Sequence[Record], found: Sequence[SpeedupCurve]) -> tuple[Tradeoff, ...]:
    """Every point of the overall curves whose memory is known, and plain decoding; least first."""
    plain = memory_bytes(records, BASELINE, 0)
    one = Interval(mean=1.0, low=1.0, high=1.0)
    points = [(BASELINE, 0, one, plain)]
    points += [
        (curve.candidate, k, point.speedup, memory_bytes(records, curve.candidate, k))
        for curve in found
        if curve.concurrency is None
        for point in curve.points
        for k in [point.num_speculative_tokens]
    ]
    known = [
        Tradeoff(candidate=name, num_speculative_tokens=k, speedup=speedup, memory_bytes=needed)
        for name, k, speedup, needed in points
        if needed is not None
    ]
    return tuple(sorted(front(known), key=lambda t: (t.memory_bytes, -t.speedup.mean)))


def front(points: Sequence[Tradeoff]) -> tuple[Tradeoff, ...]:
    """The points, with those marked that no other one beats."""
    return tuple(replace(p, on_front=not any(q.beats(p) for q in points)) for p in points)


def memory_bytes(records: Sequence[Record], name: str, k: int) -> float | None:
    """What a point needs of the device's memory on this load; None where it was not told."""
    need = peak_need(records, name, k)
    mine = [r for r in records if (r.trial.candidate, r.trial.num_speculative_tokens) == (name, k)]
    cold = [r for r in mine if not r.trial.live] or mine
    known = [
        found
        for r in cold
        if r.facts and (found := _split(r.facts, r.trial.gpu_memory_utilization)) is not None
    ]
    if need is None or not known:
        return None
    fixed, per_token = max(known)
    return fixed + need.tokens * (1 + HEADROOM) * per_token


def _split(facts: EngineFacts, utilization: float) -> tuple[float, float] | None:
    """Bytes that are no KV cache, and bytes of a token of it."""
    if not (facts.kv_cache_bytes and facts.memory_bytes and facts.kv_cache_tokens):
        return None
    fixed = utilization * facts.memory_bytes - facts.kv_cache_bytes
    return fixed, facts.kv_cache_bytes / facts.kv_cache_tokens
