"""The scheduler that takes K from the requests: one server, a whole curve.

Runs inside the engine process only. Each launch gets its own copy of this file on PYTHONPATH, so it
must depend on nothing but vLLM. Start the engine with `--scheduler-cls autotune_live_k.scheduler`.

vLLM's scheduler tells the worker at each step how many tokens to draft
(`SchedulerOutput.num_spec_tokens_to_schedule`, vllm/v1/core/sched/scheduler.py), looked up by batch
size in `dynamic_sd_lookup`. Here that table is set before each step to the K which the requests
being served carry in `vllm_xargs: {"num_speculative_tokens": K}`. What the scheduler then put in
force is written, one line a step, to the file named by AUTOTUNE_LIVE_K_FILE: that is the evidence.
"""

import os
from typing import Any

STEPS_FILE = "AUTOTUNE_LIVE_K_FILE"
XARG = "num_speculative_tokens"
FIELD = "num_spec_tokens_to_schedule"


class NoLiveKError(RuntimeError):
    """This vLLM does not hand a K to its worker at each step."""


def scheduler(vllm_config: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - vLLM's types
    """Build the live-K scheduler on the base that the engine's scheduling mode needs."""
    from vllm.v1.core.sched.output import SchedulerOutput  # noqa: PLC0415

    check_output(SchedulerOutput)
    return live(base_for(vllm_config.scheduler_config.async_scheduling))(
        vllm_config, *args, **kwargs
    )


def check_output(output: type[Any]) -> None:
    """Refuse an older engine in words that autotune knows from its log."""
    if FIELD not in getattr(output, "__annotations__", {}):
        raise NoLiveKError(f"autotune: no live K, this vLLM's SchedulerOutput has no {FIELD}")


def base_for(async_scheduling: object) -> type[Any]:
    """vLLM's own scheduler class for this mode; anything but a resolved bool is refused.

    A subclass of the wrong one would silently cost the engine its asynchronous scheduling.
    """
    if async_scheduling is True:
        from vllm.v1.core.sched.async_scheduler import AsyncScheduler  # noqa: PLC0415

        return AsyncScheduler  # type: ignore[no-any-return]
    if async_scheduling is False:
        from vllm.v1.core.sched.scheduler import Scheduler  # noqa: PLC0415

        return Scheduler  # type: ignore[no-any-return]
    raise TypeError(f"async_scheduling is {async_scheduling!r}; live K knows True and False only")


def live(base: type[Any]) -> type[Any]:
    """A subclass of a vLLM scheduler whose K follows the requests."""

    class LiveKScheduler(base):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
            super().__init__(*args, **kwargs)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            self._steps = os.open(os.environ[STEPS_FILE], flags, 0o644)

        def schedule(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            k = min(
                wanted(self.running or self.waiting, self.num_spec_tokens), self.num_spec_tokens
            )
            size = self.scheduler_config.max_num_seqs + 1
            self.dynamic_sd_lookup = [k] * size
            output = super().schedule(*args, **kwargs)
            if output.total_num_scheduled_tokens:
                os.write(self._steps, b"%d\n" % output.num_spec_tokens_to_schedule)
            return output

    return LiveKScheduler


def wanted(requests: Any, default: int) -> int:  # noqa: ANN401
    """The smallest K that the requests ask for; `default` for those that ask for none."""
    ks = [
        int((request.sampling_params.extra_args or {}).get(XARG, default))
        for request in requests
        if request.sampling_params is not None
    ]
    return max(min(ks, default=default), 0)
