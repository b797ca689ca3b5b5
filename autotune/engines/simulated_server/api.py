"""The HTTP endpoints over aiohttp.

Rule: nothing is decided here: bytes go in to wire.py, a job to the engine, and what the
engine gives comes out as it comes. Faults of the wire are injected here, and only here.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from typing import Any

from aiohttp import web

from autotune.engines.simulated_server.engine import Engine
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
    tokenize,
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Api:
    """The endpoints of one launch."""

    def __init__(self, launch: Launch, engine: Engine, metrics: Metrics) -> None:
        self._launch = launch
        self._engine = engine
        self._metrics = metrics
        self._numbers = count(1)
        self._created = int(time.time())

    def application(self) -> web.Application:
        """The routes."""
        app = web.Application(middlewares=[_access_log], client_max_size=2**26)
        app.add_routes(
            [
                web.get("/health", self._health),
                web.get("/ping", self._health),
                web.get("/version", self._version),
                web.get("/metrics", self._prometheus),
                web.get("/v1/models", self._models),
                web.post("/tokenize", self._tokenize),
                web.post("/v1/chat/completions", self._chat),
                web.post("/v1/completions", self._completions),
            ]
        )
        return app

    async def _health(self, request: web.Request) -> web.Response:
        ill = self._launch.fault("never_healthy_but_listening") is not None
        return web.Response(status=503 if ill or self._engine.dead else 200)

    async def _version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": f"{VERSION}+simulated"})

    async def _prometheus(self, request: web.Request) -> web.Response:
        kind = "text/plain; version=1.0.0; charset=utf-8"
        return web.Response(body=self._metrics.render().encode(), headers={"Content-Type": kind})

    async def _models(self, request: web.Request) -> web.Response:
        options = self._launch.options
        card = {
            "id": options.served_model_name,
            "object": "model",
            "created": self._created,
            "owned_by": "vllm",
            "root": options.model,
            "parent": None,
            "max_model_len": options.max_model_len,
        }
        return web.json_response({"object": "list", "data": [card]})

    async def _tokenize(self, request: web.Request) -> web.Response:
        text = str((await request.json()).get("prompt", ""))
        tokens = [int(unit("token", token) * 2**15) for token in tokenize(text)]
        limit = self._launch.options.max_model_len
        return web.json_response({"count": len(tokens), "max_model_len": limit, "tokens": tokens})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, chat=True)

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, chat=False)

    async def _generate(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        number = next(self._numbers)
        try:
            ask = read_ask(await request.read(), self._launch, chat=chat)
            if self._engine.dead:
                raise DEAD
            if self._strikes("http_500_rate", number):
                raise INTERNAL
            job = make_request(ask, self._launch, number)
            self._engine.submit(job)
            try:
                return await self._answer(request, ask, job, number)
            finally:
                self._engine.abort(job)
        except RequestError as error:
            return web.json_response(error.body, status=error.status)

    def _strikes(self, fault: str, number: int) -> bool:
        rate = self._launch.fault(fault)
        return rate is not None and unit(self._launch.world.seed, fault, number) < rate

    async def _answer(
        self, request: web.Request, ask: Ask, job: Request, number: int
    ) -> web.StreamResponse:
        prefix = "chatcmpl" if ask.chat else "cmpl"
        reply = Reply(
            ident=f"{prefix}-{number:016x}",
            chat=ask.chat,
            model=self._launch.options.served_model_name,
            prompt_tokens=job.prompt_tokens,
        )
        if ask.stream:
            return await self._stream(request, ask, self._chunks(ask, reply, job, number))
        texts, tokens, reason = [], 0, "stop"
        async for output in _outputs(job):
            texts.append(output.text)
            tokens += output.tokens
            reason = output.finish_reason or reason
        return web.json_response(reply.whole("".join(texts), reason, self._told(tokens)))

    def _told(self, tokens: int) -> int:
        """The number of tokens that `usage` tells; the truth, but for one fault."""
        wrong = self._launch.fault("wrong_usage")
        return tokens if wrong is None else tokens + int(wrong or max(1, tokens // 10))

    async def _stream(
        self, request: web.Request, ask: Ask, chunks: AsyncIterator[dict[str, Any]]
    ) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_type = "text/event-stream"
        response.charset = "utf-8"
        await response.prepare(request)
        try:
            async for chunk in chunks:
                await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        except RequestError as error:
            await response.write(b"data: " + json.dumps(error.body).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _chunks(
        self, ask: Ask, reply: Reply, job: Request, number: int
    ) -> AsyncIterator[dict[str, Any]]:
        tokens = 0
        async for output in _outputs(job):
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


async def _outputs(job: Request) -> AsyncIterator[Output]:
    while True:
        output = await job.outputs.get()
        if output is None:
            raise DEAD
        yield output
        if output.finish_reason is not None:
            return


@web.middleware
async def _access_log(request: web.Request, handler: Handler) -> web.StreamResponse:
    response = await handler(request)
    peer = request.transport.get_extra_info("peername") if request.transport else None
    host, port = peer[:2] if peer else ("-", 0)
    line = f'"{request.method} {request.path_qs} HTTP/1.1" {response.status} {response.reason}'
    say(f"INFO:     {host}:{port} - {line}")
    return response


async def serve(application: web.Application, site_socket: Any) -> web.AppRunner:  # noqa: ANN401
    """Listen on a bound socket; the caller cleans the runner up."""
    runner = web.AppRunner(
        application, access_log=None, handler_cancellation=True, shutdown_timeout=0.2
    )
    await runner.setup()
    await web.SockSite(runner, site_socket).start()
    await asyncio.sleep(0)
    return runner
