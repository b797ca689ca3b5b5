"""A closed loop on a model of continuous batching, without a clock: passes as a client sees them.

One engine step at a time: running sequences decode, newcomers are prefilled in the same step, the
step takes what its batch costs, times the noise. Every reply is known by its arrivals, so the
estimators of the core see what they see of a real engine; what is true is set, not measured.

Rules: all draws come from the generator that is handed in; the text of a prompt (how many drafts
are accepted) is drawn once per prompt and K, so that two arms of one text say the same.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from autotune.core.steps import StepStats, step_stats
from autotune.core.trial import Pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Seconds of a step: per step, sequence, token to verify, prompt token, and drafting."""

    step_s: float = 0.0150
    sequence_s: float = 0.0008
    verify_s: float = 0.0002
    prompt_token_s: float = 0.0004
    draft_s: float = 0.0010


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """One prompt and what its reply takes: tokens of each engine step after the first."""

    prompt_tokens: int
    step_tokens: tuple[int, ...]


@dataclass(slots=True)
class Reply:
    """A reply as it arrived."""

    text: Text
    sent_s: float
    chunk_s: list[float] = field(default_factory=list)
    chunk_tokens: list[int] = field(default_factory=list)
    error: str | None = None

    @property
    def end_s(self) -> float:
        """When its last token came."""
        return self.chunk_s[-1]

    @property
    def done(self) -> bool:
        """Whether all its steps were made."""
        return len(self.chunk_s) == 1 + len(self.text.step_tokens)

    def advance(self, now: float) -> None:
        """One step's tokens arrive."""
        tokens = (1, *self.text.step_tokens)[len(self.chunk_s)]
        self.chunk_s.append(now)
        self.chunk_tokens.append(tokens)


def draw_texts(
    dice: np.random.Generator, count: int, k: int, *, acceptance: float, spread: float, tokens: int
) -> list[Text]:
    """Prompts whose drafts are accepted with a probability of their own; at K = 0 none is."""
    texts = []
    for _ in range(count):
        alpha = float(np.clip(acceptance + dice.uniform(-spread, spread), 0.0, 1.0))
        prompt_tokens = int(dice.integers(30, 200))
        left, steps = tokens - 1, []
        while left > 0:
            accepted = 0
            while accepted < k and dice.random() < alpha:
                accepted += 1
            steps.append(min(1 + accepted, left))
            left -= steps[-1]
        texts.append(Text(prompt_tokens=prompt_tokens, step_tokens=tuple(steps)))
    return texts


def run_loop(
    texts: Sequence[Text],
    concurrency: int,
    k: int,
    costs: Costs,
    dice: np.random.Generator,
    *,
    step_sd: float = 0.0,
) -> list[Reply]:
    """Send the prompts with `concurrency` under way; the replies in the order of the prompts."""
    now = 0.0
    waiting = deque(texts)
    replies: list[Reply] = []
    running: list[Reply] = []
    while waiting or running:
        while waiting and len(running) < concurrency:
            replies.append(Reply(waiting.popleft(), now))
            running.append(replies[-1])
        fresh = [r for r in running if not r.chunk_s]
        old = len(running) - len(fresh)
        seconds = (
            costs.step_s
            + costs.sequence_s * len(running)
            + costs.verify_s * k * old
            + costs.prompt_token_s * sum(r.text.prompt_tokens for r in fresh)
            + costs.draft_s * k
        )
        now += seconds * float(np.exp(dice.normal(0.0, step_sd)))
        for reply in running:
            reply.advance(now)
        running = [r for r in running if not r.done]
    return replies


def as_pass(replies: Sequence[Reply], k: int, concurrency: int, block: int) -> Pass:
    """The pass that these replies make."""
    steps = step_stats(replies, k, concurrency)
    return Pass(
        num_speculative_tokens=k,
        concurrency=concurrency,
        block=block,
        order=block,
        started_s=0.0,
        duration_s=max(r.end_s for r in replies),
        requests=len(replies),
        failed=0,
        prompt_tokens=sum(r.text.prompt_tokens for r in replies),
        output_tokens=sum(sum(r.chunk_tokens) for r in replies),
        spec=None,
        steps=steps,
    )


def slowed(measured: Pass, factor: float) -> Pass:
    """The same pass on a machine where everything takes `factor` times as long."""
    steps = measured.steps and _slowed(measured.steps, factor)
    return replace(measured, duration_s=measured.duration_s * factor, steps=steps)


def _slowed(steps: StepStats, factor: float) -> StepStats:
    return replace(
        steps,
        step_s=steps.step_s * factor,
        first_token_s=steps.first_token_s * factor,
        reply_s=tuple(seconds * factor for seconds in steps.reply_s),
    )
