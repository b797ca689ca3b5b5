"""Where a reply's time goes: first token, engine steps, tokens per step.

The ratio of two throughputs carries all the timing noise of both passes. Taken apart,

    time of a reply of n tokens = TTFT + (n - 1) / L * T_step

L, the decode tokens per engine step, has no timing noise at all (only that of the text), and T_step
can be taken robustly from hundreds of gaps between chunks, because a chunk is one step as long as
the client keeps up. In a closed loop the throughput at concurrency c is c * n over this time, so
S(K) is the ratio of these times for the same n: the formula of docs/design.md with the time to the
first token kept in.

Rules: a chunk of more than K + 1 tokens is several steps merged on the way and is dropped; steps
without a draft count like any other; only successful replies count.
"""

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

GROUP = 12
"""Gaps per group of the median of means: enough that a group holds its share of other requests'
prefills, few enough that a hiccup of the host spoils one group only."""


class Chunked(Protocol):
    """What is asked of a reply: arrival of its token-carrying chunks, in seconds on one clock."""

    @property
    def sent_s(self) -> float: ...
    @property
    def chunk_s(self) -> Sequence[float]: ...
    @property
    def chunk_tokens(self) -> Sequence[int]: ...
    @property
    def error(self) -> str | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStats:
    """The steps of one pass."""

    tokens: int
    """Decode tokens: all but those of each reply's first chunk and of merged chunks."""
    steps: int
    """Engine steps that gave them, counted for each reply."""
    merged: int
    """Chunks dropped because they carried more than K + 1 tokens."""
    step_s: float
    """Seconds per step: median of the means of groups of gaps."""
    first_token_s: float
    """Median seconds to the first token."""

    @property
    def tokens_per_step(self) -> float:
        """L: decode tokens per engine step, 1 without speculation."""
        return self.tokens / self.steps

    def reply_s(self, output_tokens: float) -> float:
        """Seconds that a reply of so many tokens takes."""
        return self.first_token_s + (output_tokens - 1) / self.tokens_per_step * self.step_s


def step_stats(replies: Iterable[Chunked], num_speculative_tokens: int) -> StepStats | None:
    """The steps of a pass; None when its replies have fewer gaps than one group."""
    good = [r for r in replies if r.error is None and r.chunk_s]
    gaps: list[float] = []
    tokens = merged = 0
    for reply in good:
        for gap, carried in _gaps(reply):
            if carried > num_speculative_tokens + 1:
                merged += 1
            else:
                gaps.append(gap)
                tokens += carried
    if len(gaps) < GROUP:
        return None
    return StepStats(
        tokens=tokens,
        steps=len(gaps),
        merged=merged,
        step_s=median_of_means(gaps, GROUP),
        first_token_s=statistics.median(r.chunk_s[0] - r.sent_s for r in good),
    )


def median_of_means(values: Sequence[float], group: int) -> float:
    """The median of the means of consecutive groups; a last, smaller group joins the one before."""
    starts = range(0, max(len(values) - group + 1, 1), group)
    ends = [*starts[1:], len(values)]
    return statistics.median(
        statistics.fmean(values[start:end]) for start, end in zip(starts, ends, strict=True)
    )


def _gaps(reply: Chunked) -> Iterator[tuple[float, int]]:
    times, tokens = reply.chunk_s, reply.chunk_tokens
    for i in range(1, len(times)):
        yield times[i] - times[i - 1], tokens[i]
