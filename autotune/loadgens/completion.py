"""One real completion under a deadline: whether a server that says it is ready can generate.

Law: nothing that the network or the server does raises; the answer is None or what went wrong.
"""

import asyncio
import json

from autotune.loadgens._framing import Reply
from autotune.loadgens._http import Address, Connection
from autotune.loadgens._transcript import HTTP_OK, server_message

_PATH = "/v1/completions"


def complete(base_url: str, model: str, max_tokens: int, timeout_s: float) -> str | None:
    """None when the server has generated within the deadline, else the error as text."""
    address = Address.parse(base_url)
    post = address.post(_PATH, {"model": model, "prompt": "Hello", "max_tokens": max_tokens})
    return asyncio.run(_complete(address, post, timeout_s))


async def _complete(address: Address, post: bytes, timeout_s: float) -> str | None:
    connection = Connection(address, timeout_s)
    try:
        async with asyncio.timeout(timeout_s):
            reply = await connection.exchange(post)
    except TimeoutError:
        return f"no completion within {timeout_s:g} s"
    finally:
        connection.close()
    return _fault(reply)


def _fault(reply: Reply) -> str | None:
    if reply.error:
        return reply.error
    text = b"".join(reply.pieces)
    if reply.status != HTTP_OK:
        return server_message(reply.status, text)
    try:
        tokens = json.loads(text)["usage"]["completion_tokens"]
    except (ValueError, KeyError, TypeError):
        return "the server's completion has no usage"
    return None if tokens else "the server's completion has no tokens"
