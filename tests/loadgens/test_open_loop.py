"""The open loop against a real server: arrivals, slots, and the clock that starts at arrival."""

import itertools
import os
import signal
import statistics
import time
from collections.abc import Iterable

import pytest

from autotune.loadgens.closed_loop import ClosedLoop
from autotune.loadgens.open_loop import OpenLoop, schedule
from autotune.ports import Arrivals, LoadResult, Request
from tests.loadgens.passes import PROMPTS, WORKLOAD, StubServer, errors
from tests.loadgens.stub import Seen, Step, delta, framed, reply, stub


def at(rate: float, seed: str = "a") -> Arrivals:
    """Arrivals at so many requests a second."""
    return Arrivals(request_rate=rate, seed=seed)


def requests(count: int) -> list[Request]:
    """So many requests."""
    return [Request(prompt=prompt, cache_salt="salt") for prompt in PROMPTS[:count]]


def load(seen: Seen, count: int, slots: int, arrivals: Arrivals) -> LoadResult:
    """A pass of so many requests, given up after 0.5 s without a byte."""
    generator = OpenLoop(idle_timeout_s=0.5)
    server = StubServer(seen.base_url)
    return generator.run(server, WORKLOAD, requests(count), slots, arrivals)


def test_the_same_seed_gives_the_same_arrivals() -> None:
    """For every K and both arms; another seed gives others, another rate the same ones scaled."""
    assert schedule(at(5.0), 40) == schedule(at(5.0), 40)
    assert schedule(at(5.0), 40) != schedule(at(5.0, "b"), 40)
    assert schedule(at(10.0), 40) == pytest.approx([t / 2 for t in schedule(at(5.0), 40)])


@pytest.mark.parametrize("rate", [0.5, 20.0])
def test_the_mean_rate_is_the_one_asked_for(rate: float) -> None:
    """In every pass the last request comes at count / rate, after rising times."""
    for seed in "abc":
        times = schedule(at(rate, seed), 32)
        assert times == sorted(times)
        assert times[0] > 0
        assert times[-1] == pytest.approx(32 / rate)


def test_gaps_are_exponential() -> None:
    """Deviation as large as the mean, and 1/e of the gaps longer than it."""
    times = [0.0, *schedule(at(1.0), 4000)]
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert statistics.fmean(gaps) == pytest.approx(1.0)
    assert statistics.pstdev(gaps) == pytest.approx(1.0, abs=0.08)
    assert sum(gap > 1.0 for gap in gaps) / len(gaps) == pytest.approx(0.368, abs=0.03)


def test_requests_come_at_their_times_whatever_the_server_does() -> None:
    """A slow reply delays no arrival while slots are free."""
    arrivals = at(60.0)
    with stub(lambda index: reply((1, 2, 3), 0.05)) as seen:
        result = load(seen, count=24, slots=24, arrivals=arrivals)
    assert errors(result) == [None] * 24
    assert [s.sent_s for s in result.samples] == schedule(arrivals, 24)
    assert [s.prompt_id for s in result.samples] == [p.id for p in PROMPTS[:24]]
    assert max(seen.in_flight) > 1
    lag = result.event_loop_lag_s
    assert all(s.waited_s <= lag + 1e-6 for s in result.samples)
    assert result.duration_s == pytest.approx(max(s.end_s for s in result.samples))
    assert result.duration_s > 24 / 60


def test_no_more_than_the_level_are_under_way() -> None:
    """Slots are respected, and those who wait are sent in order of arrival."""
    with stub(lambda index: reply((1, 2), 0.02)) as seen:
        result = load(seen, count=20, slots=3, arrivals=at(1000.0))
    assert max(seen.in_flight) == 3
    assert seen.connections == 3
    sent = [s.sent_s + s.waited_s for s in result.samples]
    assert sent == sorted(sent)
    assert [body["messages"][0]["content"] for body in seen.bodies] == [
        f"Say {i}" for i in range(20)
    ]


def test_waiting_for_a_slot_is_part_of_the_latency() -> None:
    """A queue at the client is the server's slowness, never hidden, and no lag of the client."""
    pace = 0.05
    with stub(lambda index: reply((1, 2), pace)) as seen:
        result = load(seen, count=8, slots=1, arrivals=at(400.0))
    e2e = [s.end_s - s.sent_s for s in result.samples]
    own = [s.end_s - s.sent_s - s.waited_s for s in result.samples]
    assert e2e[-1] > 7 * 2 * pace
    assert max(own) < 4 * pace
    assert result.samples[-1].waited_s > 6 * 2 * pace
    assert result.event_loop_lag_s < pace
    first = result.samples[-1].first_token_s
    assert first is not None
    assert first - result.samples[-1].sent_s > result.samples[-1].waited_s


def test_what_the_client_is_late_is_its_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    """An arrival that a busy client misses is lag, though a slot was free."""
    with stub(lambda index: reply((1,))) as seen:
        calm = load(seen, count=4, slots=4, arrivals=at(40.0)).event_loop_lag_s
        clock = time.perf_counter

        def slow() -> float:
            time.sleep(0.06)
            return clock()

        monkeypatch.setattr("autotune.loadgens._http.time.perf_counter", slow)
        runs = [load(seen, count=4, slots=4, arrivals=at(40.0)) for _ in range(3)]
    assert calm < 0.05 < min(run.event_loop_lag_s for run in runs)
    # Of several, since another process may have had the CPU between two readings of the clock.
    unseen = [max(s.waited_s for s in run.samples) - run.event_loop_lag_s for run in runs]
    assert min(unseen) <= 1e-9


def test_a_stalled_server_is_given_up() -> None:
    """What was not sent by then is a failure, at once and not after its own timeout."""
    with stub(lambda index: [2.0]) as seen:
        result = load(seen, count=8, slots=2, arrivals=at(1000.0))
    told = [error or "" for error in errors(result)]
    assert [error[:8] for error in told] == ["timeout:"] * 2 + ["not sent"] * 6
    assert result.duration_s < 1.5


def test_a_refusal_is_a_sample() -> None:
    """The pass goes on; nothing is raised for what the server does."""
    bad = b"HTTP/1.1 500 X\r\ncontent-length: 4\r\n\r\nboom"
    with stub(lambda index: [bad] if index == 1 else reply()) as seen:
        result = load(seen, count=3, slots=1, arrivals=at(100.0))
    assert errors(result) == [None, "HTTP 500: boom", None]


def test_interrupt_closes_every_connection() -> None:
    """Ctrl-C in the middle of a pass leaves no request running on the server."""

    def script(index: int) -> Iterable[Step]:
        if index == 3:
            os.kill(os.getpid(), signal.SIGINT)
        chunks: list[Step] = [framed(delta("a", 1)), 0.02]
        return [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", *(chunks * 500)]

    with stub(script) as seen:
        with pytest.raises(KeyboardInterrupt):
            load(seen, count=8, slots=4, arrivals=at(100.0))
        deadline = time.monotonic() + 5
        while seen.open and time.monotonic() < deadline:
            time.sleep(0.01)
        assert seen.open == 0


def test_each_loop_refuses_the_other_ones_pass() -> None:
    """Arrivals make the difference; to forget or to add them is a mistake of the caller."""
    server = StubServer("http://127.0.0.1:1")
    with pytest.raises(ValueError, match="arrivals, got 1 requests at concurrency 1, None"):
        OpenLoop().run(server, WORKLOAD, requests(1), 1)
    with pytest.raises(ValueError, match="that is open_loop"):
        ClosedLoop().run(server, WORKLOAD, requests(1), 1, at(1.0))
