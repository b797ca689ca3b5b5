"""Failures are counted, never hidden: each way to fail has its own words."""

import re
import socket
import time

import pytest

from autotune.loadgens.closed_loop import ClosedLoop
from autotune.ports import Request
from tests.loadgens.passes import PROMPTS, WORKLOAD, StubServer, errors, load, scripted
from tests.loadgens.stub import (
    DONE,
    HEAD,
    LAST_CHUNK,
    ROLE,
    Step,
    delta,
    error_body,
    event,
    final_usage,
    framed,
    plain,
    reply,
    stub,
)

START = HEAD + framed(ROLE) + framed(delta("a", 1))
END = framed(final_usage(1) + DONE) + LAST_CHUNK
OUT_OF_MEMORY = event({"error": {"message": "CUDA out of memory", "code": 500}})
NO_RUNNING = event({"choices": [{"index": 0, "delta": {"content": "a"}}]})


@pytest.mark.parametrize(
    ("steps", "error"),
    [
        ([START, framed(OUT_OF_MEMORY + DONE), LAST_CHUNK], "error in the stream: CUDA out of"),
        (
            [START, framed(event({"object": "error", "message": "no"})), END],
            "error in the stream: no",
        ),
        ([START, framed(event({"choices": [], "error": "bad"})), END], "error in the stream: bad"),
        ([START, framed(b"data: {torn\n\n"), END], "that is no JSON"),
        ([START, framed(event({"choices": [7]})), END], "no chat.completion.chunk"),
        ([START, framed(b"data: [1]\n\n"), END], "no chat.completion.chunk"),
        ([START, framed(final_usage(1)), LAST_CHUNK], r"without \[DONE\]"),
        ([START, framed(DONE), LAST_CHUNK], "without usage"),
        ([HEAD, framed(NO_RUNNING), END], "no running usage"),
        ([HEAD, framed(ROLE), framed(final_usage(0) + DONE), LAST_CHUNK], "no tokens"),
        ([START, None], "connection closed before"),
        ([None], "connection closed before"),
        ([b"SSH-2.0\r\n\r\n"], "not an HTTP/1.1 reply"),
        ([START, framed(delta("b", 2))[:-9], None], "connection closed before"),
        ([plain(500, b"Internal Server Error")], "HTTP 500: Internal Server Error"),
    ],
)
def test_failure_has_a_reason(steps: list[Step], error: str) -> None:
    """Every broken reply is a failed sample that says what broke, and the pass goes on."""
    with stub(lambda index: reply() if index else steps) as seen:
        first, second = errors(load(seen, count=2))
    assert first is not None
    assert re.search(error, first), first
    assert second is None


@pytest.mark.parametrize("status", [400, 404, 500])
def test_status_comes_with_the_servers_message(status: int) -> None:
    """A refusal is told in the server's words, at most 300 characters of them."""
    body = error_body("The model `x` does not exist. " + "y" * 500)
    with stub(scripted(plain(status, body))) as seen:
        (error,) = errors(load(seen))
    assert error is not None
    assert error.startswith(f"HTTP {status}: The model `x` does not exist. yyy")
    assert len(error) == 300


def test_prompt_that_the_server_quotes_is_left_out() -> None:
    """Servers quote what they refuse; a prompt must not land in a log."""
    first = error_body("'Say 0' is too long")
    second = error_body("1 validation error: {'loc': 'messages', 'input': 'my secret'}")
    with stub(lambda index: [plain(400, second if index else first)]) as seen:
        found = errors(load(seen, count=2))
    assert found[0] == "HTTP 400: '<prompt>' is too long"
    assert found[1] == "HTTP 400: 1 validation error: {'loc': 'messages', "


def test_tokens_before_a_failure_are_kept() -> None:
    """What had come before the connection broke is on the sample, beside its error."""
    with stub(scripted(START, None)) as seen:
        (sample,) = load(seen).samples
    assert (sample.output_tokens, sample.text, sample.finish_reason) == (1, "a", None)


def test_silent_server_is_given_up() -> None:
    """Without a byte for the timeout a request has failed, and the rest is not sent."""
    with stub(scripted(START, 30.0)) as seen:
        started = time.monotonic()
        found = errors(load(seen, count=10, concurrency=2))
        assert time.monotonic() - started < 3
    assert found[:2] == ["timeout: no byte for 0.5 s"] * 2
    assert found[2:] == ["not sent: the server stalled earlier in this pass"] * 8
    assert len(seen.bodies) == 2


def test_slow_but_steady_server_is_not_given_up() -> None:
    """The timeout counts from the last byte: a long reply may take as long as it takes."""
    with stub(lambda index: reply(range(1, 9), 0.1)) as seen:
        assert errors(load(seen)) == [None]


def test_no_server_is_a_failure_of_every_request() -> None:
    """A refused connection fails each request with the reason."""
    requests = [Request(prompt=prompt, cache_salt="s") for prompt in PROMPTS[:3]]
    result = ClosedLoop().run(StubServer(free_url()), WORKLOAD, requests, 2)
    assert len(result.samples) == 3
    assert all("no connection" in str(sample.error) for sample in result.samples)


def free_url() -> str:
    """An address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"
