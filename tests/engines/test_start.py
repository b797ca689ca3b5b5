"""A start that does not become a server: deadlines, strangers, proxies, disks and memory."""

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from autotune import process
from autotune.core.causes import CAUSES
from autotune.core.trial import Cause
from autotune.engines import _host, _start, vllm
from autotune.engines._http import HttpGoneError, get
from autotune.errors import LaunchError
from autotune.ports import Engine, ServeOrder, find
from tests.engines.orders import order, world_env

SIMULATED: Engine = find("engines", "simulated")
GIB = 1 << 30
EAGLE = {"method": "eagle", "model": "/models/d", "num_speculative_tokens": 3}


def start(asked: ServeOrder) -> LaunchError:
    """What a start ended with."""
    with pytest.raises(LaunchError) as told, SIMULATED.serve(asked):
        pass
    return told.value


def faulty(folder: Path, what: str, **settings: object) -> ServeOrder:
    """A launch with a draft in a world with one fault."""
    env = world_env(folder, faults=[{"what": what}], **settings)
    return order(folder / "launch", draft=EAGLE, env=env)


@pytest.mark.parametrize(
    ("what", "cause"),
    [
        ("oom_at_start", Cause.OUT_OF_MEMORY_START),
        ("oom_at_capture", Cause.OUT_OF_MEMORY_CAPTURE),
        ("kv_too_small", Cause.KV_CACHE_TOO_SMALL),
        ("crash_at_start", Cause.CRASHED_START),
        ("disk_full_at_start", Cause.DISK_FULL),
        ("port_collision_once", Cause.PORT_TAKEN),
        ("other_vocabulary", Cause.VOCABULARY_MISMATCH),
        ("other_weights", Cause.WEIGHTS_MISMATCH),
        ("no_weights", Cause.MISSING_WEIGHTS),
        ("no_package", Cause.MISSING_PACKAGE),
        ("network_down", Cause.TRANSIENT),
        ("compiled_for_another_k", Cause.COMPILE_CACHE),
    ],
)
def test_every_end_of_a_start_has_its_cause(tmp_path: Path, what: str, cause: Cause) -> None:
    """Over a real process and its log, with the remedy of the table and how long it lived."""
    error = start(faulty(tmp_path, what))
    assert error.cause is cause
    assert error.remedy == CAUSES[cause].remedy
    assert error.after_s is not None
    assert 0 < error.after_s < 60


def test_a_cache_of_its_own_heals_what_a_shared_one_broke(tmp_path: Path) -> None:
    """The engine is told another cache root, in the launch's own folder."""
    asked = replace(faulty(tmp_path, "compiled_for_another_k"), fresh_cache=True)
    with SIMULATED.serve(asked) as server:
        assert server.facts.boot_s > 0
    about = json.loads((asked.folder / "launch.argv.json").read_text())
    assert about["env"]["VLLM_CACHE_ROOT"] == str(asked.folder / "compile_cache")


def test_a_silent_start_is_told_by_its_last_line(tmp_path: Path) -> None:
    """No line for the allowed time: ended long before the start's own deadline."""
    asked = replace(faulty(tmp_path, "hang_at_start"), silence_s=8.0)
    error = start(asked)
    assert error.cause is Cause.START_STALLED
    assert "no line in the engine's log for" in error.detail
    assert "Loading drafter model..." in error.detail
    assert error.after_s is None


def test_a_start_that_speaks_all_the_time_is_not_silent(tmp_path: Path) -> None:
    """What grows is not stalled; the deadline of the start ends it."""
    talk = "import time\nwhile True:\n print('loading', flush=True)\n time.sleep(0.1)"  # no server
    asked = replace(
        order(tmp_path / "launch", launcher=(sys.executable, "-c", talk), timeout_s=6.0),
        silence_s=5.0,
    )
    error = start(asked)
    assert error.cause is Cause.START_TIMEOUT
    assert error.detail.endswith("the log ends with: loading")


@contextmanager
def answering(status: int, headers: dict[str, str], body: str = "{}") -> Iterator[str]:
    """A server that answers everything alike; gives its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def sleeping(folder: Path) -> Iterator[process.Child]:
    """A child that does nothing at all."""
    argv = [sys.executable, "-c", "import time; time.sleep(60)"]
    with process.running(argv, env={}, log=folder / "log") as child:
        yield child


@pytest.mark.parametrize("status", [503, 200])
@pytest.mark.parametrize("header", ["Via", "X-Squid-Error"])
def test_a_proxy_on_loopback_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, header: str
) -> None:
    """At its first answer, whatever it answers, with the variables that are set."""
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.invalid:3128")
    with (
        answering(status, {header: "1.1 squid"}) as url,
        sleeping(tmp_path) as child,
        pytest.raises(LaunchError) as told,
    ):
        _start.wait_ready(child, url, order(tmp_path))
    assert told.value.cause is Cause.PROXY_ANSWERED
    assert f"{header}: 1.1 squid" in told.value.detail
    assert "HTTP_PROXY" in told.value.detail
    assert "proxy.invalid" not in told.value.detail  # it may hold a password
    assert "NO_PROXY" in told.value.remedy


def test_an_engine_that_is_not_healthy_yet_is_no_proxy() -> None:
    """503 without a proxy's header is what a loading server says."""
    with answering(503, {}) as url, pytest.raises(HttpGoneError) as told:
        get(url + "/health")
    assert told.value.proxy == ""


def test_another_server_at_the_port_is_not_measured(tmp_path: Path) -> None:
    """Someone took the port before our engine could: told by whose process listens."""
    with (
        answering(200, {}) as url,
        sleeping(tmp_path) as child,
        pytest.raises(LaunchError) as told,
    ):
        _start.wait_ready(child, url, order(tmp_path))
    assert told.value.cause is Cause.WRONG_SERVER
    assert "is served by process" in told.value.detail


def test_a_server_of_another_model_is_not_measured(tmp_path: Path) -> None:
    """Behind a launcher whose processes cannot be seen, the model's name tells."""
    body = json.dumps({"data": [{"id": "/models/other"}]})
    asked = order(tmp_path, launcher=("podman", "run"))
    with (
        answering(200, {}, body) as url,
        sleeping(tmp_path) as child,
        pytest.raises(LaunchError) as told,
    ):
        _start.wait_ready(child, url, asked)
    assert told.value.cause is Cause.WRONG_SERVER
    assert "serves /models/other, not /models/t" in told.value.detail


def test_a_full_disk_is_told_before_the_launch(tmp_path: Path) -> None:
    """Nothing is started where the engine's cache could not be written."""
    asked = order(tmp_path / "launch", env={**world_env(tmp_path), "VLLM_CACHE_ROOT": "/proc/vllm"})
    error = start(asked)
    assert error.cause is Cause.DISK_FULL
    assert error.detail == "/proc/vllm has 0 MiB left, it needs 256 at least"
    assert not (asked.folder / "engine.log").exists()


def test_caches_elsewhere_are_not_looked_for_here(tmp_path: Path) -> None:
    """A launcher has its own; where results go is checked all the same."""
    asked = order(tmp_path, launcher=("podman", "run"))
    _start.check_disk(asked, {"VLLM_CACHE_ROOT": "/proc/vllm"})
    with pytest.raises(LaunchError):
        _start.check_disk(replace(asked, folder=Path("/proc/self")), {})


OCCUPIED = LaunchError(
    Cause.MEMORY_OCCUPIED,
    "ValueError: Free memory on device cuda:0 (30.0/80.0 GiB) on startup is less than desired GPU "
    "memory utilization (0.9, 72.0 GiB). Decrease GPU memory utilization",
)
OTHER = _host.Holder(4711, "python", 45 * GIB)


def test_who_holds_the_memory_is_told() -> None:
    """The largest first, by process id: with them gone there would be enough."""
    told = _start.whose_memory(OCCUPIED, [OTHER], gpu=False)
    assert told.cause is Cause.MEMORY_OCCUPIED
    assert told.detail.endswith("; held by pid 4711 (python, 45.0 GiB)")


def test_memory_that_nobody_holds_is_too_much_asked_for() -> None:
    """Even with everybody else gone it would not fit."""
    small = replace(OTHER, held_bytes=2 * GIB)
    for others in ([], [small]):
        told = _start.whose_memory(OCCUPIED, others, gpu=False)
        assert told.cause is Cause.UTILIZATION_TOO_HIGH
        assert told.detail == OCCUPIED.detail
        assert told.remedy == CAUSES[Cause.UTILIZATION_TOO_HIGH].remedy


def test_on_a_gpu_holders_may_be_out_of_sight() -> None:
    """What is not free is held by someone, in another container perhaps."""
    told = _start.whose_memory(OCCUPIED, [], gpu=True)
    assert told.cause is Cause.MEMORY_OCCUPIED
    assert told.detail.endswith("; held by processes out of sight")


def test_other_causes_are_left_as_they_are() -> None:
    """Only the one message has two meanings."""
    crash = LaunchError(Cause.CRASHED_START, "boom")
    assert _start.whose_memory(crash, [OTHER], gpu=True) is crash


@pytest.mark.parametrize(
    ("held", "asked_for", "cause"),
    [(0.0, 0.99, Cause.UTILIZATION_TOO_HIGH), (20.0, 0.9, Cause.MEMORY_OCCUPIED)],
)
def test_a_launch_tells_occupied_from_too_high(
    tmp_path: Path, held: float, asked_for: float, cause: Cause
) -> None:
    """24 GiB, of which 23.5 are free when nobody else is there."""
    faults = [{"what": {"memory_held": held}}]
    asked = order(tmp_path / "launch", env=world_env(tmp_path, faults=faults))
    config = json.loads(asked.config_file.read_text())
    asked.config_file.write_text(json.dumps({**config, "gpu-memory-utilization": asked_for}))
    assert start(asked).cause is cause


def test_a_holder_of_memory_is_found_by_its_id(tmp_path: Path) -> None:
    """On a machine without a GPU: processes with an eighth of a GiB, ours left out."""
    code = "x = bytearray(200 << 20)\nimport time\nprint('held', flush=True)\ntime.sleep(60)"
    with process.running([sys.executable, "-c", code], env={}, log=tmp_path / "log") as child:
        silence = _start.Silence(tmp_path / "log")
        while "held" not in silence.last_line():
            assert child.exit_status is None
        assert child.pid in [h.pid for h in _host.holders(())]
        assert child.pid not in [h.pid for h in _host.holders(child.pids)]


def test_a_process_that_outlives_sigkill_is_a_cause() -> None:
    """Its id is told, and that a person is needed."""
    with pytest.raises(LaunchError) as told, vllm._wedge_told():
        raise process.ProcessWedgedError("processes 4711 survived SIGKILL; free them by hand")
    assert told.value.cause is Cause.WEDGED
    assert "4711" in told.value.detail
