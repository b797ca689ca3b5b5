"""The fill of the KV cache during a pass, on a server that tells what each test wants."""

import http.server
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from autotune.engines import _poll
from autotune.engines._poll import KvCachePoll

GAUGE = 'vllm:kv_cache_usage_perc{engine="0"}'


@contextmanager
def telling(*usage: float | None) -> Iterator[tuple[str, Sequence[float | None]]]:
    """A server whose metrics show these in turn, the last one for ever; and what it has told."""
    told: list[float | None] = []

    class Metrics(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            value = usage[min(len(told), len(usage) - 1)]
            told.append(value)
            body = f"{GAUGE} {value}\n" if value is not None else "vllm:other 1.0\n"
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metrics) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", told
        finally:
            server.shutdown()
            thread.join()


def wait_for(told: Sequence[float | None], count: int) -> None:
    """Return when the server was asked that often."""
    deadline = time.monotonic() + 30
    while len(told) < count and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(told) >= count


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_poll, "FIRST_GAP_S", 0.01)
    monkeypatch.setattr(_poll, "LONGEST_GAP_S", 0.02)


def test_the_highest_reading_is_the_peak() -> None:
    """The gauge keeps no maximum, and is back at nothing when the pass is over."""
    with telling(0.1, 0.75, 0.3, 0.0) as (url, told):
        poll = KvCachePoll(url)
        wait_for(told, 4)
        assert poll.end() == 0.75


def test_a_pass_that_ends_before_the_first_reading_has_no_peak() -> None:
    """Not known, and not 0."""
    with telling(0.5) as (url, _):
        assert KvCachePoll(url).end() is None


def test_an_engine_without_the_gauge_has_no_peak() -> None:
    """None is not known."""
    with telling(None) as (url, told):
        poll = KvCachePoll(url)
        wait_for(told, 2)
        assert poll.end() is None


def test_a_poll_ends_with_its_server() -> None:
    """Whoever forgets it: and of a pass that was seen in part the peak is not known."""
    with telling(0.5) as (url, told):
        poll = KvCachePoll(url)
        wait_for(told, 1)
    poll._thread.join(timeout=30)
    assert not poll._thread.is_alive()
    assert poll.end() is None
