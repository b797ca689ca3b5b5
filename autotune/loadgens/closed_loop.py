"""The load generator: a fixed number of streams, each with one request in flight.

Laws: a stream takes the next request when its last one has ended, so exactly `concurrency` are
in flight until the queue is empty; the turns of a conversation stay on its stream. What can be done
before the first send or after the last byte is done there: the timed window holds sending, reading
and stamping, and the making of later turns, nothing else.
"""

import asyncio
import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from autotune.core.study import JSON, Workload
from autotune.loadgens._conversation import Conversation
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
    form = request.prompt.response_format or workload.response_format
    if form:
        fields["response_format"] = dict(form)
    return fields | {
        "model": workload.lora or model,
        "messages": [dict(message) for message in request.prompt.messages],
        "max_tokens": workload.max_tokens_of(request.prompt),
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
        """One pass; never raises for what the server does: a failed request is a sample.

        A request whose prompt has later turns gives a sample for each of them, after its own.
        """
        if not requests or concurrency < 1:
            raise ValueError(
                "a pass needs a request and a stream, got "
                f"{len(requests)} requests at concurrency {concurrency}"
            )
        address = Address.parse(server.base_url)

        def post(request: Request) -> bytes:
            return address.post(PATH, body(server.model, workload, request))

        talks = [Conversation(request, post) for request in requests]
        streams = min(concurrency, len(talks))
        connections = [Connection(address, self.idle_timeout_s) for _ in range(streams)]
        with _no_garbage_collection():
            return _timed(connections, talks)


def _timed(connections: Sequence[Connection], talks: Sequence[Conversation]) -> LoadResult:
    cpu = time.process_time()
    lag = asyncio.run(_drive(connections, talks))
    turns = [turn for talk in talks for turn in talk.turns]
    origin = min(reply.sent for _, reply in turns)
    return LoadResult(
        samples=tuple(sample(request.prompt, reply, origin) for request, reply in turns),
        duration_s=max(reply.ended for _, reply in turns) - origin,
        client_cpu_s=time.process_time() - cpu,
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
                    talk.give_up("not sent: the server stalled earlier in this pass")
                    break
                reply = await connection.exchange(talk.post)
                self.stalled |= reply.stalled
                talk.heard(reply)


async def _drive(connections: Sequence[Connection], talks: Sequence[Conversation]) -> float:
    """All conversations to their end; gives the worst lag."""
    queue = _Queue(iter(talks))
    try:
        await asyncio.gather(*(connection.open() for connection in connections))
        watch = _LagWatch()
        await asyncio.gather(*(queue.drain(c) for c in connections))
        lag = watch.stop()
    finally:
        for connection in connections:
            connection.close()
    return lag


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
