"""The load generator: a fixed number of streams, each with one request in flight.

Laws: a stream takes the next request when its last one has ended, so exactly `concurrency` are
in flight until the queue is empty. What can be done before the first send or after the last byte
is done there: the timed window holds sending, reading and stamping, nothing else.
"""

import asyncio
import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from autotune.core.study import JSON, Workload
from autotune.loadgens._framing import Reply
from autotune.loadgens._http import Address, Connection
from autotune.loadgens._transcript import sample
from autotune.ports import LoadGenerator, LoadResult, Request, Server

PATH = "/v1/chat/completions"
LAG_PERIOD_S = 0.02


def body(model: str, workload: Workload, request: Request) -> dict[str, JSON]:
    """The JSON of one request; the workload's parameters cannot override what is measured."""
    fields: dict[str, JSON] = dict(workload.sampling.params)
    if request.xargs:
        given = fields.get("vllm_xargs")
        fields["vllm_xargs"] = (given if isinstance(given, dict) else {}) | dict(request.xargs)
    if request.cache_salt:
        fields["cache_salt"] = request.cache_salt
    if workload.ignore_eos:
        fields["ignore_eos"] = True
    if workload.chat_template_kwargs:
        fields["chat_template_kwargs"] = dict(workload.chat_template_kwargs)
    return fields | {
        "model": model,
        "messages": [dict(message) for message in request.prompt.messages],
        "max_tokens": workload.max_tokens,
        "temperature": workload.sampling.temperature,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoop:
    """Sends a pass and times it."""

    idle_timeout_s: float = 300.0
    """A request that gets no byte for this long has failed, and so have those not yet sent."""

    def run(
        self, server: Server, workload: Workload, requests: Sequence[Request], concurrency: int
    ) -> LoadResult:
        """One pass; never raises for what the server does: a failed request is a sample."""
        if not requests or concurrency < 1:
            raise ValueError(
                "a pass needs a request and a stream, got "
                f"{len(requests)} requests at concurrency {concurrency}"
            )
        address = Address.parse(server.base_url)
        posts = [address.post(PATH, body(server.model, workload, r)) for r in requests]
        streams = min(concurrency, len(posts))
        connections = [Connection(address, self.idle_timeout_s) for _ in range(streams)]
        with _no_garbage_collection():
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
                self.replies[index] = _not_sent()
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
        watch = _LagWatch()
        await asyncio.gather(*(queue.drain(c) for c in connections))
        lag = watch.stop()
    finally:
        for connection in connections:
            connection.close()
    return [queue.replies[index] for index in range(len(posts))], lag


def _not_sent() -> Reply:
    reply = Reply(time.perf_counter())
    reply.error = "not sent: the server stalled earlier in this pass"
    return reply


class _LagWatch:
    """How late the event loop came to a timer that was due: the delay on any timestamp."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._worst = 0.0
        self._schedule()

    def stop(self) -> float:
        """End watching; the worst lag in seconds, one still under way included."""
        self._handle.cancel()
        self._measure()
        return self._worst

    def _schedule(self) -> None:
        self._due = time.perf_counter() + LAG_PERIOD_S
        self._handle = self._loop.call_later(LAG_PERIOD_S, self._tick)

    def _tick(self) -> None:
        self._measure()
        self._schedule()

    def _measure(self) -> None:
        self._worst = max(self._worst, time.perf_counter() - self._due)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """A full collection of a large process stops every stream for tens of milliseconds."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


PLUGIN: LoadGenerator = ClosedLoop()
