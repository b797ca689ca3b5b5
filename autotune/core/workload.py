"""What is sent: prompts, levels, sampling parameters. Values that check themselves.

Rule: the words are those of candidates.yaml and of vLLM; a value raises ValueError with the rule
and the offending numbers, the edge (config/) adds file and line.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.core.jsontype import JSON

MIN_REQUESTS_PER_STREAM = 4
MIN_BLOCKS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """The production sampling parameters, sent with every request."""

    temperature: float
    params: Mapping[str, JSON] = field(default_factory=dict)
    """Further OpenAI or vLLM request fields, such as top_p, top_k, seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One concurrency of the workload, and what it counts in the overall pick.

    Without a request rate it is a closed loop: so many requests are under way at any time. With one
    it is an open loop: requests come by themselves, and at most so many are under way.
    """

    concurrency: int
    weight: float = 1.0
    request_rate: float | None = None
    """Requests per second, Poisson arrivals, as in `vllm bench serve --request-rate`."""

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, got {self.concurrency}")
        if not self.weight > 0:
            raise ValueError(f"a level's weight must be positive, got {self.weight}")
        if self.request_rate is not None and not 0 < self.request_rate < math.inf:
            raise ValueError(
                "request_rate is a positive number of requests per second (leave it out for the "
                f"closed loop), got {self.request_rate}"
            )

    @property
    def load_generator(self) -> str:
        """The plugin of autotune/loadgens that sends this level's passes."""
        return "closed_loop" if self.request_rate is None else "open_loop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Service level objectives: what a request must keep to be a good one, in milliseconds.

    None asks nothing. As in `vllm bench serve --goodput`, a reply of one token keeps any TPOT.
    """

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None

    def __post_init__(self) -> None:
        bounds = [b for b in (self.ttft_ms, self.tpot_ms, self.e2e_ms) if b is not None]
        if not bounds:
            raise ValueError("slo needs at least one of ttft, tpot and e2e")
        if min(bounds) <= 0:
            raise ValueError(f"a service level objective must be positive, got {min(bounds):g} ms")

    def kept(self, *, ttft_ms: float, tpot_ms: float | None, e2e_ms: float) -> bool:
        """Whether a request with these times is a good one."""
        return all(
            bound is None or value is None or value <= bound
            for bound, value in (
                (self.ttft_ms, ttft_ms),
                (self.tpot_ms, tpot_ms),
                (self.e2e_ms, e2e_ms),
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One conversation: the messages it opens with, with a stable id, and what follows replies."""

    id: str
    messages: tuple[Mapping[str, JSON], ...]
    task: str = ""
    later_turns: tuple[str, ...] = ()
    """What the user says after each reply, in order; every one is a request of its own."""
    response_format: Mapping[str, JSON] | None = None
    """What its replies must look like, as vLLM takes it; None: as the workload has it."""
    max_tokens: int | None = None
    """Longest reply to this prompt, in tokens, where that is less than the workload's."""
    tokens: int | None = None
    """Tokens of `messages` as the target's chat template renders them; None: not counted."""

    @property
    def requests(self) -> int:
        """How many requests the conversation takes."""
        return 1 + len(self.later_turns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is sent: prompts for the search, others for the confirmation, at these levels."""

    search: tuple[Prompt, ...]
    confirmation: tuple[Prompt, ...]
    levels: tuple[Level, ...]
    max_tokens: int
    sampling: Sampling
    ignore_eos: bool = False
    chat_template_kwargs: Mapping[str, JSON] = field(default_factory=dict)
    requests_per_stream: int = MIN_REQUESTS_PER_STREAM
    """Requests per concurrent stream in one block; fewer are all ramp and tail."""
    slo: Slo | None = None
    """What makes a request a good one; None: goodput is not shown."""
    lora: str | None = None
    """The adapter that requests name as their model; None: the target itself."""
    response_format: Mapping[str, JSON] | None = None
    """What replies must look like, as vLLM takes it; a prompt's own comes first."""

    def __post_init__(self) -> None:
        if self.requests_per_stream < MIN_REQUESTS_PER_STREAM:
            raise ValueError(
                f"a block needs at least {MIN_REQUESTS_PER_STREAM} requests per stream, got "
                f"requests_per_stream = {self.requests_per_stream}"
            )
        for level in self.levels:
            need = MIN_BLOCKS * self.block_size(level.concurrency)
            for split, prompts in (("search", self.search), ("confirmation", self.confirmation)):
                if len(prompts) < need:
                    raise ValueError(
                        f"concurrency {level.concurrency} needs {need} prompts in each split "
                        f"({MIN_BLOCKS} blocks of {self.block_size(level.concurrency)}), the "
                        f"{split} split has {len(prompts)}: add prompts or lower the concurrency"
                    )

    @property
    def primary(self) -> Level:
        """The level with the largest weight; the first of equals."""
        return max(self.levels, key=lambda level: level.weight)

    def level(self, concurrency: int) -> Level:
        """The level of that concurrency."""
        return next(level for level in self.levels if level.concurrency == concurrency)

    def max_tokens_of(self, prompt: Prompt) -> int:
        """The longest reply to this prompt, in tokens."""
        return min(self.max_tokens, prompt.max_tokens or self.max_tokens)

    def block_size(self, concurrency: int) -> int:
        """Number of prompts of one block at this concurrency."""
        return self.requests_per_stream * concurrency

    def prompts(self, split: str) -> tuple[Prompt, ...]:
        """The prompts of one split, in file order."""
        return {"search": self.search, "confirmation": self.confirmation}[split]

    def blocks(self, split: str, concurrency: int) -> int:
        """How many whole blocks the prompts of a split fill at this concurrency."""
        return len(self.prompts(split)) // self.block_size(concurrency)

    def block(self, split: str, concurrency: int, index: int) -> tuple[Prompt, ...]:
        """The prompts of one block: every n-th prompt, so that each block mixes all tasks."""
        count = self.blocks(split, concurrency)
        return self.prompts(split)[index % count :: count][: self.block_size(concurrency)]
