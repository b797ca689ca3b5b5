"""Passes of the closed loop against the stub."""

from dataclasses import dataclass, field

from autotune.core.trial import EngineFacts
from autotune.core.workload import Level, Prompt, Sampling, Workload
from autotune.loadgens.closed_loop import ClosedLoop
from autotune.ports import Counters, LoadResult, Request, Watch
from tests.loadgens.stub import Script, Seen, Step

PROMPTS = tuple(
    Prompt(id=f"p{i}", messages=({"role": "user", "content": f"Say {i}"},)) for i in range(64)
)
WORKLOAD = Workload(
    search=PROMPTS,
    confirmation=PROMPTS,
    levels=(Level(concurrency=1),),
    max_tokens=32,
    sampling=Sampling(temperature=0.7, params={"top_p": 0.9}),
)


@dataclass
class StubServer:
    """The part of a server that a load generator needs."""

    base_url: str
    model: str = "target"
    facts: EngineFacts = field(
        default_factory=lambda: EngineFacts(
            version="0", device="none", kv_cache_tokens=None, boot_s=0.0
        )
    )

    def counters(self) -> Counters:
        raise NotImplementedError

    def wait_drained(self) -> None: ...

    def steps_by_k(self) -> dict[int, int]:
        return {}

    def watch(self) -> Watch:
        raise NotImplementedError

    def check_alive(self) -> None: ...


def load(
    seen: Seen, count: int = 1, concurrency: int = 1, workload: Workload = WORKLOAD
) -> LoadResult:
    """A pass of so many requests, given up after 0.5 s without a byte."""
    requests = [Request(prompt=prompt, cache_salt="salt") for prompt in PROMPTS[:count]]
    generator = ClosedLoop(idle_timeout_s=0.5)
    return generator.run(StubServer(seen.base_url), workload, requests, concurrency)


def errors(result: LoadResult) -> list[str | None]:
    """The errors of a pass, in request order."""
    return [sample.error for sample in result.samples]


def scripted(*steps: Step) -> Script:
    """The same steps for every request."""
    return lambda index: steps
