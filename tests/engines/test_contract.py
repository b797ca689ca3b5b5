"""What the tuner relies on in every engine: one class of tests, run for each of them."""

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from autotune.core.trial import Cause
from autotune.core.workload import Level, Prompt, Sampling, Workload
from autotune.errors import LaunchError
from autotune.ports import Engine, LoadGenerator, Request, ServeOrder, Server, find, names
from tests.engines.orders import order, world_env

EAGLE = {"method": "eagle", "model": "/models/d", "num_speculative_tokens": 3}
REFUSED = {"method": "eagle", "model": "/models/d", "num_speculative_tokens": 0}


def simulated(folder: Path, *, live: bool = False, sound: bool = True) -> ServeOrder:
    """An EAGLE launch of the simulated engine, or one that it refuses."""
    env = world_env(folder)
    return order(folder / "launch", draft=EAGLE if sound else REFUSED, live=live, env=env)


ORDERS: dict[str, Callable[..., ServeOrder]] = {"simulated": simulated}
"""What each engine can be asked to launch here."""
ELSEWHERE = {"vllm": "tests/live"}
"""Engines whose contract is tested where they can run."""


def test_every_engine_is_under_contract() -> None:
    """A new file in autotune/engines gets a row here, or a reason."""
    assert set(names("engines")) == set(ORDERS) | set(ELSEWHERE)


@pytest.fixture(params=sorted(ORDERS))
def name(request: pytest.FixtureRequest) -> str:
    """Each engine that runs here."""
    return str(request.param)


def passed(server: Server, k: int | None = None) -> int:
    """Send four requests; gives their output tokens."""
    generator: LoadGenerator = find("loadgens", "closed_loop")
    asked = [{"role": "user", "content": "Count to ten."}]
    prompts = tuple(Prompt(id=f"p{i}", messages=(asked[0],)) for i in range(8))
    workload = Workload(
        search=prompts,
        confirmation=prompts,
        levels=(Level(concurrency=1),),
        max_tokens=12,
        sampling=Sampling(temperature=0.0),
    )
    xargs = {} if k is None else {"num_speculative_tokens": k}
    requests = [Request(prompt=p, cache_salt=p.id, xargs=xargs) for p in prompts[:4]]
    result = generator.run(server, workload, requests, 2)
    assert [sample.error for sample in result.samples] == [None] * 4
    return sum(sample.output_tokens for sample in result.samples)


def processes(asked: ServeOrder) -> list[psutil.Process]:
    """The engine's process and all below it."""
    about = json.loads((asked.folder / "process.json").read_text())
    root = psutil.Process(about["pid"])
    assert root.create_time() == pytest.approx(about["created"])
    return [root, *root.children(recursive=True)]


def lives(process: psutil.Process) -> bool:
    """Whether it still runs."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def taken(base_url: str) -> bool:
    """Whether somebody listens at the address."""
    host, port = base_url.removeprefix("http://").split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


class TestEngineContract:
    """What `serve` promises."""

    @pytest.fixture
    def engine(self, name: str) -> Engine:
        """The plugin."""
        plugin: Engine = find("engines", name)
        return plugin

    @pytest.fixture
    def asked(self, name: str, tmp_path: Path) -> ServeOrder:
        """A launch with a draft."""
        return ORDERS[name](tmp_path)

    @pytest.fixture
    def server(self, engine: Engine, asked: ServeOrder) -> Iterator[Server]:
        """It runs."""
        with engine.serve(asked) as running:
            yield running

    def test_it_says_what_it_is(self, server: Server) -> None:
        """On loopback, with version, device, memory and the seconds of its start."""
        facts = server.facts
        assert server.base_url.startswith("http://127.0.0.1:")
        assert facts.version
        assert facts.device
        assert facts.kv_cache_tokens
        assert facts.boot_s > 0
        assert "num_spec_tokens=3" in str(facts.resolved["speculative_config"])

    def test_it_answers_and_counts(self, server: Server) -> None:
        """What the client got is what the counters moved by."""
        before = server.counters()
        tokens = passed(server)
        server.wait_drained()
        after = server.counters()
        assert after.generation_tokens - before.generation_tokens == tokens
        assert after.prompt_tokens > before.prompt_tokens
        assert (after.running, after.waiting) == (0, 0)
        assert after.spec is not None
        assert before.spec is not None
        moved = after.spec - before.spec
        assert moved.drafts > 0
        assert sum(moved.accepted_per_pos) == moved.accepted_tokens

    def test_a_drained_server_is_drained_at_once(self, server: Server) -> None:
        """Waiting costs nothing when nothing runs."""
        started = time.monotonic()
        server.wait_drained()
        assert time.monotonic() - started < 2

    def test_a_watched_pass_that_only_serves_is_undisturbed(self, server: Server) -> None:
        """Requests leave lines in the log, but none that spoils a pass; the host is read."""
        watch = server.watch()
        passed(server)
        server.wait_drained()
        seen = watch.end()
        assert (seen.disturbances, seen.warnings) == ((), {})
        assert seen.host is not None
        assert seen.host.load_1m is not None

    def test_all_is_gone_after_the_block(self, engine: Engine, asked: ServeOrder) -> None:
        """Processes and port, whether the block ends well or by an exception."""
        with contextlib.suppress(ZeroDivisionError), engine.serve(asked) as running:
            alive = processes(asked)
            assert taken(running.base_url)
            raise ZeroDivisionError
        assert not [p for p in alive if lives(p)]
        assert not taken(running.base_url)
        with engine.serve(asked) as running:
            alive = processes(asked)
        assert not [p for p in alive if lives(p)]
        assert not (asked.folder / "process.json").exists()

    def test_a_refused_start_has_a_cause(self, engine: Engine, name: str, tmp_path: Path) -> None:
        """LaunchError with detail and remedy; the log is kept, no process and no note of one is."""
        asked = ORDERS[name](tmp_path, sound=False)
        with pytest.raises(LaunchError) as told, engine.serve(asked):
            pass
        assert told.value.detail
        assert told.value.remedy
        assert (asked.folder / "engine.log").read_text()
        assert not (asked.folder / "process.json").exists()

    def test_a_death_is_told_with_its_cause(self, engine: Engine, asked: ServeOrder) -> None:
        """Killed under our hands: every question after that raises, and the block ends."""
        with engine.serve(asked) as running:
            running.check_alive()
            os.kill(processes(asked)[0].pid, signal.SIGKILL)
            with pytest.raises(LaunchError, match="signal 9") as told:
                _until_dead(running)
            assert told.value.cause is Cause.CRASHED_RUNTIME
            with pytest.raises(LaunchError):
                running.counters()

    def test_k_follows_the_requests_of_a_live_launch(
        self, engine: Engine, name: str, tmp_path: Path
    ) -> None:
        """Steps and counters agree on the K that was asked for; K = 0 drafts nothing."""
        with engine.serve(ORDERS[name](tmp_path, live=True)) as running:
            running.steps_by_k()
            for k in (2, 0, 3, 1):
                before = running.counters().spec
                passed(running, k)
                running.wait_drained()
                after = running.counters().spec
                assert set(running.steps_by_k()) == {k}
                assert after is not None
                assert before is not None
                moved = after - before
                assert moved.draft_tokens == k * moved.drafts
                assert (moved.drafts > 0) == (k > 0)
            assert running.steps_by_k() == {}


def _until_dead(server: Server) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        server.check_alive()
        time.sleep(0.02)
