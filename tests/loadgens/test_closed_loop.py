"""The load generator against a real server: what it sends, counts and times."""

import itertools
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import replace

import pytest

from autotune.loadgens.closed_loop import ClosedLoop
from autotune.ports import Request, names
from tests.loadgens.passes import PROMPTS, WORKLOAD, StubServer, errors, load, scripted
from tests.loadgens.stub import (
    DONE,
    HEAD,
    LAST_CHUNK,
    Step,
    delta,
    final_usage,
    framed,
    reply,
    stub,
)


def test_it_is_found_as_a_plugin() -> None:
    """The folder's plugins are the two loops; their helpers are none."""
    assert names("loadgens") == ("closed_loop", "open_loop")


def test_tokens_come_from_usage_and_not_from_chunks() -> None:
    """Four tokens in two chunks are four tokens; the role chunk carries none."""
    with stub(lambda index: reply((1, 4))) as seen:
        (sample,) = load(seen).samples
    assert (sample.prompt_tokens, sample.output_tokens) == (7, 4)
    assert sample.chunk_tokens == (1, 3)
    assert (sample.finish_reason, sample.error) == ("length", None)
    assert sample.text == " w1 w4"
    assert sample.first_token_s == sample.chunk_s[0]


def test_times_follow_the_pace_of_the_server() -> None:
    """First token one pace after sending, every further chunk one pace later."""
    pace = 0.1
    with stub(lambda index: reply((1, 2, 3, 4), pace)) as seen:
        result = load(seen)
    (sample,) = result.samples
    arrivals = [at - sample.sent_s for at in sample.chunk_s]
    assert arrivals == pytest.approx([pace, 2 * pace, 3 * pace, 4 * pace], abs=0.08)
    assert sample.sent_s == 0.0
    assert result.duration_s == pytest.approx(sample.end_s)
    assert 0 < result.client_cpu_s < result.duration_s


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_awkward_segments_change_nothing(size: int) -> None:
    """A stream cut into pieces of any size, and one that comes all at once, read the same."""
    whole = b"".join(step for step in reply((1, 3, 4)) if isinstance(step, bytes))
    segments = [whole[i : i + size] for i in range(0, len(whole), size)]
    with stub(scripted(*segments)) as seen:
        (sample,) = load(seen).samples
    assert sample.error is None
    assert sample.chunk_tokens == (1, 2, 1)


def test_streams_are_kept_full_until_the_tail() -> None:
    """Never more than the concurrency in flight, never fewer while requests are waiting."""
    lengths = itertools.cycle([1, 4, 2, 7])
    with stub(lambda index: reply(range(1, next(lengths) + 1), 0.004)) as seen:
        result = load(seen, count=40, concurrency=5)
    assert errors(result) == [None] * 40
    assert max(seen.in_flight) == 5
    assert seen.connections == 5
    sent = sorted(sample.sent_s for sample in result.samples)
    ended = sorted(sample.end_s for sample in result.samples)
    gaps = [after - before for before, after in zip(ended, sent[5:], strict=False)]
    assert max(sent[:5]) < 0.2
    assert min(gaps) >= 0
    assert max(gaps) < 0.2


def test_samples_are_in_the_order_of_the_requests() -> None:
    """Whichever stream took it and whenever it ended, a request's sample is in its place."""
    with stub(lambda index: reply((1,), 0.02 if index % 2 else 0.0)) as seen:
        result = load(seen, count=12, concurrency=4)
    assert [sample.prompt_id for sample in result.samples] == [p.id for p in PROMPTS[:12]]


def test_body_says_what_the_workload_says() -> None:
    """The request is the production one, plus the K and the salt of the pass."""
    workload = replace(WORKLOAD, ignore_eos=True, chat_template_kwargs={"enable_thinking": False})
    request = Request(prompt=PROMPTS[0], cache_salt="block-3", xargs={"num_speculative_tokens": 3})
    with stub(lambda index: reply()) as seen:
        ClosedLoop().run(StubServer(seen.base_url + "/"), workload, [request], 8)
    assert seen.heads[0].startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
    assert seen.bodies == [
        {
            "model": "target",
            "messages": [{"role": "user", "content": "Say 0"}],
            "max_tokens": 32,
            "temperature": 0.7,
            "top_p": 0.9,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            "cache_salt": "block-3",
            "vllm_xargs": {"num_speculative_tokens": 3},
            "ignore_eos": True,
            "chat_template_kwargs": {"enable_thinking": False},
        }
    ]


def test_what_is_not_set_is_not_sent() -> None:
    """An empty option is left out: servers refuse some of them."""
    with stub(lambda index: reply()) as seen:
        load(seen)
    left_out = {"vllm_xargs", "ignore_eos", "chat_template_kwargs"}
    assert not left_out & seen.bodies[0].keys()


def test_proxy_variables_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy in the environment does not capture loopback traffic."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with stub(lambda index: reply()) as seen:
        assert errors(load(seen)) == [None]


def test_reasoning_is_text_too() -> None:
    """What a reasoning parser splits off still counts as the reply's text and time."""
    thought = framed(delta("", 1, reasoning="hm"))
    steps = [HEAD, thought, framed(delta("yes", 2, "stop")), framed(final_usage(2) + DONE)]
    with stub(scripted(*steps, LAST_CHUNK)) as seen:
        (sample,) = load(seen).samples
    assert (sample.text, sample.chunk_tokens) == ("hmyes", (1, 1))


def test_connection_that_the_server_closes_is_opened_again() -> None:
    """`connection: close` costs a new connection and no request."""
    closing = HEAD.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    end = framed(delta("a", 1)) + framed(final_usage(1) + DONE) + LAST_CHUNK
    with stub(scripted(closing + end, None)) as seen:
        assert errors(load(seen, count=3)) == [None] * 3
    assert seen.connections == 3


def test_blocked_event_loop_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that was busy elsewhere says by how much its timestamps may be late."""
    with stub(lambda index: reply((1, 2, 3, 4, 5), 0.02)) as seen:
        calm = load(seen).event_loop_lag_s
        clock = time.perf_counter

        def slow() -> float:
            time.sleep(0.06)
            return clock()

        monkeypatch.setattr("autotune.loadgens._http.time.perf_counter", slow)
        busy = load(seen).event_loop_lag_s
    assert calm < 0.05 < busy


def test_interrupt_closes_every_connection() -> None:
    """Ctrl-C in the middle of a pass leaves no request running on the server."""

    def script(index: int) -> Iterable[Step]:
        if index == 3:
            os.kill(os.getpid(), signal.SIGINT)
        chunks: list[Step] = [framed(delta("a", 1)), 0.02]
        return [HEAD, *(chunks * 500)]

    with stub(script) as seen:
        with pytest.raises(KeyboardInterrupt):
            load(seen, count=8, concurrency=4)
        deadline = time.monotonic() + 5
        while seen.open and time.monotonic() < deadline:
            time.sleep(0.01)
        assert seen.open == 0


def test_empty_pass_is_refused() -> None:
    """A pass without a request or without a stream is a mistake of the caller."""
    with pytest.raises(ValueError, match="0 requests at concurrency 1"):
        ClosedLoop().run(StubServer("http://127.0.0.1:1"), WORKLOAD, [], 1)
