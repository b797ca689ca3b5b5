"""Steps of a pass: tokens per step, time per step, and what a reply takes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loop_model import Costs, as_pass, draw_texts, run_loop

from autotune.core.steps import GROUP, median_of_means, step_stats
from autotune.core.trial import Pass


@dataclass(frozen=True)
class Reply:
    """A reply with steps of one length."""

    chunk_tokens: Sequence[int]
    step_s: float = 0.02
    sent_s: float = 1.0
    first_token_s: float = 0.1
    error: str | None = None

    @property
    def chunk_s(self) -> Sequence[float]:
        """Arrival of each chunk."""
        start = self.sent_s + self.first_token_s
        return [start + i * self.step_s for i in range(len(self.chunk_tokens))]

    @property
    def end_s(self) -> float:
        """When the last chunk came."""
        return self.chunk_s[-1]


@dataclass(frozen=True)
class Timed:
    """A reply with given times."""

    sent_s: float
    chunk_s: Sequence[float]
    chunk_tokens: Sequence[int]
    error: str | None = None

    @property
    def end_s(self) -> float:
        """When the last chunk came."""
        return self.chunk_s[-1]


@given(
    st.lists(st.integers(1, 4), min_size=GROUP, max_size=60),
    st.floats(0.001, 0.5),
    st.floats(0.001, 2.0),
)
def test_a_reply_of_even_steps_takes_what_its_parts_say(
    tokens: list[int], step_s: float, first: float
) -> None:
    """TTFT + (n - 1) / L * T_step is the measured time of the reply."""
    reply = Reply([1, *tokens], step_s=step_s, first_token_s=first)
    stats = step_stats([reply], 3, 1)
    assert stats is not None
    assert stats.tokens_per_step == sum(tokens) / len(tokens)
    took = reply.chunk_s[-1] - reply.sent_s
    assert stats.seconds_of(1 + sum(tokens)) == pytest.approx(took)


def test_merged_chunks_are_dropped_and_counted() -> None:
    """A chunk of more than K + 1 tokens is no step, so neither its tokens nor its gap count."""
    stats = step_stats([Reply([1, *[2] * 40, 7])], 1, 1)
    assert stats is not None
    assert (stats.merged, stats.tokens, stats.steps) == (1, 80, 40)


def test_where_chunks_come_merged_nothing_is_told_of_steps() -> None:
    """Some merged chunks are too large, others pass for steps: too many, and none is believed."""
    assert step_stats([Reply([1, *[1, 3] * GROUP])], 1, 1) is None
    assert step_stats([Reply([1] * 50, step_s=0.0)], 0, 1) is None  # all in one burst


def test_failed_and_short_replies_tell_nothing() -> None:
    """Without enough gaps of successful replies there are no step statistics."""
    assert step_stats([Reply([1] * 50, error="HTTP 500")], 0, 1) is None
    assert step_stats([Reply([1] * GROUP)], 0, 1) is None


def test_one_hiccup_does_not_move_the_step_time() -> None:
    """The median of means stays with the groups that had no hiccup; the mean does not."""
    gaps = [0.02] * (5 * GROUP)
    gaps[7] = 3.0
    assert median_of_means(gaps, GROUP) == pytest.approx(0.02)


def test_a_prefill_of_another_request_is_part_of_the_step_time() -> None:
    """Steps that wait for another prompt are not outliers: their mean counts in full."""
    waiting = Reply([1] * 31, step_s=0.02)
    # The other one's prompt is computed during one of those thirty steps, which takes 0.1 s more.
    times = [at + (0.1 if i > 15 else 0.0) for i, at in enumerate(waiting.chunk_s)]
    late = Timed(sent_s=1.0, chunk_s=times, chunk_tokens=[1] * 31)
    other = Timed(sent_s=times[15], chunk_s=[times[16]], chunk_tokens=[1])
    stats = step_stats([late, other], 0, 2)
    assert stats
    assert stats.step_s == pytest.approx(0.02 + 0.1 / 30)


@pytest.mark.parametrize("concurrency", [4, 16])
def test_short_passes_tell_the_speedup_of_a_long_run(concurrency: int) -> None:
    """Prefills, queueing and idle ends accounted for: short passes by steps agree with what a long
    run shows, where the ratio of their throughputs is several percent too low."""
    dice, costs, k = np.random.default_rng(1), Costs(), 2

    def measured(number: int, count: int) -> Pass:
        texts = draw_texts(dice, count, number, acceptance=0.5, spread=0.3, tokens=33)
        replies = run_loop(texts, concurrency, number, costs, dice, step_sd=0.05)
        return as_pass(replies, number, concurrency, 0)

    long = 3000
    truth = measured(k, long).log_throughput - measured(0, long).log_throughput
    by_steps, raw = [], []
    for _ in range(1200 // concurrency):
        fast, slow = measured(k, 4 * concurrency), measured(0, 4 * concurrency)
        assert fast.steps
        assert slow.steps
        by_steps.append(math.log(slow.steps.seconds_of(33) / fast.steps.seconds_of(33)))
        raw.append(fast.log_throughput - slow.log_throughput)
    assert np.mean(by_steps) == pytest.approx(truth, abs=0.012)
    assert np.mean(raw) < truth - 0.02


def test_deviations_are_those_of_the_text() -> None:
    """A reply that needs more steps for its tokens is slower by that share; they add up to zero."""
    easy, hard = Reply([1, *[2] * 20]), Reply([1, *[1] * 40])
    stats = step_stats([easy, hard], 1, 1)
    assert stats
    found = stats.deviations(41)
    assert sum(found) == pytest.approx(0.0)
    # 20 and 40 steps for 40 tokens each: ten steps off the mean of thirty, in a time of 0.1 s
    # for the first token and thirty steps of 0.02 s.
    assert found[1] == pytest.approx(10 * 0.02 / (0.1 + 30 * 0.02))


def test_a_pass_with_a_stall_is_told_from_a_steady_one() -> None:
    """One step of a second among many of 20 ms: the replies took longer than steps explain."""
    even = Reply([1] * 101)
    stalled = [at + (1.0 if i > 50 else 0.0) for i, at in enumerate(even.chunk_s)]
    steady = step_stats([even], 0, 1)
    hit = step_stats([Timed(sent_s=1.0, chunk_s=stalled, chunk_tokens=[1] * 101)], 0, 1)
    assert steady
    assert steady.consistent
    assert hit
    assert not hit.consistent
    assert hit.unexplained == pytest.approx(0.5)


def test_the_ends_of_a_pass_can_be_left_out_of_the_tokens_per_step() -> None:
    """Two streams; when one has run out the other gets three tokens a step instead of one."""
    short, late = Reply([1] * 31), Reply([1] * 31, sent_s=1.01)
    long = Reply([1, *[1] * 30, *[3] * 30])
    whole = step_stats([short, late, long], 2, 2)
    full = step_stats([short, late, long], 2, 2, full_only=True)
    assert whole is not None
    assert full is not None
    assert whole.tokens_per_step > 1.3
    assert full.tokens_per_step == 1.0
    assert full.step_s == pytest.approx(0.02)
