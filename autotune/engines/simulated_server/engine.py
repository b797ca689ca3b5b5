"""Continuous batching: one task, one step at a time, at the pace of the cost model.

Rule: a step is planned (who runs, with which K), takes the time that the model says, and is then
applied as a whole. Steps keep to deadlines, so that the work of the event loop does not add up.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TextIO

from autotune.engines.simulated_server.launch import BLOCK_SIZE, Launch, out_of_memory
from autotune.engines.simulated_server.metrics import Metrics
from autotune.engines.simulated_server.model import (
    accepted_tokens,
    acceptance_rates,
    draft_length,
    draft_seconds,
    noise_factor,
    prompt_scale,
    reply_tokens,
    step_seconds,
    unit,
    word,
)

_MOST_BEHIND_S = 0.25


class EngineDiedError(Exception):
    """The engine is gone; the message is the last line of the traceback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What one step gave one request."""

    text: str
    tokens: int
    finish_reason: str | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Sequence_:
    """One request on its way through the engine."""

    key: tuple[object, ...]
    """Seeds all of its draws: the prompt, and what makes a sampled reply differ."""
    blocks: tuple[int, ...]
    prompt_tokens: int
    max_tokens: int
    ignore_eos: bool
    temperature: float
    wanted_k: int | None
    arrived: float = field(default_factory=time.monotonic)
    outputs: asyncio.Queue[Output | None] = field(default_factory=asyncio.Queue)
    produced: int = 0
    computed: bool = False
    """Whether its KV cache is filled; a preempted request starts again."""
    speculated: bool = False

    @property
    def length(self) -> int:
        """Tokens in its context."""
        return self.prompt_tokens + self.produced


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    k: int
    prefills: tuple[Sequence_, ...]
    drafts: tuple[tuple[Sequence_, int], ...]


class Engine:
    """The scheduler and the model runner of one launch."""

    def __init__(self, launch: Launch, metrics: Metrics, live_k_file: TextIO | None) -> None:
        self._launch = launch
        self._world = launch.world
        self._metrics = metrics
        self._live_k_file = live_k_file
        self._waiting: deque[Sequence_] = deque()
        self._running: list[Sequence_] = []
        self._cached: dict[int, None] = {}
        self._work = asyncio.Event()
        self._steps = 0
        self._model_s = 0.0
        self._finished = 0
        self._deadline = 0.0
        self.dead = False

    def submit(self, sequence: Sequence_) -> None:
        """Queue a request; its outputs come through `sequence.outputs`, None if the engine dies."""
        self._waiting.append(sequence)
        self._work.set()

    def abort(self, sequence: Sequence_) -> None:
        """Forget a request whose client is gone; one that has finished is left alone."""
        for queue in (self._waiting, self._running):
            if sequence in queue:
                queue.remove(sequence)
                self._metrics.observe_finish("abort")
        self._update_gauges()

    async def run(self) -> None:
        """Step for ever; raises EngineDiedError."""
        try:
            while True:
                if not (self._running or self._waiting):
                    await self._wait_for_work()
                await self._check_faults()
                step = self._plan()
                await self._pace(step)
                self._apply(step)
        finally:
            self.dead = True
            for sequence in (*self._running, *self._waiting):
                sequence.outputs.put_nowait(None)

    async def _wait_for_work(self) -> None:
        self._work.clear()
        await self._work.wait()
        self._deadline = time.monotonic()

    async def _check_faults(self) -> None:
        stall = self._launch.fault("stall_after")
        if stall is not None and self._finished >= stall:
            await asyncio.Event().wait()
        crash = self._launch.fault("crash_after_requests")
        if crash is not None and self._finished >= crash:
            message = "RuntimeError: CUDA error: an illegal memory access was encountered"
            raise EngineDiedError(message)

    # -- planning

    def _plan(self) -> _Step:
        self._admit()
        self._preempt()
        k = self._step_k()
        running = self._running
        step = _Step(
            k=k,
            prefills=tuple(s for s in running if not s.computed),
            drafts=tuple((s, self._draft_length(s, k)) for s in running if s.computed),
        )
        self._update_gauges()
        self._note_k(k)
        limit = self._launch.fault("oom_at_load")
        if limit is not None and len(running) * (k + 1) >= limit:
            raise EngineDiedError(out_of_memory(self._launch))
        return step

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self._launch.options.max_num_seqs:
            candidate = self._waiting[0]
            if self._blocks([*self._running, candidate]) > self._capacity:
                return
            self._running.append(self._waiting.popleft())

    def _preempt(self) -> None:
        while len(self._running) > 1 and self._blocks(self._running) > self._capacity:
            victim = self._running.pop()
            victim.computed = False
            self._waiting.appendleft(victim)
            self._metrics.add("num_preemptions")

    @property
    def _capacity(self) -> int:
        return self._launch.kv_tokens // BLOCK_SIZE

    def _blocks(self, sequences: Sequence[Sequence_]) -> int:
        ahead = 1 + self._launch.k_max
        return sum(-(-(s.length + ahead) // BLOCK_SIZE) for s in sequences)

    def _step_k(self) -> int:
        """K of this step: the smallest that a running request wants, where K is live."""
        spec = self._launch.speculation
        if spec is None:
            return 0
        if self._launch.options.scheduler_cls is None:
            return spec.scheduled_k(len(self._running))
        wanted = [s.wanted_k for s in self._running if s.wanted_k is not None]
        k = max(0, min([spec.k_max, *wanted]))
        if spec.method.asserts_k and k != spec.k_max:
            raise EngineDiedError(
                "    assert num_speculative_tokens == self.num_speculative_tokens\nAssertionError"
            )
        return k if spec.method.hears_k else spec.k_max

    def _draft_length(self, sequence: Sequence_, k: int) -> int:
        spec = self._launch.speculation
        room = self._launch.options.max_model_len - sequence.length - 1
        if spec is None or room <= 0:
            return 0
        if self._loops(sequence):
            return min(k, room)
        key = (*sequence.key, sequence.produced)
        return min(draft_length(spec.method, spec.draft, k, key), room)

    def _note_k(self, k: int) -> None:
        if self._live_k_file and self._launch.options.scheduler_cls:
            self._live_k_file.write(f"{k}\n")
            self._live_k_file.flush()

    # -- the passing of time

    async def _pace(self, step: _Step) -> None:
        seconds = self._seconds(step)
        self._model_s += seconds
        self._steps += 1
        now = time.monotonic()
        self._deadline = max(self._deadline, now - _MOST_BEHIND_S)
        self._deadline += seconds * self._world.time_scale
        await asyncio.sleep(max(0.0, self._deadline - now))

    def _seconds(self, step: _Step) -> float:
        spec = self._launch.speculation
        seconds = step_seconds(
            self._world.step,
            batch=len(step.prefills) + len(step.drafts),
            drafted=sum(drafted for _, drafted in step.drafts),
            prefill=sum(self._prefill(sequence) for sequence in step.prefills),
            draft_s=draft_seconds(spec.method, spec.draft, step.k) if spec else 0.0,
        )
        return seconds * noise_factor(
            self._world.noise,
            launch=self._launch.seed_key,
            step=self._steps,
            at_s=self._model_s,
        )

    def _prefill(self, sequence: Sequence_) -> int:
        """Tokens to compute for a request that enters, its cached prefix left out."""
        hits = 0
        if self._launch.options.prefix_caching:
            hits = self._cached_tokens(sequence)
            self._metrics.add("prefix_cache_queries", sequence.prompt_tokens)
            self._metrics.add("prefix_cache_hits", hits)
        return sequence.length - hits

    def _cached_tokens(self, sequence: Sequence_) -> int:
        known = 0
        for block in sequence.blocks:
            if block not in self._cached:
                break
            known += 1
        for block in sequence.blocks:
            self._cached.pop(block, None)
            self._cached[block] = None
        while len(self._cached) > self._capacity:
            self._cached.pop(next(iter(self._cached)))
        return min(known, (sequence.prompt_tokens - 1) // BLOCK_SIZE) * BLOCK_SIZE

    # -- results

    def _apply(self, step: _Step) -> None:
        for sequence in step.prefills:
            if sequence in self._running:
                self._start(sequence, step.k)
        for sequence, drafted in step.drafts:
            if sequence in self._running:
                self._advance(sequence, 1 + self._verify(sequence, drafted))
        self._running = [s for s in self._running if s.produced < self._end(s)]
        self._update_gauges()

    def _start(self, sequence: Sequence_, k: int) -> None:
        if sequence.produced == 0:
            self._metrics.observe_first_token(time.monotonic() - sequence.arrived)
            self._metrics.add("prompt_tokens", sequence.prompt_tokens)
            sequence.speculated = k > 0
        sequence.computed = True
        self._advance(sequence, 1)

    def _verify(self, sequence: Sequence_, drafted: int) -> int:
        """How many drafted tokens pass; those after the end of the reply count, as in vLLM."""
        spec = self._launch.speculation
        if spec is None or drafted == 0:
            return 0
        scale = prompt_scale(spec.draft, sequence.key)
        if self._launch.fault("zero_acceptance", temperature=sequence.temperature) is not None:
            scale = 0.0
        rates = acceptance_rates(spec.draft, drafted, scale=scale)
        accepted = accepted_tokens(rates, unit(*sequence.key, "accept", sequence.produced))
        if self._loops(sequence):
            accepted = drafted
        self._metrics.observe_draft(drafted=drafted, accepted=accepted)
        return accepted

    def _advance(self, sequence: Sequence_, tokens: int) -> None:
        before, end = sequence.produced, self._end(sequence)
        sequence.produced = min(before + tokens, end)
        text = "".join(self._text(sequence, at) for at in range(before, sequence.produced))
        reason = self._finish_reason(sequence) if sequence.produced == end else None
        gained = sequence.produced - before
        self._metrics.add("generation_tokens", gained)
        sequence.outputs.put_nowait(Output(text=text, tokens=gained, finish_reason=reason))
        if reason is not None:
            self._finish(reason)

    def _finish(self, reason: str) -> None:
        self._finished += 1
        self._metrics.observe_finish(reason)
        if self._launch.fault("counters_reset_at") == self._finished:
            self._metrics.reset()

    def _eos(self, sequence: Sequence_) -> int:
        """Tokens of the whole reply, the end-of-sequence token included."""
        return reply_tokens(self._world.reply, sequence.key) + 1

    def _end(self, sequence: Sequence_) -> int:
        room = self._launch.options.max_model_len - sequence.prompt_tokens
        limit = min(sequence.max_tokens, room)
        return limit if sequence.ignore_eos else min(limit, self._eos(sequence))

    def _finish_reason(self, sequence: Sequence_) -> str:
        ended = not sequence.ignore_eos and sequence.produced >= self._eos(sequence)
        return "stop" if ended else "length"

    def _text(self, sequence: Sequence_, at: int) -> str:
        if not sequence.ignore_eos and at == self._eos(sequence) - 1:
            return ""
        if self._loops(sequence) and at >= _LOOP_FROM:
            at = _LOOP_FROM + at % 4
        spoken = word(self._world.reply, sequence.key, at, speculating=sequence.speculated)
        return f" {spoken}" if at else spoken

    def _loops(self, sequence: Sequence_) -> bool:
        fault = self._launch.fault("repetition_loop", temperature=sequence.temperature)
        return fault is not None

    def _update_gauges(self) -> None:
        used = self._blocks(self._running) / self._capacity
        self._metrics.gauges["vllm:num_requests_running"] = float(len(self._running))
        self._metrics.gauges["vllm:num_requests_waiting"] = float(len(self._waiting))
        self._metrics.gauges["vllm:kv_cache_usage_perc"] = min(1.0, used)


_LOOP_FROM = 8
