"""The load generator: a fixed number of streams, each with one request in flight.

Laws: a stream takes the next request when its last one has ended, so exactly `concurrency` are
in flight until the queue is empty; the turns of a conversation stay on its stream. What can be done
before the first send or after the last byte is done there: the timed window holds sending, reading
and stamping, and the making of later turns, nothing else.
"""

import asyncio
import time
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass

from autotune.core.workload import Workload
from autotune.loadgens._conversation import STALLED, Conversation
from autotune.loadgens._http import Address, Connection
from autotune.loadgens._loop import run_pass
from autotune.loadgens._request import conversations
from autotune.loadgens._transcript import sample
from autotune.loadgens._watch import LagWatch, no_garbage_collection
from autotune.ports import Arrivals, LoadGenerator, LoadResult, Request, Server


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoop:
    """Sends a pass and times it."""

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
        """One pass; never raises for what the server does: a failed request is a sample.

        A request whose prompt has later turns gives a sample for each of them, after its own.
        """
        if not requests or concurrency < 1:
            raise ValueError(
                "a pass needs a request and a stream, got "
                f"{len(requests)} requests at concurrency {concurrency}"
            )
        if arrivals is not None:
            raise ValueError("a closed loop has no arrivals: that is open_loop")
        talks = conversations(server, workload, requests)
        streams = min(concurrency, len(talks))
        address = Address.parse(server.base_url)
        connections = [Connection(address, self.idle_timeout_s) for _ in range(streams)]
        with no_garbage_collection():
            return _timed(connections, talks)


def _timed(connections: Sequence[Connection], talks: Sequence[Conversation]) -> LoadResult:
    cpu = time.process_time()
    lag = run_pass(_drive(connections, talks))
    cpu = time.process_time() - cpu  # reading the replies comes after the timed window
    turns = [turn for talk in talks for turn in talk.turns]
    origin = min(reply.sent for _, reply in turns)
    return LoadResult(
        samples=tuple(sample(request.prompt, reply, origin) for request, reply in turns),
        duration_s=max(reply.ended for _, reply in turns) - origin,
        client_cpu_s=cpu,
        event_loop_lag_s=lag,
    )


@dataclass(slots=True)
class _Queue:
    """The conversations of a pass that have not begun, shared by its streams."""

    waiting: Iterator[Conversation]
    stalled: bool = False

    async def drain(self, connection: Connection) -> None:
        """One stream: the next request as soon as the last one has ended."""
        for talk in self.waiting:
            while talk.post is not None:
                if self.stalled:
                    talk.give_up(STALLED)
                    break
                reply = await connection.exchange(talk.post)
                self.stalled |= reply.stalled
                talk.heard(reply)


async def _drive(connections: Sequence[Connection], talks: Sequence[Conversation]) -> float:
    """All conversations to their end; gives the worst lag."""
    queue = _Queue(iter(talks))
    try:
        await asyncio.gather(*(connection.greet() for connection in connections))
        watch = LagWatch()
        await asyncio.gather(*[await _begun(queue.drain(c)) for c in connections])
        lag = watch.stop()
    finally:
        for connection in connections:
            connection.close()
    return lag


async def _begun(stream: Coroutine[None, None, None]) -> "asyncio.Task[None]":
    """The stream as a task, its first request on its way.

    The loop sends what is written in one turn at the turn's end: streams that all began in the same
    one would each wait for the others after having noted when they began.
    """
    task = asyncio.create_task(stream)
    await asyncio.sleep(0)
    return task


PLUGIN: LoadGenerator = ClosedLoop()
