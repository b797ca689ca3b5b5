"""The load generator at a request rate: requests come by themselves, whatever the server does.

Laws: a request is timed from its scheduled arrival, so waiting for a free slot is part of its
latency and no slow reply hides the queue behind it (coordinated omission). Requests are sent in
order of arrival. What the client alone was late, a slot being free, is its lag. The same seed gives
the same arrivals, to any server.

As `vllm bench serve --request-rate R --max-concurrency C`, but for the clock: vLLM starts it when
the slot was got.
"""

import asyncio
import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from autotune.core.workload import Workload
from autotune.loadgens._conversation import STALLED, Conversation
from autotune.loadgens._framing import Reply
from autotune.loadgens._http import Address, Connection
from autotune.loadgens._loop import run_pass
from autotune.loadgens._request import conversations
from autotune.loadgens._transcript import sample
from autotune.loadgens._watch import LagWatch, no_garbage_collection
from autotune.ports import Arrivals, LoadGenerator, LoadResult, Request, RequestSample, Server


def schedule(arrivals: Arrivals, count: int) -> list[float]:
    """The seconds at which `count` requests arrive: a Poisson process that had so many in its time.

    The gaps are exponential and scaled so that the last request comes at count / rate: the mean
    rate is the one asked for in every pass. (vllm/benchmarks/serve.py, get_request, does the same.)
    """
    dice = Random(arrivals.seed)
    times = list(itertools.accumulate(dice.expovariate(1.0) for _ in range(count)))
    scale = count / arrivals.request_rate / times[-1]
    return [scale * time_s for time_s in times]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLoop:
    """Sends a pass at a request rate and times it."""

    idle_timeout_s: float = 300.0
    """A request that gets no byte for this long has failed, and so have those not yet sent."""

    def run(
        self,
        server: Server,
        workload: Workload,
        requests: Sequence[Request],
        concurrency: int,
        arrivals: Arrivals | None = None,
    ) -> LoadResult:
        """One pass; never raises for what the server does: a failed request is a sample."""
        if not requests or concurrency < 1 or arrivals is None:
            raise ValueError(
                "a pass needs a request, a slot and arrivals, got "
                f"{len(requests)} requests at concurrency {concurrency}, {arrivals}"
            )
        talks = conversations(server, workload, requests)
        address = Address.parse(server.base_url)
        slots = [
            Connection(address, self.idle_timeout_s) for _ in range(min(concurrency, len(talks)))
        ]
        due_s = schedule(arrivals, len(talks))
        with no_garbage_collection():
            return _timed(slots, talks, due_s)


def _timed(
    slots: Sequence[Connection], talks: Sequence[Conversation], due_s: Sequence[float]
) -> LoadResult:
    cpu = time.process_time()
    sent = run_pass(_drive(slots, talks, due_s))
    cpu = time.process_time() - cpu  # reading the replies comes after the timed window
    samples = tuple(
        _sample(request, reply, sent.origin, None if turn else due)
        for talk, due in zip(talks, due_s, strict=True)
        for turn, (request, reply) in enumerate(talk.turns)
    )
    return LoadResult(
        samples=samples,
        duration_s=max(reply.ended for talk in talks for _, reply in talk.turns) - sent.origin,
        client_cpu_s=cpu,
        event_loop_lag_s=sent.lag_s,
    )


def _sample(request: Request, reply: Reply, origin: float, due_s: float | None) -> RequestSample:
    """The sample as it was sent, timed from when it was to be sent; later turns follow at once."""
    seen = sample(request.prompt, reply, origin)
    if due_s is None:
        return seen
    return replace(seen, sent_s=due_s, waited_s=max(seen.sent_s - due_s, 0.0))


@dataclass(slots=True)
class _Pass:
    """The slots that are free, each with the time since when."""

    free: asyncio.Queue[tuple[float, Connection]]
    """First freed, first taken: if any slot was free in time, the one taken was."""
    origin: float
    stalled: bool = False
    lag_s: float = 0.0

    async def slot(self, due: float) -> tuple[float, Connection] | None:
        """A slot, not before `due`, and since when the request could have gone; None: given up."""
        if not self.stalled:
            await asyncio.sleep(max(due - time.perf_counter(), 0.0))
            while time.perf_counter() < due:  # noqa: ASYNC110 - libuv's timers may be 1 ms early
                await asyncio.sleep(0)
            free_since, connection = await self.free.get()
            if not self.stalled:
                return max(due, free_since), connection
        return None

    async def talk(self, talk: Conversation, could_go: float, connection: Connection) -> None:
        """Send the turns of a conversation, each after the reply before it, and free the slot."""
        while talk.post is not None:
            if self.stalled:
                talk.give_up(STALLED)
                break
            reply = await connection.exchange(talk.post)
            self.stalled |= reply.stalled
            if not talk.turns:
                self.lag_s = max(self.lag_s, reply.sent - could_go)
            talk.heard(reply)
        self.free.put_nowait((talk.turns[-1][1].ended, connection))


async def _drive(
    connections: Sequence[Connection], talks: Sequence[Conversation], due_s: Sequence[float]
) -> _Pass:
    """Every request at its time, or as soon after it as a slot is free; to the last reply."""
    free: asyncio.Queue[tuple[float, Connection]] = asyncio.Queue()
    for connection in connections:
        free.put_nowait((-math.inf, connection))
    try:
        await asyncio.gather(*(connection.greet() for connection in connections))
        watch = LagWatch()
        run = _Pass(free, origin=time.perf_counter())
        async with asyncio.TaskGroup() as tasks:
            for talk, due in zip(talks, due_s, strict=True):
                slot = await run.slot(run.origin + due)
                if slot is None:
                    talk.give_up(STALLED)
                else:
                    tasks.create_task(run.talk(talk, *slot))
        run.lag_s = max(run.lag_s, watch.stop())
    finally:
        for connection in connections:
            connection.close()
    return run


PLUGIN: LoadGenerator = OpenLoop()
