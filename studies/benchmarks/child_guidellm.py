"""guidellm's client: its OpenAI backend on uvloop, streams kept full, in one process.

guidellm itself always runs two, a scheduler and a worker that exchange every request: what is
measured here is the worker's part alone, the cheapest way to use it. Its best settings: the `perf`
extra (orjson), HTTP/1.1, no health check.
"""

import asyncio
from collections.abc import Iterator
from importlib.metadata import version

import uvloop
from bench_child import Meter, Outcome, Task
from guidellm.backends.openai.http import OpenAIHTTPBackend
from guidellm.schemas import GenerationRequest, GenerationResponse, RequestInfo
from guidellm.schemas.backends import OpenAIHTTPBackendArgs

Reply = tuple[GenerationResponse, RequestInfo]


def main() -> None:
    """Warm up, then measure."""
    task = Task.take()
    uvloop.run(_measure(task)).give()


async def _measure(task: Task) -> Outcome:
    arguments = OpenAIHTTPBackendArgs(
        target=task.base_url,
        model=task.model,
        http2=False,
        validate_backend=False,
        max_tokens=task.tokens,
    )
    backend = OpenAIHTTPBackend(arguments)
    await backend.process_startup()
    texts = task.prompts()
    await _load(backend, texts[: task.warmup], task.streams)
    meter = Meter(task)
    replies = await _load(backend, texts, task.streams)
    reading = meter.read()
    await backend.process_shutdown()
    return Outcome(
        reading=reading,
        version=version("guidellm"),
        tokens=sum(reply.output_metrics.text_tokens or 0 for reply, _ in replies),
        chunks=sum(int(info.timings.token_iterations) for _, info in replies),
        faults=[str(info.error) for _, info in replies if info.error],
    )


async def _load(backend: OpenAIHTTPBackend, texts: list[str], streams: int) -> list[Reply]:
    waiting, replies = iter(texts), list[Reply]()
    await asyncio.gather(*(_stream(backend, waiting, replies) for _ in range(streams)))
    return replies


async def _stream(backend: OpenAIHTTPBackend, waiting: Iterator[str], replies: list[Reply]) -> None:
    for text in waiting:
        request = GenerationRequest(columns={"text_column": [text]})
        info = RequestInfo(request_id=request.request_id)
        async for reply, told in backend.resolve(request, info):
            if reply is not None:
                replies.append((reply, told))


if __name__ == "__main__":
    main()
