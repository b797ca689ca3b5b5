"""Before the clock: the server has taken every connection when the first request is sent."""

import asyncio

import pytest

from autotune.loadgens._http import Address, Connection
from autotune.loadgens.open_loop import OpenLoop
from autotune.ports import Arrivals, Request
from tests.loadgens.passes import PROMPTS, WORKLOAD, StubServer, errors, load
from tests.loadgens.stub import Seen, Step, plain, reply, stub, welcome


def slowly(index: int) -> list[Step]:
    """A server that takes its connections one after the other."""
    return [0.03 * index, plain(200, b"")]


def test_no_request_is_sent_before_every_connection_was_taken() -> None:
    """A request in the socket of a server that is still accepting would wait within its TTFT."""
    with stub(lambda index: reply((1,)), slowly) as seen:
        result = load(seen, count=12, concurrency=6)
    assert errors(result) == [None] * 12
    assert seen.answered_before == [6] * 12
    assert seen.connections == 6


def test_arrivals_begin_when_every_slot_was_taken() -> None:
    """The open loop's clock, too, starts after the greetings."""
    requests = [Request(prompt=prompt, cache_salt="salt") for prompt in PROMPTS[:8]]
    arrivals = Arrivals(request_rate=1000.0, seed="a")
    with stub(lambda index: reply((1,)), slowly) as seen:
        server = StubServer(seen.base_url)
        result = OpenLoop(idle_timeout_s=0.5).run(server, WORKLOAD, requests, 4, arrivals)
    assert errors(result) == [None] * 8
    assert seen.answered_before == [4] * 8


def test_all_streams_start_together() -> None:
    """No stream waits for a reply to another one: all first requests are sent at once."""
    with stub(lambda index: reply((1, 2), 0.1), slowly) as seen:
        result = load(seen, count=6, concurrency=6)
    first = min(sample.first_token_s or 0.0 for sample in result.samples)
    assert max(sample.sent_s for sample in result.samples) < first
    assert seen.in_flight[-1] == 6


@pytest.mark.parametrize(
    "steps",
    [
        [plain(404, b"no such thing")],
        [plain(503, b"")],
        [plain(200, b"", connection="close"), None],
        [None],
        [b"SSH-2.0\r\n\r\n"],
        [30.0],
    ],
    ids=["unknown", "unhealthy", "closing", "hanging up", "no HTTP", "silent"],
)
def test_a_greeting_that_fails_costs_no_request(steps: list[Step]) -> None:
    """What the server has to say about requests, it says to requests."""
    with stub(lambda index: reply(), lambda index: steps) as seen:
        assert errors(load(seen, count=4, concurrency=2)) == [None] * 4
    assert seen.greetings == 2


@pytest.mark.parametrize(("kept_s", "connections"), [(60.0, 1), (0.0, 3)])
def test_a_connection_idle_for_long_is_not_trusted(kept_s: float, connections: int) -> None:
    """The server may be closing it at this moment, and the request would fail for nothing."""
    with stub(lambda index: reply((1,)), welcome) as seen:
        assert asyncio.run(_twice(seen, kept_s)) == [True, True]
    assert seen.connections == connections


async def _twice(seen: Seen, kept_s: float) -> list[bool]:
    """A greeting and two exchanges on one connection; whether the replies came whole."""
    address = Address.parse(seen.base_url)
    connection = Connection(address, 0.5, kept_s)
    await connection.greet()
    post = address.post("/v1/chat/completions", {})
    replies = [await connection.exchange(post) for _ in range(2)]
    connection.close()
    return [one.complete for one in replies]
