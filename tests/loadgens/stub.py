"""A real HTTP server that answers as scripted: bytes to send, seconds to wait, None to hang up."""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

Step = bytes | float | None
Script = Callable[[int], Iterable[Step]]
"""What to do for the n-th request."""

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"


def event(data: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def framed(data: bytes) -> bytes:
    """One chunk of the chunked transfer encoding."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def usage(tokens: int) -> dict[str, int]:
    """A usage object for a prompt of 7 tokens."""
    return {"prompt_tokens": 7, "completion_tokens": tokens, "total_tokens": 7 + tokens}


def delta(text: str, tokens: int, finish: str | None = None, **more: Any) -> bytes:  # noqa: ANN401
    """A chunk after which `tokens` tokens have been generated."""
    choice = {"index": 0, "delta": {"content": text} | more, "finish_reason": finish}
    return event({"choices": [choice], "usage": usage(tokens)})


def final_usage(tokens: int) -> bytes:
    """The chunk without choices that carries the totals."""
    return event({"choices": [], "usage": usage(tokens)})


ROLE = delta("", 0, role="assistant")


def reply(running: Iterable[int] = (1, 2, 3, 4), pace_s: float = 0.0) -> Iterator[Step]:
    """A whole reply; `running` is the usage after each chunk."""
    totals = list(running)
    yield HEAD + framed(ROLE)
    for total in totals:
        yield pace_s
        yield framed(delta(f" w{total}", total, "length" if total == totals[-1] else None))
    yield framed(final_usage(totals[-1])) + framed(DONE) + LAST_CHUNK


def plain(status: int, body: bytes, **headers: str) -> bytes:
    """A reply with a content-length."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\n{lines}\r\n"
    return head.encode() + body


def error_body(message: str) -> bytes:
    """What the server says when it refuses."""
    return json.dumps({"error": {"message": message, "code": 400}}).encode()


def usage_body(tokens: int) -> bytes:
    """A whole completion, not streamed."""
    return json.dumps({"choices": [{"text": "x"}], "usage": usage(tokens)}).encode()


@dataclass
class Seen:
    """What the server saw."""

    base_url: str
    bodies: list[dict[str, Any]] = field(default_factory=list)
    heads: list[bytes] = field(default_factory=list)
    connections: int = 0
    open: int = 0
    in_flight: list[int] = field(default_factory=list)
    """Requests in flight just after each one came."""
    greetings: int = 0
    """GETs that came."""
    answered: int = 0
    """GETs that were answered."""
    answered_before: list[int] = field(default_factory=list)
    """GETs that had been answered when each request came."""
    remaining: list[int] = field(default_factory=list)
    """Requests in flight just after each one ended."""
    now: int = 0

    @contextmanager
    def greeting(self) -> Iterator[int]:
        """Count a GET in, and out when it was answered; gives its number."""
        self.greetings += 1
        yield self.greetings - 1
        self.answered += 1

    @asynccontextmanager
    async def request(self, head: bytes, body: bytes) -> AsyncIterator[int]:
        """Count a request in and out; gives its number."""
        index = len(self.bodies)
        self.heads.append(head)
        self.bodies.append(json.loads(body))
        self.now += 1
        self.in_flight.append(self.now)
        self.answered_before.append(self.answered)
        try:
            yield index
        finally:
            self.now -= 1
            self.remaining.append(self.now)


def welcome(index: int) -> Iterable[Step]:
    """Every GET is answered at once."""
    return [plain(200, b"")]


@contextmanager
def stub(script: Script, greeting: Script = welcome) -> Iterator[Seen]:
    """Serve the script of POST and that of GET on a free port of loopback, in a thread."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    seen = Seen(f"http://127.0.0.1:{listener.getsockname()[1]}")
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    served = _serve(listener, (script, greeting), seen, stop)
    thread = threading.Thread(target=loop.run_until_complete, args=(served,))
    thread.start()
    try:
        yield seen
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


async def _serve(
    listener: socket.socket, scripts: tuple[Script, Script], seen: Seen, stop: asyncio.Event
) -> None:
    talks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.connections += 1
        task = asyncio.ensure_future(_talk(reader, writer, *scripts, seen))
        talks.add(task)
        task.add_done_callback(talks.discard)

    server = await asyncio.start_server(accept, sock=listener)
    await stop.wait()
    server.close()
    for task in talks:
        task.cancel()
    await asyncio.gather(*talks, return_exceptions=True)
    await asyncio.sleep(0)


async def _talk(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    script: Script,
    greeting: Script,
    seen: Seen,
) -> None:
    seen.open += 1
    try:
        going = True
        while going:
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"GET /health "):
                with seen.greeting() as index:
                    going = await _play(writer, greeting(index))
                continue
            lines = head.lower().split(b"\r\n")
            length = next(x for x in lines if x.startswith(b"content-length:"))
            body = await reader.readexactly(int(length.partition(b":")[2]))
            async with seen.request(head, body) as index:
                going = await _play(writer, script(index))
    except (asyncio.IncompleteReadError, ConnectionError):
        return
    finally:
        seen.open -= 1
        writer.transport.abort()


async def _play(writer: asyncio.StreamWriter, steps: Iterable[Step]) -> bool:
    """Do what the script says; False when it hung up."""
    for step in steps:
        if step is None:
            writer.close()
            await writer.wait_closed()
            return False
        if isinstance(step, bytes):
            writer.write(step)
            await writer.drain()
        else:
            await asyncio.sleep(step)
    return True
