"""The load generator: a fixed number of streams, each with one request in flight.

Laws: a stream takes the next request when its last one has ended, so exactly `concurrency` are
in flight until the queue is empty. What can be done before the first send or after the last byte
is done there: the timed window holds sending, reading and stamping, nothing else.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from autotune.core.study import Workload
from autotune.loadgens._framing import Reply
from autotune.loadgens._http import Address, Connection, not_sent
from autotune.loadgens._request import posts as posts_of
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
        """One pass; never raises for what the server does: a failed request is a sample."""
        if not requests or concurrency < 1:
            raise ValueError(
                "a pass needs a request and a stream, got "
                f"{len(requests)} requests at concurrency {concurrency}"
            )
        if arrivals is not None:
            raise ValueError("a closed loop has no arrivals: that is open_loop")
        posts = posts_of(server, workload, requests)
        streams = min(concurrency, len(posts))
        address = Address.parse(server.base_url)
        connections = [Connection(address, self.idle_timeout_s) for _ in range(streams)]
        with no_garbage_collection():
            return _timed(connections, posts, requests)


def _timed(
    connections: Sequence[Connection], posts: Sequence[bytes], requests: Sequence[Request]
) -> LoadResult:
    cpu = time.process_time()
    replies, lag = asyncio.run(_drive(connections, posts))
    cpu = time.process_time() - cpu  # reading the replies comes after the timed window
    origin = min(reply.sent for reply in replies)
    samples = (sample(r.prompt, p, origin) for r, p in zip(requests, replies, strict=True))
    return LoadResult(
        samples=tuple(samples),
        duration_s=max(reply.ended for reply in replies) - origin,
        client_cpu_s=cpu,
        event_loop_lag_s=lag,
    )


@dataclass(slots=True)
class _Queue:
    """The requests of a pass and what has come of them, shared by its streams."""

    waiting: Iterator[tuple[int, bytes]]
    replies: dict[int, Reply] = field(default_factory=dict)
    stalled: bool = False

    async def drain(self, connection: Connection) -> None:
        """One stream: the next request as soon as the last one has ended."""
        for index, post in self.waiting:
            if self.stalled:
                self.replies[index] = not_sent()
                continue
            reply = self.replies[index] = await connection.exchange(post)
            self.stalled |= reply.stalled


async def _drive(
    connections: Sequence[Connection], posts: Sequence[bytes]
) -> tuple[list[Reply], float]:
    """All streams to their end; the replies in the order of the requests, and the worst lag."""
    queue = _Queue(iter(enumerate(posts)))
    try:
        await asyncio.gather(*(connection.open() for connection in connections))
        watch = LagWatch()
        await asyncio.gather(*(queue.drain(c) for c in connections))
        lag = watch.stop()
    finally:
        for connection in connections:
            connection.close()
    return [queue.replies[index] for index in range(len(posts))], lag


PLUGIN: LoadGenerator = ClosedLoop()
