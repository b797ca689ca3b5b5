"""The JSON of vLLM's OpenAI endpoints, read and written; no I/O.

Rule: a request is checked here, whole, before the engine sees it, and refused in vLLM's words.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from autotune.engines.simulated_server.launch import BLOCK_SIZE, Launch

_TEMPLATE_TOKENS = 8


class RequestError(Exception):
    """The request is refused."""

    def __init__(self, status: int, kind: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.kind, self.message, self.param = status, kind, message, param

    @property
    def body(self) -> dict[str, Any]:
        """vLLM's ErrorResponse."""
        error = {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.status,
        }
        return {"error": error}


DEAD = RequestError(
    500,
    "InternalServerError",
    "EngineCore encountered an issue. See stack trace (above) for the root cause.",
)
INTERNAL = RequestError(500, "InternalServerError", "Internal server error")

MAX_SALT_LENGTH = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A checked request."""

    chat: bool
    prompt: tuple[str, ...]
    salt: str
    max_tokens: int
    ignore_eos: bool
    temperature: float
    seed: int | None
    wanted_k: int | None
    stream: bool
    include_usage: bool
    continuous_usage: bool

    @property
    def blocks(self) -> tuple[int, ...]:
        """A hash for each full block of the prompt, and all before it."""
        hashes = [hash(self.salt)]
        for start in range(0, len(self.prompt) - BLOCK_SIZE + 1, BLOCK_SIZE):
            hashes.append(hash((hashes[-1], self.prompt[start : start + BLOCK_SIZE])))
        return tuple(hashes[1:])

    @property
    def digest(self) -> str:
        """What stands for the prompt in every draw."""
        return blake2b(" ".join(self.prompt).encode(), digest_size=16).hexdigest()


def read_ask(raw: bytes, launch: Launch, *, chat: bool) -> Ask:
    """Check a request's body."""
    body = read_object(raw)
    _check_model(body.get("model"), launch)
    prompt = _chat_prompt(body) if chat else _plain_prompt(body)
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    options = body.get("stream_options") or {}
    extra = body.get("vllm_xargs") or {}
    k = extra.get("num_speculative_tokens")
    return Ask(
        chat=chat,
        prompt=prompt,
        salt=_salt(body.get("cache_salt")),
        max_tokens=_max_tokens(limit, prompt, launch, chat=chat),
        ignore_eos=bool(body.get("ignore_eos", False)),
        temperature=float(body.get("temperature", 1.0)),
        seed=body.get("seed"),
        wanted_k=None if k is None else int(k),
        stream=bool(body.get("stream", False)),
        include_usage=bool(options.get("include_usage", False)),
        continuous_usage=bool(options.get("include_usage", False))
        and bool(options.get("continuous_usage_stats", False)),
    )


def _salt(salt: object) -> str:
    """As vLLM checks it (validate_cache_salt in entrypoints/generate/base/protocol.py)."""
    if salt is None:
        return ""
    if not isinstance(salt, str) or not salt:
        message = "Parameter 'cache_salt' must be a non-empty string if provided."
        raise RequestError(400, "BadRequestError", message, "cache_salt")
    if len(salt) > MAX_SALT_LENGTH or any(char in salt for char in "@/\\\0"):
        message = (
            f"Parameter 'cache_salt' must be at most {MAX_SALT_LENGTH} characters and must not "
            "contain '@', '/', '\\\\', or NUL."
        )
        raise RequestError(400, "BadRequestError", message, "cache_salt")
    return salt


def tokenize(text: str) -> tuple[str, ...]:
    """One token per word."""
    return tuple(text.split()) or ("",)


def read_object(raw: bytes) -> dict[str, Any]:
    """The JSON object of a body."""
    try:
        body = json.loads(raw)
    except json.JSONDecodeError as error:
        raise RequestError(400, "BadRequestError", f"JSON decode error: {error.msg}") from error
    if not isinstance(body, dict):
        raise RequestError(400, "BadRequestError", "Input should be a valid dictionary")
    return body


def _check_model(name: object, launch: Launch) -> None:
    served = launch.options.served_model_names
    if name and name not in served:
        message = f"The model `{name}` does not exist. Valid aliases: {', '.join(served)}."
        raise RequestError(404, "NotFoundError", message, "model")


def _chat_prompt(body: Mapping[str, Any]) -> tuple[str, ...]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestError(400, "BadRequestError", "Field required", "messages")
    words: list[str] = ["<|im_start|>"] * _TEMPLATE_TOKENS
    for message in messages:
        words += [str(message.get("role")), *tokenize(_content(message.get("content")))]
    return tuple(words)


def _content(content: object) -> str:
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content)
    return str(content or "")


def _plain_prompt(body: Mapping[str, Any]) -> tuple[str, ...]:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return tokenize(prompt)
    if isinstance(prompt, list) and prompt and all(isinstance(token, int) for token in prompt):
        return tuple(map(str, prompt))
    raise RequestError(400, "BadRequestError", "Either prompt or prompt_embeds must be provided")


def _max_tokens(limit: int | None, prompt: tuple[str, ...], launch: Launch, *, chat: bool) -> int:
    context = launch.options.max_model_len
    if limit is not None and limit > context:
        name = "max_completion_tokens" if chat else "max_tokens"
        message = f"{name}={limit} cannot be greater than max_model_len={context}. "
        message += "Please request fewer output tokens."
        raise RequestError(400, "BadRequestError", message, name)
    if len(prompt) >= context:
        message = (
            f"This model's maximum context length is {context} tokens. However, your prompt "
            f"contains {len(prompt)} input tokens, which exceeds this limit even without any "
            "output tokens. Please reduce the length of the input prompt."
        )
        raise RequestError(400, "BadRequestError", message, "input_tokens")
    room = context - len(prompt)
    if limit is None:
        return room if chat else min(16, room)
    return min(max(1, limit), room)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Writes the chunks and the whole of one reply."""

    ident: str
    chat: bool
    model: str
    prompt_tokens: int

    def usage(self, tokens: int) -> dict[str, int]:
        """vLLM's UsageInfo."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + tokens,
            "completion_tokens": tokens,
        }

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.ident,
            "object": kind,
            "created": int(time.time()),
            "model": self.model,
        }

    def role(self) -> dict[str, Any]:
        """The first chunk of a chat, before any token."""
        return self._chunk({"delta": {"role": "assistant", "content": ""}, "finish_reason": None})

    def piece(self, text: str, reason: str | None) -> dict[str, Any]:
        """One step's tokens."""
        choice = {"delta": {"content": text}} if self.chat else {"text": text}
        return self._chunk({**choice, "logprobs": None, "finish_reason": reason})

    def last(self, tokens: int) -> dict[str, Any]:
        """The usage chunk, without a choice."""
        return {**self._chunk({}), "choices": [], "usage": self.usage(tokens)}

    def _chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        return {**self._head(kind), "choices": [{"index": 0, **choice}]}

    def whole(self, text: str, reason: str, tokens: int) -> dict[str, Any]:
        """The answer of a request that does not stream."""
        message = {"message": {"role": "assistant", "content": text}}
        choice = {"index": 0, **(message if self.chat else {"text": text})}
        return {
            **self._head("chat.completion" if self.chat else "text_completion"),
            "choices": [{**choice, "logprobs": None, "finish_reason": reason}],
            "usage": self.usage(tokens),
        }
