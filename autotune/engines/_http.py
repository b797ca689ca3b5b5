"""Small blocking HTTP to a server on loopback: health, metrics, one completion.

Rule: proxy variables of the environment are ignored, since a proxy would answer for the server.
"""

import http.client
import json
import socket
import urllib.error
import urllib.request

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_TROUBLE = (OSError, ValueError, TimeoutError, http.client.HTTPException)


class HttpGoneError(Exception):
    """No usable answer: refused, timed out, or not 200."""


def get(url: str, timeout_s: float = 30.0) -> str:
    """The body of a GET; raises HttpGoneError."""
    try:
        with _OPENER.open(url, timeout=timeout_s) as reply:
            return str(reply.read().decode("utf-8"))
    except _TROUBLE as error:
        raise HttpGoneError(str(error)) from error


def complete(base_url: str, model: str, timeout_s: float) -> str | None:
    """One short real completion; None when it worked, else what went wrong."""
    body = {"model": model, "prompt": "Hello", "max_tokens": 2, "temperature": 0}
    request = urllib.request.Request(  # noqa: S310 - always http on loopback
        base_url + "/v1/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with _OPENER.open(request, timeout=timeout_s) as reply:
            usage = json.loads(reply.read())["usage"]
    except urllib.error.HTTPError as error:
        return f"HTTP {error.code}: {error.read()[:300].decode('utf-8', 'replace')}"
    except _TROUBLE as error:
        return str(error)
    except KeyError:
        return "the reply carries no usage"
    return None if usage["completion_tokens"] > 0 else "the reply is empty"


def free_port() -> int:
    """A port that is free on loopback now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
