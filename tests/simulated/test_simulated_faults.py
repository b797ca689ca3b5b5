"""Each fault of the simulated engine has its sign, as a real engine would show it."""

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.simulated.child import (
    EAGLE,
    LIVE,
    NGRAM,
    Json,
    fault,
    launched,
    serving,
    world,
)

START_FAULTS = [
    ("oom_at_start", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate"),
    ("kv_too_small", "KV cache is needed, which is larger than the available KV cache memory"),
    ("crash_at_start", "RuntimeError: CUDA error: an illegal memory access was encountered"),
    ("disk_full_at_start", "OSError: [Errno 28] No space left on device"),
]


@pytest.mark.parametrize(("what", "sign"), START_FAULTS)
def test_a_start_fails_with_its_line(tmp_path: Path, what: str, sign: str) -> None:
    """A fault of the start ends it with 1, its own line, and vLLM's last line."""
    with launched(tmp_path, settings=fault(what, min_k=4), spec=EAGLE) as child:
        assert child.process.wait(10) == 1
    assert sign in child.log
    assert "Engine core initialization failed. See root cause above." in child.log


def test_faults_strike_where_they_are_told_to(tmp_path: Path) -> None:
    """A fault for K >= 5 of EAGLE leaves K = 4 alone."""
    settings = fault("oom_at_start", method="eagle", min_k=5)
    with serving(tmp_path, settings=settings, spec=EAGLE) as child:
        assert child.end() == 0


def test_hangs_without_a_port_and_still_ends(tmp_path: Path) -> None:
    """A hanging start refuses connections; SIGTERM ends it with 0."""
    with launched(tmp_path, settings=fault("hang_at_start")) as child:
        time.sleep(1.2)
        with pytest.raises(ConnectionRefusedError):
            child.request("/health")
        assert child.end() == 0


def test_listens_and_is_never_healthy(tmp_path: Path) -> None:
    """The port is open and /health says 503."""
    with launched(tmp_path, settings=fault("never_healthy_but_listening")) as child:
        deadline, status = time.monotonic() + 10, 0
        while status == 0 and time.monotonic() < deadline:
            with contextlib.suppress(ConnectionRefusedError):
                status = child.request("/health")[0]
    assert status == 503


def test_a_port_in_use_ends_a_start(tmp_path: Path) -> None:
    """A taken port fails as the system says it; the fault of that name strikes once."""
    sign = "OSError: [Errno 98] Address already in use"
    settings = fault("port_collision_once")
    with launched(tmp_path, settings=settings) as child:
        assert child.process.wait(10) == 1
    assert sign in child.log
    with serving(tmp_path, settings=settings) as child:
        assert child.end() == 0
    with contextlib.closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with launched(tmp_path, port=taken.getsockname()[1]) as child:
            assert child.process.wait(10) == 1
        assert sign in child.log


DEATHS: list[tuple[Json, Json, tuple[str, ...], str]] = [
    (fault("oom_at_load"), EAGLE, (), "torch.OutOfMemoryError: CUDA out of memory."),
    (world(), {**EAGLE, "method": "suffix"}, LIVE, "AssertionError"),
    (world(), {**EAGLE, "method": "medusa"}, LIVE, "AssertionError"),
]


@pytest.mark.parametrize(("settings", "spec", "flags", "sign"), DEATHS)
def test_the_engine_dies_while_serving(
    tmp_path: Path, settings: Json, spec: Json, flags: tuple[str, ...], sign: str
) -> None:
    """A request in flight hears that the engine is dead; the program ends with 1 and says why."""
    with serving(tmp_path, *flags, settings=settings, spec=spec) as child:
        chunks = child.stream(vllm_xargs={"num_speculative_tokens": 2})
        assert chunks[-1]["error"]["code"] == 500
        assert "EngineCore encountered an issue" in chunks[-1]["error"]["message"]
        assert child.process.wait(10) == 1
    assert sign in child.log
    assert "EngineCore encountered a fatal error." in child.log


def test_crashes_after_some_requests(tmp_path: Path) -> None:
    """The requests before it are answered, then the server is gone."""
    with serving(tmp_path, settings=fault("crash_after_requests", 3)) as child:
        assert len(child.many(3, at_once=1)) == 3
        assert child.process.wait(10) == 1


def test_requests_fail_at_their_rate(tmp_path: Path) -> None:
    """http_500_rate fails before the reply, in_band_error_rate within a 200."""
    both = [{"what": {"http_500_rate": 0.3}}, {"what": {"in_band_error_rate": 0.3}}]
    seen: Counter[str] = Counter()
    body = {"prompt": "a", "stream": True, "max_tokens": 5, "ignore_eos": True}
    with serving(tmp_path, settings=world(faults=both)) as child:
        for _ in range(40):
            status, answer = child.request("/v1/completions", body)
            seen["500" if status == 500 else "in band" if b"error" in answer else "good"] += 1
    assert min(seen["500"], seen["in band"], seen["good"]) >= 4


def test_stalls_after_some_requests(tmp_path: Path) -> None:
    """A stalled engine stays healthy and answers nothing more."""
    with serving(tmp_path, settings=fault("stall_after", 1)) as child:
        child.complete()
        connection = http.client.HTTPConnection("127.0.0.1", child.port, timeout=0.5)
        with contextlib.closing(connection):
            connection.request("POST", "/v1/completions", body=b'{"prompt": "a"}')
            with pytest.raises(TimeoutError):
                connection.getresponse()
        assert child.request("/health")[0] == 200


def test_usage_lies_when_told_to(tmp_path: Path) -> None:
    """wrong_usage makes the client's count and the server's counter disagree."""
    with serving(tmp_path, settings=fault("wrong_usage", 7)) as child:
        told = child.complete()["usage"]["completion_tokens"]
        assert told == child.metrics()["generation_tokens_total"] + 7


def test_counters_freeze_and_start_again_when_told_to(tmp_path: Path) -> None:
    """Frozen counters stay at 0; reset ones fall behind what was asked of them."""
    with serving(tmp_path, settings=fault("counters_frozen"), spec=EAGLE) as child:
        child.complete()
        assert child.spec() == (0, 0, 0)
    with serving(tmp_path, settings=fault("counters_reset_at", 2), spec=EAGLE) as child:
        child.complete()
        before = child.metrics()
        child.complete("x y")
        after = child.metrics()
    assert after["spec_decode_num_drafts_total"] < before["spec_decode_num_drafts_total"]
    assert after["generation_tokens_created"] > before["generation_tokens_created"]


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("compiles_at", "Triton kernel JIT compilation during inference: _topk_kernel."),
        ("grammar_rejects_at", "Failed to advance FSM for request chatcmpl-1 for tokens 17."),
    ],
)
def test_the_log_speaks_when_told_to(tmp_path: Path, what: str, line: str) -> None:
    """Once, when so many requests have finished; they all end well."""
    with serving(tmp_path, settings=fault(what, 2)) as child:
        child.complete()
        assert line not in child.log
        child.complete("x y")
        child.complete("x y z")
        assert child.log.count(line) == 1


def test_accepts_nothing_above_a_temperature_when_told_to(tmp_path: Path) -> None:
    """zero_acceptance can be bound to sampling, as the broken kernel of the CPU build is."""
    settings = fault("zero_acceptance", min_temperature=0.01)
    with serving(tmp_path, settings=settings, spec=EAGLE) as child:
        child.complete(temperature=0.7)
        assert child.spec()[2] == 0
        child.complete(temperature=0)
        assert child.spec()[2] > 0


def test_loops_when_told_to(tmp_path: Path) -> None:
    """A degenerated reply repeats four words, and drafts of it are always right."""
    with serving(tmp_path, settings=fault("repetition_loop"), spec=NGRAM) as child:
        answer = child.complete(ignore_eos=True, max_tokens=100)
        _, drafted, accepted = child.spec()
    assert len(set(answer["choices"][0]["text"].split()[8:])) == 4
    assert drafted == accepted


def test_ignores_sigterm_when_told_to(tmp_path: Path) -> None:
    """Only SIGKILL ends it then."""
    with serving(tmp_path, settings=fault("ignore_sigterm")) as child:
        child.process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            child.process.wait(0.5)
        assert child.end(signal.SIGKILL) == -signal.SIGKILL


def test_takes_its_time_to_end_when_told_to(tmp_path: Path) -> None:
    """slow_shutdown keeps the process for that many seconds after SIGTERM."""
    with serving(tmp_path, settings=fault("slow_shutdown", 0.7)) as child:
        before = time.monotonic()
        assert child.end() == 0
        assert 0.6 < time.monotonic() - before < 5


def test_leaves_a_worker_behind_when_told_to(tmp_path: Path) -> None:
    """orphan_worker outlives the server, in its process group, deaf to SIGTERM."""
    with serving(tmp_path, settings=fault("orphan_worker")) as child:
        worker = int(child.log.split("worker process ")[1].split()[0])
        try:
            assert child.end() == 0
            os.kill(worker, 0)
            assert os.getpgid(worker) == os.getpgid(0)
        finally:
            os.kill(worker, signal.SIGKILL)
