"""Where a reply's time goes: first token, engine steps, tokens per step.

The ratio of two throughputs carries all the timing noise of both passes, and the idle ends of a
pass on top: its last replies leave streams empty, the more so the more their lengths differ, which
they do under speculation and not without. Taken apart,

    time of a reply of n tokens = TTFT + (n - 1) / L * T_step

L, the decode tokens per engine step, has no timing noise at all (only that of the text), and T_step
can be taken robustly from hundreds of gaps between chunks, because a chunk is one step as long as
the client keeps up. In a closed loop that is always full the throughput at concurrency c is c * n
over this time (Little's law), so S(K) is the ratio of these times for the same n: the formula of
docs/design.md with the time to the first token kept in.

Rules: every reply of a pass counts, those of the common start, too: each stream sees the prefill
of every request, either while it waits for its own first token or between two later ones, and only
all of them together hold the share that a steady load has. The idle ends do not count: pure decode
steps are timed while every stream is busy. Steps that carry another request's prefill are averaged
apart, since robust means would call them outliers. A chunk of more than K + 1 tokens is several
steps merged on the way and is dropped; steps without a draft count like any other.
"""

import bisect
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

GROUP = 12
"""Gaps per group of the median of means: enough that a group holds its share of other requests'
prefills, few enough that a hiccup of the host spoils one group only."""


MERGED = 0.05
"""Share of merged chunks above which steps are not believed: smaller merges pass for steps."""
CONSISTENT = 0.10
"""How far the decode time of the replies may be from what the steps explain, a share."""


class Chunked(Protocol):
    """What is asked of a reply: its times in seconds on one clock, and its chunks' tokens."""

    @property
    def sent_s(self) -> float: ...
    @property
    def end_s(self) -> float: ...
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
    """Seconds per step, those that carry another request's prefill included."""
    first_token_s: float
    """Mean seconds to the first token."""
    decode_step_s: float = 0.0
    """Seconds per step without any prefill, while every stream is busy; 0 when there was none."""
    reply_tokens: tuple[int, ...] = ()
    """Tokens of each reply after its first chunk, in the order of the requests."""
    reply_s: tuple[float, ...] = ()
    """Seconds of each reply from its first to its last token, in the same order."""

    @property
    def tokens_per_step(self) -> float:
        """L: decode tokens per engine step, 1 without speculation."""
        return self.tokens / self.steps

    @property
    def token_s(self) -> float:
        """Seconds per decode token of one stream: T_step / L."""
        return self.step_s / self.tokens_per_step

    def seconds_of(self, output_tokens: float) -> float:
        """Seconds that a reply of so many tokens takes."""
        return self.first_token_s + (output_tokens - 1) * self.token_s

    @property
    def unexplained(self) -> float:
        """By what share the replies' decode time exceeds what their tokens take by the step time.

        The step time is robust, the replies' time is not: a stall is in the one and not in the
        other. Where streams run empty at the end it is a little below 0.
        """
        total = sum(self.reply_tokens)
        return sum(self.reply_s) / (total * self.token_s) - 1 if total else 0.0

    @property
    def consistent(self) -> bool:
        """Whether replies and steps agree: both have the same text, so a stall tells them apart."""
        return abs(self.unexplained) <= CONSISTENT

    def deviations(self, output_tokens: float) -> tuple[float, ...]:
        """By how much each reply is slower than the mean reply of its pass, as a share of the time
        of a reply of so many tokens.

        What is left of a reply's decode time when its tokens are paid at the rate of its own pass:
        the noise of the text. The shares add up to 0 (the residuals of a ratio estimate, Cochran,
        Sampling Techniques, 1977, 6.3).
        """
        total = sum(self.reply_tokens)
        if total == 0:
            return tuple(0.0 for _ in self.reply_tokens)
        rate = sum(self.reply_s) / total
        unit = (
            (output_tokens - 1) * len(self.reply_tokens) / (total * self.seconds_of(output_tokens))
        )
        return tuple(
            (seconds - rate * tokens) * unit
            for seconds, tokens in zip(self.reply_s, self.reply_tokens, strict=True)
        )


def step_stats(
    replies: Iterable[Chunked],
    num_speculative_tokens: int,
    concurrency: int,
    *,
    full_only: bool = False,
) -> StepStats | None:
    """The steps of a pass, or only those while every stream is busy; None when they cannot be told.

    That is so with fewer gaps than one group, where chunks come merged or in one burst (a proxy in
    between, a client that was late), and where more than `MERGED` of them are.
    """
    good = [r for r in replies if r.error is None and r.chunk_s]
    tail_s = _tail_s(good, concurrency) if good else math.inf
    end_s = tail_s if full_only else math.inf
    found = [gap for reply in good for gap in _gaps(reply) if gap.until <= end_s]
    gaps = [gap for gap in found if gap.tokens <= num_speculative_tokens + 1]
    merged = len(found) - len(gaps)
    if len(gaps) < GROUP or merged > MERGED * len(found):
        return None
    step_s, decode_step_s = _step_s(gaps, _prefills(good), tail_s)
    if step_s <= 0:
        return None
    return StepStats(
        tokens=sum(gap.tokens for gap in gaps),
        steps=len(gaps),
        merged=merged,
        step_s=step_s,
        first_token_s=statistics.fmean(r.chunk_s[0] - r.sent_s for r in good),
        decode_step_s=decode_step_s,
        reply_tokens=tuple(sum(r.chunk_tokens[1:]) for r in good),
        reply_s=tuple(round(r.chunk_s[-1] - r.chunk_s[0], 6) for r in good),
    )


def _step_s(gaps: Sequence["_Gap"], prefills: "_Spans", tail_s: float) -> tuple[float, float]:
    """The mean step, and the one without prefill.

    The mean is robust over pure decode steps, and plain over those that carry a prefill.
    """
    carrying = [gap.seconds for gap in gaps if prefills.meet(gap.since, gap.until)]
    pure = [gap for gap in gaps if not prefills.meet(gap.since, gap.until)]
    full = [gap.seconds for gap in pure if gap.until <= tail_s]
    measured = full if len(full) >= GROUP else [gap.seconds for gap in pure]
    decode = median_of_means(measured, GROUP) if pure else 0.0
    return (len(pure) * decode + sum(carrying)) / len(gaps), decode


def median_of_means(values: Sequence[float], group: int) -> float:
    """The median of the means of consecutive groups; a last, smaller group joins the one before."""
    starts = range(0, max(len(values) - group + 1, 1), group)
    ends = [*starts[1:], len(values)]
    return statistics.median(
        statistics.fmean(values[start:end]) for start, end in zip(starts, ends, strict=True)
    )


def _tail_s(good: Sequence[Chunked], concurrency: int) -> float:
    """When the first stream ran out of requests: from then on steps have fewer sequences."""
    ends = sorted(r.end_s for r in good)
    return ends[max(len(good) - concurrency, 0)] if len(good) > concurrency else ends[-1]


@dataclass(frozen=True, slots=True)
class _Gap:
    """From one chunk of a reply to its next."""

    since: float
    until: float
    tokens: int

    @property
    def seconds(self) -> float:
        return self.until - self.since


def _gaps(reply: Chunked) -> Iterator[_Gap]:
    times, tokens = reply.chunk_s, reply.chunk_tokens
    for i in range(1, len(times)):
        yield _Gap(times[i - 1], times[i], tokens[i])


class _Spans:
    """Stretches of time, merged where they meet."""

    def __init__(self, spans: Iterable[tuple[float, float]]) -> None:
        self._starts: list[float] = []
        self._ends: list[float] = []
        for start, end in sorted(spans):
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)

    def meet(self, since: float, until: float) -> bool:
        """Whether any stretch overlaps the time between."""
        index = bisect.bisect_left(self._starts, until) - 1
        return index >= 0 and self._ends[index] > since


def _prefills(good: Sequence[Chunked]) -> _Spans:
    """When prompts were being computed, or waited to be."""
    return _Spans((r.sent_s, r.chunk_s[0]) for r in good)
