"""Engines that serve for a while and then do not: each end has its cause, and the first error."""

import time
from pathlib import Path

import pytest

from autotune.core.trial import Cause
from autotune.core.workload import Level, Prompt, Sampling, Workload
from autotune.errors import LaunchError
from autotune.ports import Engine, LoadGenerator, Request, Server, find
from tests.engines.orders import order, world_env

SIMULATED: Engine = find("engines", "simulated")
DRAFT = {"method": "eagle", "model": "/models/d", "num_speculative_tokens": 3}
PROMPTS = tuple(
    Prompt(id=f"p{i}", messages=({"role": "user", "content": f"Count to {i}."},)) for i in range(16)
)


def load(server: Server) -> None:
    """Eight requests, four at a time; errors are the server's business."""
    generator: LoadGenerator = find("loadgens", "closed_loop")
    workload = Workload(
        search=PROMPTS,
        confirmation=PROMPTS,
        levels=(Level(concurrency=1),),
        max_tokens=12,
        sampling=Sampling(temperature=0.0),
    )
    requests = [Request(prompt=p, cache_salt=p.id) for p in PROMPTS[:8]]
    generator.run(server, workload, requests, 4)


def until_dead(server: Server) -> None:
    """Ask until it raises."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        server.check_alive()
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("what", "cause", "sign"),
    [
        ({"oom_at_load": 8}, Cause.OUT_OF_MEMORY_RUNTIME, "CUDA out of memory"),
        ({"crash_after_requests": 3}, Cause.CRASHED_RUNTIME, "an illegal memory access"),
    ],
)
def test_a_death_under_load_is_told_by_its_first_error(
    tmp_path: Path, what: dict[str, int], cause: Cause, sign: str
) -> None:
    """It answered its first request: what comes later belongs to the load."""
    env = world_env(tmp_path, faults=[{"what": what}])
    asked = order(tmp_path / "launch", draft=DRAFT, env=env)
    with SIMULATED.serve(asked) as server, pytest.raises(LaunchError) as told:  # noqa: PT012
        load(server)
        until_dead(server)
    assert told.value.cause is cause
    assert sign in told.value.detail
    assert "EngineDeadError" not in told.value.detail


def test_healthy_and_silent_is_stalled(tmp_path: Path) -> None:
    """/health says 200 and nothing is ever generated: not ready, whatever it claims."""
    env = world_env(tmp_path, faults=[{"what": {"stall_after": 0}}])
    slow = order(tmp_path / "launch", draft=DRAFT, env=env, timeout_s=3.0)
    with pytest.raises(LaunchError) as told, SIMULATED.serve(slow):
        pass
    assert told.value.cause is Cause.ENGINE_STALLED
    assert "healthy, but the first completion failed" in told.value.detail
