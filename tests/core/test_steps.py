"""Steps of a pass: tokens per step, time per step, and what a reply takes."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.core.steps import GROUP, median_of_means, step_stats


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
    stats = step_stats([reply], 3)
    assert stats is not None
    assert stats.tokens_per_step == sum(tokens) / len(tokens)
    took = reply.chunk_s[-1] - reply.sent_s
    assert stats.reply_s(1 + sum(tokens)) == pytest.approx(took)


def test_merged_chunks_are_dropped_and_counted() -> None:
    """A chunk of more than K + 1 tokens is no step, so neither its tokens nor its gap count."""
    stats = step_stats([Reply([1, *[2] * GROUP, 7])], 1)
    assert stats is not None
    assert (stats.merged, stats.tokens, stats.steps) == (1, 2 * GROUP, GROUP)


def test_failed_and_short_replies_tell_nothing() -> None:
    """Without enough gaps of successful replies there are no step statistics."""
    assert step_stats([Reply([1] * 50, error="HTTP 500")], 0) is None
    assert step_stats([Reply([1] * GROUP)], 0) is None


def test_one_hiccup_does_not_move_the_step_time() -> None:
    """The median of means stays with the groups that had no hiccup; the mean does not."""
    gaps = [0.02] * (5 * GROUP)
    gaps[7] = 3.0
    assert median_of_means(gaps, GROUP) == pytest.approx(0.02)
