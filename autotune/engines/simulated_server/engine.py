"""Continuous batching: one task, one step at a time, at the pace of the cost model.

Rule: a step is planned (who runs, with which K), takes the time that the model says, and is then
applied as a whole. Steps keep to deadlines, so that the work of the event loop does not add up.
"""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from autotune.engines.simulated_server.cache import Cache
from autotune.engines.simulated_server.launch import Launch, out_of_memory
from autotune.engines.simulated_server.log import log_compilation, log_grammar
from autotune.engines.simulated_server.metrics import Metrics
from autotune.engines.simulated_server.model import (
    acceptance_rates,
    accepted_tokens,
    draft_length,
    draft_seconds,
    noise_factor,
    prompt_scale,
    step_seconds,
    unit,
)
from autotune.engines.simulated_server.request import Request

ASIDES = {"compiles_at": log_compilation, "grammar_rejects_at": log_grammar}
"""What the log may say when so many requests have finished."""
_MOST_BEHIND_S = 0.25


class EngineDiedError(Exception):
    """The engine is gone; the message is the last line of the traceback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    k: int
    prefills: tuple[Request, ...]
    prefill_tokens: int
    drafts: tuple[tuple[Request, int], ...]


class Engine:
    """The scheduler and the model runner of one launch."""

    def __init__(self, launch: Launch, metrics: Metrics, live_k_file: TextIO | None) -> None:
        self._launch = launch
        self._metrics = metrics
        self._live_k_file = live_k_file
        self._cache = Cache(launch)
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []
        self._work = asyncio.Event()
        self._steps = 0
        self._model_s = 0.0
        self._finished = 0
        self._deadline = 0.0
        self.dead = False

    def submit(self, request: Request) -> None:
        """Queue a request; what it gets comes through its `outputs`."""
        self._waiting.append(request)
        self._work.set()

    def abort(self, request: Request) -> None:
        """Forget a request whose client is gone; one that has finished is left alone."""
        for queue in (self._waiting, self._running):
            if request in queue:
                queue.remove(request)
                self._metrics.observe_finish("abort")
        self._update_gauges()

    async def run(self) -> None:
        """Step for ever; raises EngineDiedError."""
        try:
            while True:
                await self._suffer()
                if not (self._running or self._waiting):
                    await self._wait_for_work()
                step = self._plan()
                await self._pace(step)
                self._apply(step)
        finally:
            self.dead = True
            for request in (*self._running, *self._waiting):
                request.outputs.put_nowait(None)

    async def _suffer(self) -> None:
        """The faults that strike between steps."""
        stall = self._launch.fault("stall_after")
        if stall is not None and self._finished >= stall:
            await asyncio.Event().wait()
        crash = self._launch.fault("crash_after_requests")
        if crash is not None and self._finished >= crash:
            raise EngineDiedError(
                "RuntimeError: CUDA error: an illegal memory access was encountered"
            )

    async def _wait_for_work(self) -> None:
        while not self._waiting:  # whoever set the event may have been aborted since
            self._work.clear()
            await self._work.wait()
        self._deadline = time.monotonic()

    # -- who runs, with which K

    def _plan(self) -> _Step:
        asking = list(self._running or self._waiting)
        self._admit()
        self._preempt()
        k = self._step_k(asking)
        prefills = tuple(r for r in self._running if not r.computed)
        step = _Step(
            k=k,
            prefills=prefills,
            prefill_tokens=sum(self._tokens_to_prefill(r) for r in prefills),
            drafts=tuple((r, self._draft_length(r, k)) for r in self._running if r.computed),
        )
        self._update_gauges()
        self._note_k(k)
        limit = self._launch.fault("oom_at_load")
        if limit is not None and len(self._running) * (k + 1) >= limit:
            raise EngineDiedError(out_of_memory(self._launch))
        return step

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self._launch.options.max_num_seqs:
            if self._cache.usage([*self._running, self._waiting[0]]) > 1.0:
                return
            self._running.append(self._waiting.popleft())

    def _preempt(self) -> None:
        while len(self._running) > 1 and self._cache.usage(self._running) > 1.0:
            victim = self._running.pop()
            victim.computed = False
            self._waiting.appendleft(victim)
            self._metrics.add("num_preemptions")

    def _step_k(self, asking: Sequence[Request]) -> int:
        """K of this step, where it is live: the smallest that those want who run already."""
        spec = self._launch.speculation
        if spec is None:
            return 0
        if self._launch.options.scheduler_cls is None:
            ignored = self._launch.fault("schedule_ignored") is not None
            return spec.k_max if ignored else spec.scheduled_k(len(self._running))
        wanted = [r.wanted_k for r in asking if r.wanted_k is not None]
        k = max(0, min([spec.k_max, *wanted]))
        if spec.method.asserts_k and k != spec.k_max:
            raise EngineDiedError(
                "    assert num_speculative_tokens == self.num_speculative_tokens\n"
                "           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
                "AssertionError"
            )
        return k if spec.method.hears_k else spec.k_max

    def _tokens_to_prefill(self, request: Request) -> int:
        hits = self._cache.enter(request)
        if hits is None:
            return request.length
        self._metrics.add("prefix_cache_queries", request.prompt_tokens)
        self._metrics.add("prefix_cache_hits", hits)
        return request.length - hits

    def _draft_length(self, request: Request, k: int) -> int:
        """Drafted tokens, trimmed where the context ends."""
        spec = self._launch.speculation
        if spec is None:
            return 0
        key = (*request.key, request.produced)
        drafted = k if request.loops else draft_length(spec.method, spec.draft, k, key)
        return max(0, min(drafted, self._launch.options.max_model_len - request.length - 1))

    def _note_k(self, k: int) -> None:
        if self._live_k_file:
            self._live_k_file.write(f"{k}\n")
            self._live_k_file.flush()

    # -- how long it takes

    async def _pace(self, step: _Step) -> None:
        seconds = self._seconds(step)
        self._model_s += seconds
        self._steps += 1
        now = time.monotonic()
        self._deadline = max(self._deadline, now - _MOST_BEHIND_S)
        self._deadline += seconds * self._launch.world.time_scale
        await asyncio.sleep(max(0.0, self._deadline - now))

    def _seconds(self, step: _Step) -> float:
        spec = self._launch.speculation
        seconds = step_seconds(
            self._launch.world.step,
            batch=len(step.prefills) + len(step.drafts),
            drafted=sum(drafted for _, drafted in step.drafts),
            prefill=step.prefill_tokens,
            draft_s=draft_seconds(spec.method, spec.draft, step.k) if spec else 0.0,
        )
        return seconds * noise_factor(
            self._launch.world.noise,
            launch=self._launch.seed_key,
            step=self._steps,
            at_s=self._model_s,
        )

    # -- what comes of it

    def _apply(self, step: _Step) -> None:
        present = {id(request) for request in self._running}
        for request in step.prefills:
            if id(request) in present:
                self._start(request, step.k)
        for request, drafted in step.drafts:
            if id(request) in present:
                self._advance(request, 1 + self._verify(request, drafted))
        self._running = [request for request in self._running if not request.done]
        self._update_gauges()

    def _start(self, request: Request, k: int) -> None:
        if request.produced == 0:
            self._metrics.observe_first_token(time.monotonic() - request.arrived)
            self._metrics.add("prompt_tokens", request.prompt_tokens)
            request.speculated = k > 0
        request.computed = True
        self._advance(request, 1)

    def _verify(self, request: Request, drafted: int) -> int:
        """How many drafted tokens pass; those after the end of the reply count, as in vLLM."""
        spec = self._launch.speculation
        if spec is None or drafted == 0:
            return 0
        scale = prompt_scale(spec.draft, request.key)
        if self._launch.fault("zero_acceptance", temperature=request.temperature) is not None:
            scale = 0.0
        rates = acceptance_rates(spec.draft, drafted, scale=scale)
        accepted = accepted_tokens(rates, unit(*request.key, "accept", request.produced))
        accepted = drafted if request.loops else accepted
        self._metrics.observe_draft(drafted=drafted, accepted=accepted)
        return accepted

    def _advance(self, request: Request, tokens: int) -> None:
        output = request.advance(tokens)
        self._metrics.add("generation_tokens", output.tokens)
        if output.finish_reason is None:
            return
        self._finished += 1
        self._metrics.observe_finish(output.finish_reason)
        if self._launch.fault("counters_reset_at") == self._finished:
            self._metrics.reset()
        for what, tell in ASIDES.items():
            if self._launch.fault(what) == self._finished:
                tell()

    def _update_gauges(self) -> None:
        self._metrics.gauges["vllm:num_requests_running"] = float(len(self._running))
        self._metrics.gauges["vllm:num_requests_waiting"] = float(len(self._waiting))
        usage = min(1.0, self._cache.usage(self._running))
        self._metrics.gauges["vllm:kv_cache_usage_perc"] = usage
