"""A lean HTTP/1.1 client connection: one POST at a time, every arrival stamped.

Laws: the hot path is read, stamp, find the end. An exchange never raises for what the network or
the server does; the reply carries the error. No proxy is consulted: the address is the server's.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

from autotune.core.jsontype import JSON
from autotune.loadgens._framing import MalformedReplyError, Reply

HEALTH = "/health"
"""What a server answers without its engine (vllm/entrypoints/serve/instrumentator/health.py)."""
GREETING_S = 10.0
"""A server that has not answered a greeting by then is left to the first request."""
KEPT_S = 4.0
"""How long an idle connection is trusted: vLLM closes it after 5 s, maybe under a request that has
just been sent (vllm/envs.py, VLLM_HTTP_TIMEOUT_KEEP_ALIVE)."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens."""

    host: str
    port: int
    prefix: str = ""

    @classmethod
    def parse(cls, base_url: str) -> "Address":
        """From `http://host:port/prefix`; TLS is refused, servers of ours are on loopback."""
        parts = urlsplit(base_url)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"need a base URL of the form http://host:port, got {base_url!r}")
        return cls(parts.hostname, parts.port or 80, parts.path.rstrip("/"))

    def post(self, path: str, body: Mapping[str, JSON]) -> bytes:
        """The whole request as bytes, made before any clock starts."""
        payload = json.dumps(body, separators=(",", ":")).encode()
        length = f"Content-Type: application/json\r\nContent-Length: {len(payload)}\r\n"
        return self._head("POST", path, length) + payload

    def get(self, path: str) -> bytes:
        """The whole request as bytes."""
        return self._head("GET", path)

    def _head(self, method: str, path: str, more: str = "") -> bytes:
        host = f"[{self.host}]" if ":" in self.host else self.host
        first = f"{method} {self.prefix}{path} HTTP/1.1\r\n"
        return f"{first}Host: {host}:{self.port}\r\nAccept: */*\r\n{more}\r\n".encode()


class _Wire(asyncio.Protocol):
    """Stamps what arrives and hands it to the reply in progress."""

    def __init__(self, idle_timeout_s: float) -> None:
        self._idle_timeout_s = idle_timeout_s
        self._last_byte = 0.0
        self._reply: Reply | None = None
        self._done: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._watch: asyncio.TimerHandle | None = None

    @property
    def connected(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def idle_s(self) -> float:
        return time.perf_counter() - self._last_byte

    async def exchange(self, request: bytes) -> Reply:
        """Send, and return when no more of the reply will come."""
        if self._transport is None:
            raise RuntimeError("exchange before the connection was made")
        self._done = asyncio.get_running_loop().create_future()
        self._last_byte = time.perf_counter()
        reply = self._reply = Reply(self._last_byte)
        self._transport.write(request)
        await self._done
        return reply

    def close(self, why: str = "closed by the client") -> None:
        """Close at once and give up the reply in progress."""
        if self._watch is not None:
            self._watch.cancel()
        if self._transport is not None:
            self._transport.abort()
        self._finish(why)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._last_byte = time.perf_counter()
        self._check_idle()

    def data_received(self, data: bytes) -> None:
        now = self._last_byte = time.perf_counter()
        if self._reply is None:
            self.close()
            return
        try:
            if self._reply.feed(now, data):
                self._finish(None)
        except MalformedReplyError as error:
            self.close(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        if self._reply is not None:
            self._reply.end_of_stream()
            because = f" ({exc})" if exc else ""
            self._finish(f"connection closed before the reply was complete{because}")

    def _finish(self, error: str | None) -> None:
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.error = None if reply.complete else error
            reply.ended = self._last_byte if reply.complete else time.perf_counter()
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    def _check_idle(self) -> None:
        """One timer for the connection's life: it is moved when it fires, not at every byte."""
        left = self._last_byte + self._idle_timeout_s - time.perf_counter()
        if self._reply is None:
            left = self._idle_timeout_s
        if left > 0:
            self._watch = asyncio.get_running_loop().call_later(left, self._check_idle)
        elif self._reply is not None:
            self._reply.stalled = True
            self.close(f"timeout: no byte for {self._idle_timeout_s:g} s")


class Connection:
    """One stream's connection: opened when needed, reused while the server keeps it."""

    def __init__(self, address: Address, idle_timeout_s: float, kept_s: float = KEPT_S) -> None:
        self._address = address
        self._idle_timeout_s = idle_timeout_s
        self._kept_s = kept_s
        self._wire: _Wire | None = None

    async def greet(self) -> None:
        """Have the server answer once on this connection, before any request is timed.

        The kernel completes a connection long before the server accepts it, which takes a busy
        event loop some 50 us each: what is sent in between waits, and would count as TTFT.
        """
        await self.open()
        if self._wire is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GREETING_S):
                reply = await self._wire.exchange(self._address.get(HEALTH))
                if reply.complete and reply.keep_alive:
                    return
        self.close()

    async def open(self) -> str | None:
        """Connect unless connected; the error as text."""
        if self._wire and self._wire.connected and self._wire.idle_s < self._kept_s:
            return None
        self.close()
        loop = asyncio.get_running_loop()
        where = self._address.host, self._address.port
        try:
            async with asyncio.timeout(self._idle_timeout_s):
                _, self._wire = await loop.create_connection(self._new_wire, *where)
        except TimeoutError:
            return f"no connection within {self._idle_timeout_s:g} s"
        except OSError as error:
            return f"no connection: {error}"
        return None

    async def exchange(self, request: bytes) -> Reply:
        """Send one request and await its reply, or what there was of it."""
        asked = time.perf_counter()
        error = await self.open()
        if self._wire is None:
            reply = Reply(asked)
            reply.ended, reply.error = time.perf_counter(), error
            reply.stalled = reply.ended - asked >= self._idle_timeout_s
            return reply
        reply = await self._wire.exchange(request)
        if not reply.keep_alive:
            self.close()
        return reply

    def close(self) -> None:
        """Close at once; nothing is owed to the server."""
        if self._wire is not None:
            self._wire.close()
        self._wire = None

    def _new_wire(self) -> _Wire:
        return _Wire(self._idle_timeout_s)
