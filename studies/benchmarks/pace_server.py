"""A server that streams at a fixed pace, so cheaply that the client is what gets measured.

    python studies/benchmarks/pace_server.py --rate 50 --cpu 1 [--ttft-ms 100]

It answers POST /v1/chat/completions in vLLM's wire format: the role chunk, one content chunk per
token, the chunk with the final usage, [DONE]; with running usage if `continuous_usage_stats` asks
for it. Law: the bytes of a reply are made once per length, so a token costs one timer and one
write. GET /records tells, per request, when its first byte was read and when its first token was
written, on CLOCK_MONOTONIC, which all processes of a host share; asking forgets them.
"""

import argparse
import asyncio
import functools
import json
import os
import socket
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, cast

MODEL = "pace"
PROMPT_TOKENS = 16
_IDENT = "chatcmpl-" + "0" * 16
_GOLDEN = 0.618034
_HEAD_END = b"\r\n\r\n"
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ndate: Thu, 01 Jan 2026 00:00:00 GMT\r\nserver: uvicorn\r\n"
    b"content-type: text/event-stream; charset=utf-8\r\nx-accel-buffering: no\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)


@functools.cache
def reply(tokens: int, *, running: bool) -> tuple[bytes, ...]:
    """The writes of a reply: head and role, then a chunk per token, the last with the end."""
    texts = ("", *(f" word{n % 10}" for n in range(tokens)))
    chunks = [_framed(_chunk(n, tokens, text, running=running)) for n, text in enumerate(texts)]
    final = _framed(_json(_head() | {"choices": [], "usage": _usage(tokens)}))
    end = final + _framed(b"[DONE]") + b"0\r\n\r\n"
    return (_STREAM_HEAD + chunks[0], *chunks[1:-1], chunks[-1] + end)


def _head() -> dict[str, Any]:
    created = 1_767_225_600
    return {"id": _IDENT, "object": "chat.completion.chunk", "created": created, "model": MODEL}


def _chunk(number: int, tokens: int, text: str, *, running: bool) -> bytes:
    reason = "length" if number == tokens else None
    delta = {"content": text} if number else {"role": "assistant", "content": ""}
    choice: dict[str, Any] = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
    if number:
        choice |= {"stop_reason": None} if reason else {}
        choice["token_ids"] = None
    usage = {"usage": _usage(number)} if running else {}
    return _json(_head() | {"choices": [choice]} | usage)


def _usage(tokens: int) -> dict[str, int]:
    total = PROMPT_TOKENS + tokens
    return {"prompt_tokens": PROMPT_TOKENS, "total_tokens": total, "completion_tokens": tokens}


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _framed(data: bytes) -> bytes:
    event = b"data: " + data + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(event), event)


@dataclass(slots=True)
class Record:
    """One request on the server's clock, in seconds."""

    prompt: str
    arrived: float
    first_token: float = 0.0


@dataclass(slots=True)
class Pace:
    """What all connections share."""

    period_s: float
    ttft_s: float | None = None
    """Of every request; None: from one to two periods, the streams out of step."""
    records: list[Record] = field(default_factory=list)
    asked: int = 0

    def first_token_s(self) -> float:
        """When a request's first token comes: streams in lockstep would be too easy.

        A client that finds many chunks waiting reads them for one wake-up.
        """
        if self.ttft_s is not None:
            return self.ttft_s
        self.asked += 1
        return self.period_s * (1 + self.asked * _GOLDEN % 1.0)


class Connection(asyncio.Protocol):
    """One client connection, one request at a time."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._loop = asyncio.get_running_loop()
        self._held = b""
        self._began = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        if not self._held:
            self._began = time.monotonic()
        self._held += data
        head, found, body = self._held.partition(_HEAD_END)
        if not found or len(body) < _content_length(head):
            return
        self._held = b""
        method, path, _ = head.split(b" ", 2)
        if method == b"POST" and path == b"/v1/chat/completions":
            self._generate(json.loads(body))
        else:
            self._answer(path)

    def _generate(self, ask: dict[str, Any]) -> None:
        tokens = ask.get("max_completion_tokens") or ask.get("max_tokens") or 16
        running = bool((ask.get("stream_options") or {}).get("continuous_usage_stats"))
        self._record = Record(_text(ask["messages"][-1]["content"]), self._began)
        self._pace.records.append(self._record)
        self._writes = deque(reply(tokens, running=running))
        self._due = self._loop.time() + self._pace.first_token_s()
        self._timer = self._loop.call_at(self._due, self._first)

    def _first(self) -> None:
        """The role's chunk and the first token's, which vLLM sends at the end of the prefill."""
        self._transport.write(self._writes.popleft())
        self._record.first_token = time.monotonic()
        self._next()

    def _next(self) -> None:
        self._transport.write(self._writes.popleft())
        if not self._writes:
            return
        self._due += self._pace.period_s
        self._timer = self._loop.call_at(self._due, self._next)

    def _answer(self, path: bytes) -> None:
        """The other endpoints: what clients ask before they begin, and our own."""
        known = {b"/health": b"", b"/v1/models": _json({"data": [{"id": MODEL}]})}
        if path == b"/records":
            known[path] = self._records()
        status = b"200 OK" if path in known else b"404 Not Found"
        body = known.get(path, b"")
        head = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        self._transport.write(head % (status, len(body)) + body)

    def _records(self) -> bytes:
        records, self._pace.records = self._pace.records, []
        return json.dumps([[r.prompt, r.arrived, r.first_token] for r in records]).encode()


def _content_length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


def _text(content: Any) -> str:  # noqa: ANN401 - foreign JSON
    """A message's text, plain or in parts."""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


async def serve(pace: Pace) -> None:
    """Listen on a free port of loopback, print it, and go on until killed."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(pace), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    """Pin to a core and serve."""
    parser = argparse.ArgumentParser(description="a server that streams at a fixed pace")
    parser.add_argument("--rate", type=float, default=50.0, help="tokens per second and stream")
    parser.add_argument("--ttft-ms", type=float, help="of every request; else by the rate")
    parser.add_argument("--cpu", type=int, help="the core to stay on")
    args = parser.parse_args()
    if args.cpu is not None:
        os.sched_setaffinity(0, {args.cpu})
    asyncio.run(serve(Pace(1 / args.rate, args.ttft_ms and args.ttft_ms / 1e3)))


if __name__ == "__main__":
    main()
