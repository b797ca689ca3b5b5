"""Small blocking HTTP to a server on loopback: health, metrics, one completion.

Rule: proxy variables of the environment are ignored, since a proxy would answer for the server.
"""

import http.client
import json
import socket
import urllib.error
import urllib.request
from email.message import Message

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_TROUBLE = (OSError, ValueError, TimeoutError, http.client.HTTPException)


PROXY_HEADERS = ("Via", "Proxy-Authenticate", "Proxy-Connection", "X-Squid-Error", "X-Cache")
"""Headers that proxies add to an answer and vLLM never has."""


class HttpGoneError(Exception):
    """No usable answer: refused, timed out, not 200, or a proxy's."""

    def __init__(self, told: str, *, proxy: str = "") -> None:
        self.proxy = proxy
        """What tells that a proxy answered; empty when nothing does."""
        super().__init__(told)


def get(url: str, timeout_s: float = 30.0) -> str:
    """The body of a GET; raises HttpGoneError."""
    try:
        with _OPENER.open(url, timeout=timeout_s) as reply:
            body, proxy = str(reply.read().decode("utf-8")), _proxy(reply.headers)
    except urllib.error.HTTPError as error:
        with error:
            raise HttpGoneError(str(error), proxy=_proxy(error.headers)) from error
    except _TROUBLE as error:
        raise HttpGoneError(str(error)) from error
    if proxy:
        raise HttpGoneError("answered by a proxy", proxy=proxy)
    return body


def served_models(base_url: str) -> list[str]:
    """The model names that the server answers to; raises HttpGoneError."""
    try:
        return [str(card["id"]) for card in json.loads(get(base_url + "/v1/models"))["data"]]
    except (ValueError, KeyError, TypeError) as error:
        raise HttpGoneError(f"/v1/models is no list of models: {error}") from error


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


def _proxy(headers: Message) -> str:
    return next((f"{name}: {headers[name]}" for name in PROXY_HEADERS if name in headers), "")


def free_port() -> int:
    """A port that is free on loopback now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
