"""The endpoints: wire.py checks what comes in, the engine does it, and it goes out as it comes.

Rule: nothing is decided here but which endpoint a request is for; the faults of the wire are
injected here, and only here.
"""

import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from http import HTTPStatus
from itertools import count
from typing import Any

from autotune.engines.simulated_server.engine import Engine
from autotune.engines.simulated_server.http11 import HttpRequest, HttpResponse
from autotune.engines.simulated_server.launch import Launch
from autotune.engines.simulated_server.log import VERSION, say
from autotune.engines.simulated_server.metrics import Metrics
from autotune.engines.simulated_server.model import unit
from autotune.engines.simulated_server.request import Output, Request, make_request
from autotune.engines.simulated_server.wire import (
    DEAD,
    INTERNAL,
    Ask,
    Reply,
    RequestError,
    read_ask,
    read_object,
    tokenize,
)

Endpoint = Callable[[bytes], Awaitable[HttpResponse]]


class Api:
    """The endpoints of one launch."""

    def __init__(self, launch: Launch, engine: Engine, metrics: Metrics) -> None:
        self._launch = launch
        self._engine = engine
        self._metrics = metrics
        self._numbers = count(1)
        self._created = int(time.time())
        self._endpoints: dict[str, tuple[str, Endpoint]] = {
            "/health": ("GET", self._health),
            "/ping": ("GET", self._health),
            "/version": ("GET", self._version),
            "/metrics": ("GET", self._prometheus),
            "/v1/models": ("GET", self._models),
            "/tokenize": ("POST", self._tokenize),
            "/v1/chat/completions": ("POST", self._chat),
            "/v1/completions": ("POST", self._completions),
        }

    async def respond(self, request: HttpRequest) -> HttpResponse:
        """Answer, and log it as uvicorn does."""
        response = await self._route(request)
        phrase = HTTPStatus(response.status).phrase
        asked = f'"{request.method} {request.path} HTTP/1.1"'
        say(f"INFO:     {request.client} - {asked} {response.status} {phrase}")
        return response

    async def _route(self, request: HttpRequest) -> HttpResponse:
        method, endpoint = self._endpoints.get(request.path, ("", None))
        if endpoint is None:
            return _json({"detail": "Not Found"}, 404)
        if method != request.method:
            return _json({"detail": "Method Not Allowed"}, 405)
        try:
            return await endpoint(request.body)
        except RequestError as error:
            return _json(error.body, error.status)

    async def _health(self, body: bytes) -> HttpResponse:
        ill = self._launch.fault("never_healthy_but_listening") is not None
        return HttpResponse(status=503 if ill or self._engine.dead else 200)

    async def _version(self, body: bytes) -> HttpResponse:
        return _json({"version": f"{VERSION}+simulated"})

    async def _prometheus(self, body: bytes) -> HttpResponse:
        return HttpResponse(
            body=self._metrics.render().encode(),
            content_type="text/plain; version=1.0.0; charset=utf-8",
        )

    async def _models(self, body: bytes) -> HttpResponse:
        options = self._launch.options
        cards = [
            {
                "id": name,
                "object": "model",
                "created": self._created,
                "owned_by": "vllm",
                "root": options.model,
                "parent": None,
                "max_model_len": options.max_model_len,
            }
            for name in options.served_model_names
        ]
        return _json({"object": "list", "data": cards})

    async def _tokenize(self, body: bytes) -> HttpResponse:
        words = tokenize(str(read_object(body).get("prompt", "")))
        tokens = [int(unit("token", word) * 2**15) for word in words]
        limit = self._launch.options.max_model_len
        return _json({"count": len(tokens), "max_model_len": limit, "tokens": tokens})

    async def _chat(self, body: bytes) -> HttpResponse:
        return await self._generate(body, chat=True)

    async def _completions(self, body: bytes) -> HttpResponse:
        return await self._generate(body, chat=False)

    async def _generate(self, body: bytes, *, chat: bool) -> HttpResponse:
        number = next(self._numbers)
        ask = read_ask(body, self._launch, chat=chat)
        if self._engine.dead:
            raise DEAD
        if self._strikes("http_500_rate", number):
            raise INTERNAL
        job = make_request(ask, self._launch, number)
        reply = Reply(
            ident=f"{'chatcmpl' if chat else 'cmpl'}-{number:016x}",
            chat=chat,
            model=self._launch.options.served_model_name,
            prompt_tokens=job.prompt_tokens,
        )
        if ask.stream:
            events = self._events(self._chunks(ask, reply, job, number), job)
            return HttpResponse(body=events, content_type="text/event-stream; charset=utf-8")
        return await self._whole(reply, job)

    def _strikes(self, fault: str, number: int) -> bool:
        rate = self._launch.fault(fault)
        return rate is not None and unit(self._launch.world.seed, fault, number) < rate

    def _told(self, tokens: int) -> int:
        """The number of tokens that `usage` tells; the truth, but for one fault."""
        wrong = self._launch.fault("wrong_usage")
        return tokens if wrong is None else tokens + int(wrong or max(1, tokens // 10))

    async def _whole(self, reply: Reply, job: Request) -> HttpResponse:
        texts, reason = [], "stop"
        try:
            async for output in self._outputs(job):
                texts.append(output.text)
                reason = output.finish_reason or reason
        finally:
            self._engine.abort(job)
        return _json(reply.whole("".join(texts), reason, self._told(job.produced)))

    async def _events(
        self, chunks: AsyncIterator[dict[str, Any]], job: Request
    ) -> AsyncGenerator[bytes, None]:
        """Server-sent events; an error after the first one can only be told in band."""
        try:
            async for chunk in chunks:
                yield _event(chunk)
        except RequestError as error:
            yield _event(error.body)
        finally:
            self._engine.abort(job)
        yield b"data: [DONE]\n\n"

    async def _chunks(
        self, ask: Ask, reply: Reply, job: Request, number: int
    ) -> AsyncIterator[dict[str, Any]]:
        tokens = 0
        async for output in self._outputs(job):
            if tokens == 0 and ask.chat:
                yield self._with_usage(ask, reply, reply.role(), 0)
            tokens += output.tokens
            piece = reply.piece(output.text, output.finish_reason)
            yield self._with_usage(ask, reply, piece, tokens)
            if self._strikes("in_band_error_rate", number):
                raise INTERNAL
        if ask.include_usage:
            yield reply.last(self._told(tokens))

    def _with_usage(
        self, ask: Ask, reply: Reply, chunk: dict[str, Any], tokens: int
    ) -> dict[str, Any]:
        if not ask.continuous_usage:
            return chunk
        return {**chunk, "usage": reply.usage(self._told(tokens) if tokens else 0)}

    async def _outputs(self, job: Request) -> AsyncIterator[Output]:
        self._engine.submit(job)
        while True:
            output = await job.outputs.get()
            if output is None:
                raise DEAD
            yield output
            if output.finish_reason is not None:
                return


def _event(chunk: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def _json(value: Mapping[str, Any], status: int = 200) -> HttpResponse:
    return HttpResponse(status=status, body=json.dumps(value).encode())
