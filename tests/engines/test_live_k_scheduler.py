"""The scheduler that runs inside vLLM, over stand-ins for vLLM's two schedulers."""

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from autotune.core.trial import Cause
from autotune.engines import _signs, live_k

K_MAX = 5


class Base:
    """What of vLLM's Scheduler is used: its queues, its table, and the K it looks up there."""

    def __init__(self, vllm_config: Any, *, log_stats: bool) -> None:  # noqa: ANN401
        self.log_stats = log_stats
        self.scheduler_config = vllm_config.scheduler_config
        self.num_spec_tokens = K_MAX
        self.running: list[SimpleNamespace] = []
        self.waiting: list[SimpleNamespace] = []
        self.dynamic_sd_lookup: list[int] | None = None
        self.work = True

    def schedule(self) -> SimpleNamespace:
        """As vLLM: K by the number of requests that run after this step's admissions."""
        assert self.dynamic_sd_lookup is not None
        batch = min(len(self.running) + len(self.waiting), self.scheduler_config.max_num_seqs)
        return SimpleNamespace(
            num_spec_tokens_to_schedule=self.dynamic_sd_lookup[batch],
            total_num_scheduled_tokens=7 if self.work else 0,
        )


class AsyncBase(Base):
    """The other one."""


class Output:
    """What of vLLM's SchedulerOutput is looked at."""

    num_spec_tokens_to_schedule: int = 0


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-ins where vLLM would be imported from; gives the steps file."""
    for name in ("vllm", "vllm.v1", "vllm.v1.core", "vllm.v1.core.sched"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    for name, key, base in (
        ("vllm.v1.core.sched.scheduler", "Scheduler", Base),
        ("vllm.v1.core.sched.async_scheduler", "AsyncScheduler", AsyncBase),
        ("vllm.v1.core.sched.output", "SchedulerOutput", Output),
    ):
        module = ModuleType(name)
        setattr(module, key, base)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv(live_k.STEPS_FILE, str(tmp_path / "steps"))
    return tmp_path / "steps"


def made(async_scheduling: object = False) -> Any:  # noqa: ANN401, FBT002
    """A scheduler as vLLM makes it: the class called with its config and its own arguments."""
    config = SimpleNamespace(async_scheduling=async_scheduling, max_num_seqs=4)
    return live_k.scheduler(SimpleNamespace(scheduler_config=config), log_stats=True)


def asking(*ks: int | None) -> list[SimpleNamespace]:
    """Requests that carry these K; None carries nothing."""
    extra = [None if k is None else {live_k.XARG: k} for k in ks]
    return [SimpleNamespace(sampling_params=SimpleNamespace(extra_args=x)) for x in extra]


@pytest.mark.parametrize(("mode", "base"), [(False, Base), (True, AsyncBase)])
def test_the_base_follows_the_scheduling_mode(steps: Path, mode: object, base: type[Base]) -> None:
    """The engine's own class for its mode, with the arguments that the engine gave."""
    scheduler = made(mode)
    assert isinstance(scheduler, base)
    assert isinstance(scheduler, AsyncBase) == (base is AsyncBase)
    assert scheduler.log_stats


@pytest.mark.parametrize("mode", [None, 1, "auto"])
def test_a_mode_that_is_not_resolved_is_refused(steps: Path, mode: object) -> None:
    """A subclass of the wrong base would silently cost asynchronous scheduling."""
    with pytest.raises(TypeError, match="async_scheduling is"):
        made(mode)


@pytest.mark.parametrize(
    ("running", "k"),
    [
        ((3,), 3),
        ((3, 3, 3), 3),
        ((4, 2, 3), 2),  # the least that anyone wants
        ((0,), 0),
        ((None,), K_MAX),  # who asks for nothing gets K_max
        ((None, 2), 2),
        ((9,), K_MAX),  # never above what the launch was built for
        ((-1,), 0),
    ],
)
def test_k_is_the_least_of_those_that_run(
    steps: Path, running: Sequence[int | None], k: int
) -> None:
    """Within [0, K_max]; the table says the same for every batch size."""
    scheduler = made()
    scheduler.running = asking(*running)
    assert scheduler.schedule().num_spec_tokens_to_schedule == k
    assert scheduler.dynamic_sd_lookup == [k] * 5


def test_those_that_wait_count_only_when_nothing_runs(steps: Path) -> None:
    """The first step of a pass has its K already; later arrivals change no step under way."""
    scheduler = made()
    scheduler.waiting = asking(1, 2)
    assert scheduler.schedule().num_spec_tokens_to_schedule == 1
    scheduler.running = asking(3)
    assert scheduler.schedule().num_spec_tokens_to_schedule == 3


def test_requests_without_sampling_parameters(steps: Path) -> None:
    """Pooling requests have none: they do not matter."""
    scheduler = made()
    scheduler.running = [SimpleNamespace(sampling_params=None), *asking(2)]
    assert scheduler.schedule().num_spec_tokens_to_schedule == 2
    scheduler.running = [SimpleNamespace(sampling_params=None)]
    assert scheduler.schedule().num_spec_tokens_to_schedule == K_MAX


def test_each_step_with_work_is_one_line(steps: Path) -> None:
    """Steps that schedule nothing are no evidence; a line is there as soon as the step is."""
    scheduler = made()
    for k, work in ((2, True), (2, False), (0, True), (4, True)):
        scheduler.running, scheduler.work = asking(k), work
        scheduler.schedule()
    assert steps.read_text() == "2\n0\n4\n"


def test_the_file_goes_on_after_another_engine_process(steps: Path) -> None:
    """Lines are appended: what was written before stays."""
    steps.write_text("1\n")
    scheduler = made()
    scheduler.running = asking(3)
    scheduler.schedule()
    assert steps.read_text() == "1\n3\n"


def test_an_engine_that_hands_its_worker_no_k_is_refused() -> None:
    """In words that autotune reads in its log: the study goes on with one launch per K."""

    class Older:
        """As before 2026."""

        num_scheduled_tokens: dict[str, int]

    with pytest.raises(live_k.NoLiveKError) as told:
        live_k.check_output(Older)
    log = f"(EngineCore pid=7) ERROR 11-30 04:10:05 [core.py:9] NoLiveKError: {told.value}\n"
    error = _signs.diagnose(log, starting=True, status="exit status 1")
    assert error.cause is Cause.LIVE_K_NOT_IN_FORCE
    live_k.check_output(Output)
