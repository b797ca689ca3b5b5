"""What one reply of /v1/chat/completions said: tokens, times, text, or why it does not count.

Laws: tokens come from the running usage, never from the number of chunks; a reply without its end
is a failure; what the server says of an error is kept, what it quotes of a prompt is not.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json

from autotune.core.texts import asks_for_json
from autotune.core.workload import Prompt
from autotune.loadgens._framing import Reply
from autotune.loadgens._sse import events
from autotune.ports import RequestSample

HTTP_OK = 200
_MESSAGE_LENGTH = 300
_DONE = b"[DONE]"
_QUOTED_INPUT = "'input':"


@dataclass(slots=True)
class _Told:
    """What the chunks read so far add up to."""

    prompt_tokens: int = 0
    output_tokens: int = 0
    finish_reason: str | None = None
    error: str | None = None
    text: list[str] = field(default_factory=list)
    content: list[str] = field(default_factory=list)
    """The text without its reasoning."""
    times: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    running_usage: bool = False
    final_usage: bool = False
    done: bool = False

    def add(self, time: float, chunk: dict[str, Any]) -> None:
        """One chunk; its shape is the caller's to check, by what this raises."""
        if chunk.get("error"):
            raise KeyError("error")
        choices = chunk["choices"]
        usage = chunk.get("usage")
        for choice in choices:
            delta = choice["delta"]
            content = delta.get("content")
            self.text.append(content or _reasoning(delta))
            self.content.append(content or "")
            if choice.get("finish_reason"):
                self.finish_reason = choice["finish_reason"]
        if not usage:
            return
        new = usage["completion_tokens"] - self.output_tokens
        if new > 0:
            self.output_tokens += new
            self.times.append(time)
            self.tokens.append(new)
        self.prompt_tokens = int(usage["prompt_tokens"])
        if choices:
            self.running_usage = True
        else:
            self.final_usage = True


def sample(prompt: Prompt, reply: Reply, origin: float) -> RequestSample:
    """The sample of a reply, its times counted from `origin`."""
    told = _read(reply)
    error = _error(reply, told)
    return RequestSample(
        prompt_id=prompt.id,
        prompt_tokens=told.prompt_tokens,
        output_tokens=told.output_tokens,
        sent_s=reply.sent - origin,
        first_token_s=told.times[0] - origin if told.times else None,
        end_s=reply.ended - origin,
        finish_reason=told.finish_reason,
        error=_without_prompt(error, prompt)[:_MESSAGE_LENGTH] if error else None,
        text="".join(map(str, told.text)),
        chunk_s=tuple(time - origin for time in told.times),
        chunk_tokens=tuple(told.tokens),
        json_text=_content(told) if asks_for_json(prompt.response_format) else None,
    )


def said(reply: Reply) -> str | None:
    """The content of a reply, its reasoning apart; None if the reply does not count."""
    told = _read(reply)
    return None if _error(reply, told) else _content(told)


def server_message(status: int, body: bytes) -> str:
    """`HTTP 404: what the server said`, from OpenAI's error object or from plain text."""
    try:
        text = _error_text(json.loads(body))
    except ValueError:
        text = None
    return f"HTTP {status}: {text or body.decode(errors='replace')}"


def _read(reply: Reply) -> _Told:
    told = _Told()
    if reply.status != HTTP_OK:
        return told
    arrived = list(events(reply.times, reply.pieces))
    chunked = [event for event in arrived if event[1] != _DONE]
    told.done = len(chunked) < len(arrived)
    for (time, _), chunk in zip(chunked, _parse([data for _, data in chunked]), strict=True):
        _add(told, time, chunk)
    return told


def _parse(payloads: Sequence[bytes]) -> list[Any]:
    """All chunks in one call, which is cheaper; one by one if one of them is no JSON.

    The parser is pydantic's, a third faster and stricter (it takes no half of a surrogate pair);
    what it refuses, Python's own may take.
    """
    try:
        chunks: list[Any] = from_json(b"[" + b",".join(payloads) + b"]")
    except ValueError:
        chunks = []
    if len(chunks) == len(payloads):
        return chunks
    return [_parse_one(payload) for payload in payloads]


def _parse_one(payload: bytes) -> Any:  # noqa: ANN401 - foreign JSON
    try:
        return json.loads(payload)
    except ValueError:
        return {"error": f"a chunk of {len(payload)} bytes that is no JSON"}


def _add(told: _Told, time: float, chunk: Any) -> None:  # noqa: ANN401 - foreign JSON
    try:
        told.add(time, chunk)
    except (AttributeError, KeyError, TypeError) as fault:
        other = f"a chunk that is no chat.completion.chunk: {fault!r}"
        told.error = told.error or f"error in the stream: {_error_text(chunk) or other}"


def _content(told: _Told) -> str:
    return "".join(map(str, told.content))


def _reasoning(delta: dict[str, Any]) -> str:
    return str(delta.get("reasoning") or delta.get("reasoning_content") or "")


def _error(reply: Reply, told: _Told) -> str | None:
    """The first reason why this reply does not count."""
    if reply.status not in (0, HTTP_OK):
        return server_message(reply.status, b"".join(reply.pieces))
    if told.error or reply.error:
        return told.error or reply.error
    missing = {
        "the stream ended without [DONE]": told.done,
        "the stream ended without usage": told.final_usage,
        "no running usage: the server ignores continuous_usage_stats": told.running_usage,
        "the reply has no tokens": told.output_tokens,
    }
    return next((fault for fault, there in missing.items() if not there), None)


def _error_text(data: Any) -> str | None:  # noqa: ANN401 - foreign JSON
    """The message of an error object, bare or under `error`; None if it is none."""
    if not isinstance(data, dict):
        return None
    inner = data.get("error")
    if isinstance(inner, dict):
        return str(inner.get("message") or inner)
    if data.get("object") == "error":
        return str(data.get("message"))
    return str(inner) if inner else None


def _without_prompt(message: str, prompt: Prompt) -> str:
    """Servers quote what they refuse; a prompt must not land in a log."""
    message = message.partition(_QUOTED_INPUT)[0]
    for part in prompt.messages:
        content = part.get("content")
        if isinstance(content, str) and content:
            message = message.replace(content, "<prompt>")
    return message
