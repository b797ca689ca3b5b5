"""One request on its way through the engine, and the reply that it will get.

Rule: where a reply ends, why, and each of its words follow from the request alone; the engine only
decides how many tokens come in which step.
"""

import asyncio
import time
from dataclasses import dataclass, field

from autotune.engines.simulated_server.launch import Launch
from autotune.engines.simulated_server.model import reply_tokens, word
from autotune.engines.simulated_server.wire import Ask
from autotune.engines.simulated_server.world import Replies

_LOOP_FROM = 8
_LOOP_LENGTH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What one step gave one request."""

    text: str
    tokens: int
    finish_reason: str | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """A request's plan, fixed when it arrives, and how far it has come."""

    key: tuple[object, ...]
    """Seeds all of its draws: the prompt, and what makes a sampled reply differ."""
    replies: Replies
    blocks: tuple[int, ...]
    prompt_tokens: int
    end: int
    eos: int | None
    """Tokens of the whole reply with its end-of-sequence token; None: that one is ignored."""
    temperature: float
    wanted_k: int | None
    loops: bool
    arrived: float = field(default_factory=time.monotonic)
    outputs: asyncio.Queue[Output | None] = field(default_factory=asyncio.Queue)
    """Steps as they are done; None if the engine dies."""
    produced: int = 0
    computed: bool = False
    """Whether its KV cache is filled; a preempted request starts again."""
    speculated: bool = False

    @property
    def length(self) -> int:
        """Tokens in its context."""
        return self.prompt_tokens + self.produced

    @property
    def done(self) -> bool:
        """Whether nothing is left to say."""
        return self.produced >= self.end

    def advance(self, tokens: int) -> Output:
        """Produce tokens; those after the end are cut off."""
        before = self.produced
        self.produced = min(before + tokens, self.end)
        reason = ("stop" if self.produced == self.eos else "length") if self.done else None
        output = Output(
            text="".join(self._text(at) for at in range(before, self.produced)),
            tokens=self.produced - before,
            finish_reason=reason,
        )
        self.outputs.put_nowait(output)
        return output

    def _text(self, at: int) -> str:
        if self.eos is not None and at == self.eos - 1:
            return ""
        spoken = _LOOP_FROM + at % _LOOP_LENGTH if self.loops and at >= _LOOP_FROM else at
        text = word(self.replies, self.key, spoken, speculating=self.speculated)
        return f" {text}" if at else text


def make_request(ask: Ask, launch: Launch, number: int) -> Request:
    """A greedy reply follows from the prompt alone, a sampled one from its seed, too."""
    sampled = (number if ask.seed is None else ask.seed) if ask.temperature > 0 else None
    key = (launch.world.seed, ask.digest, sampled)
    eos = None if ask.ignore_eos else reply_tokens(launch.world.reply, key) + 1
    return Request(
        key=key,
        replies=launch.world.reply,
        blocks=ask.blocks,
        prompt_tokens=len(ask.prompt),
        end=ask.max_tokens if eos is None else min(ask.max_tokens, eos),
        eos=eos,
        temperature=ask.temperature,
        wanted_k=ask.wanted_k,
        loops=launch.fault("repetition_loop", temperature=ask.temperature) is not None,
    )
