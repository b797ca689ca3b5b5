"""The little of HTTP/1.1 that vLLM's clients use, over asyncio's streams.

Rule: one request at a time per connection, kept alive; a body comes with Content-Length, an answer
goes out whole or chunked. A client that leaves cancels what is being done for it. (A web framework
takes half a second of CPU to import, and tests start servers by the hundred.)
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus

_GONE = (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, ValueError)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """What a client asks."""

    method: str
    path: str
    body: bytes
    keep_alive: bool
    client: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpResponse:
    """What it gets; a generator is sent in chunks, and closed when the client leaves."""

    status: int = 200
    body: bytes | AsyncGenerator[bytes, None] = b""
    content_type: str = "application/json"


Responder = Callable[[HttpRequest], Awaitable[HttpResponse]]


class _Connection(asyncio.StreamReaderProtocol):
    def __init__(self, respond: Responder) -> None:
        super().__init__(asyncio.StreamReader(), self._serve)
        self._respond = respond
        self._serving: asyncio.Task[None] | None = None

    def eof_received(self) -> bool:
        super().eof_received()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._serving:
            self._serving.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving = asyncio.current_task()
        host, port = writer.get_extra_info("peername")[:2]
        try:
            with contextlib.suppress(*_GONE):
                keep_alive = True
                while keep_alive:
                    request = await _read(reader, writer, f"{host}:{port}")
                    await _write(writer, await self._respond(request))
                    keep_alive = request.keep_alive
        finally:
            self._serving = None
            writer.close()


async def listen(bound: socket.socket, respond: Responder) -> asyncio.Server:
    """Serve on a bound socket until the returned server is closed."""
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: _Connection(respond), sock=bound, backlog=2048)


async def _read(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client: str
) -> HttpRequest:
    first, *rest = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, version = first.split(" ")
    pairs = (line.split(":", 1) for line in rest if line)
    headers = {name.lower(): value.strip() for name, value in pairs}
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    return HttpRequest(
        method=method,
        path=path.partition("?")[0],
        body=await reader.readexactly(int(headers.get("content-length", "0"))),
        keep_alive=version == "HTTP/1.1" and headers.get("connection", "").lower() != "close",
        client=client,
    )


async def _write(writer: asyncio.StreamWriter, response: HttpResponse) -> None:
    head = f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}\r\n"
    head += f"content-type: {response.content_type}\r\n"
    if isinstance(response.body, bytes):
        head += f"content-length: {len(response.body)}\r\n\r\n"
        writer.write(head.encode() + response.body)
        await writer.drain()
        return
    async with contextlib.aclosing(response.body) as pieces:
        writer.write(head.encode() + b"transfer-encoding: chunked\r\n\r\n")
        async for piece in pieces:
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
