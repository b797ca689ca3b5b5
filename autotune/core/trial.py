"""What is done and what comes of it: Launch, Pass, Trial, Measurement, Failure, Record.

Rules: a launch is the unit of work, a trial the unit of knowledge; a failure is a value with a
cause, never a number; a pass keeps what was measured, valid or not, and says why not.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal

from autotune.core.acceptance import SpecCounters
from autotune.core.host import HostLoad
from autotune.core.jsontype import JSON
from autotune.core.latency import Latencies, RequestTimes, pooled_latencies
from autotune.core.steps import StepStats
from autotune.core.study import Candidate

BASELINE = "baseline"


class Stage(StrEnum):
    """Why a launch exists, in the order of a study."""

    BASELINE = "baseline"
    SCREEN = "screen"
    REFINE = "refine"
    CONFIRM = "confirm"
    SCHEDULE = "schedule"
    """Beside the confirmation, in its rounds: the winner with a schedule of K per batch size."""

    @property
    def prompts(self) -> str:
        """Which prompts are used: the confirmation sees none of the search's."""
        return "confirmation" if self in {Stage.CONFIRM, Stage.SCHEDULE} else "search"

    @property
    def searches(self) -> bool:
        """Whether it looks for the answer: what it lacks is decided while it runs."""
        return self in {Stage.SCREEN, Stage.REFINE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One life of a server: what it is started with and what it is to measure."""

    stage: Stage
    candidate: Candidate | None
    """None is plain decoding, the denominator of every speedup."""
    num_speculative_tokens: tuple[int, ...]
    """The K to measure, rising; (0,) for the baseline."""
    gpu_memory_utilization: float
    live: bool = False
    """K changes from pass to pass without a restart (design: live K)."""
    repeat: int = 0
    """Which of several equal launches this is."""
    max_blocks: int
    measure_s: float | None = None
    """Wall-clock bound on the measuring, start and warm-up apart; None: until max_blocks. What was
    begun gets its least number of blocks beyond it."""
    limit_s: float | None = None
    """Where the measuring ends whatever it has by then: with the budget, or where the confirmation
    needs the rest."""
    start_timeout_s: float | None = None
    """What the budget leaves for the start; None: no less than the search allows any start."""
    why: str

    @property
    def name(self) -> str:
        """The candidate's name, or `baseline`."""
        return self.candidate.name if self.candidate else BASELINE

    @property
    def k_max(self) -> int:
        """The K that the server is started with; 0 means without speculation."""
        return max(self.num_speculative_tokens)

    def trial(self, num_speculative_tokens: int) -> "Trial":
        """The trial that this launch answers for one K."""
        return Trial(
            candidate=self.name,
            method=self.candidate.method if self.candidate else None,
            model=self.candidate.model if self.candidate else None,
            weights=self.candidate.weights if self.candidate else "",
            num_speculative_tokens=num_speculative_tokens,
            gpu_memory_utilization=self.gpu_memory_utilization,
            settings=self.candidate.settings if self.candidate else {},
            engine_args=self.candidate.engine_args if self.candidate else {},
            variant_of=self.candidate.variant_of if self.candidate else "",
            stage=self.stage,
            live=self.live,
            repeat=self.repeat,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One point of the space, at one stage of the study."""

    candidate: str
    method: str | None = None
    model: str | None = None
    weights: str = ""
    num_speculative_tokens: int
    gpu_memory_utilization: float
    settings: Mapping[str, JSON] = field(default_factory=dict)
    engine_args: Mapping[str, JSON] = field(default_factory=dict)
    """Those of the candidate; the target's are in the fingerprint."""
    variant_of: str = ""
    """The candidate of the file, where `candidate` is a variant of it."""
    stage: Stage
    live: bool = False
    repeat: int = 0

    @property
    def family(self) -> str:
        """The candidate's name in the file, or `baseline`."""
        return self.variant_of or self.candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One block of prompts at one K and one concurrency, as measured."""

    num_speculative_tokens: int
    concurrency: int
    block: int
    order: int
    """Position in the sequence of passes of the launch, from 0."""
    started_s: float
    """Seconds since the server was ready."""
    duration_s: float
    requests: int
    failed: int
    prompt_tokens: int
    output_tokens: int
    spec: SpecCounters | None
    """None without speculation or when the engine shows no such counters."""
    steps: StepStats | None = None
    """None when the replies were too short to tell."""
    prefix_hit_rate: float | None = 0.0
    """None, like the preemptions, when the engine does not count it."""
    preemptions: int | None = 0
    kv_cache_peak: float | None = None
    """Highest share of the KV cache that was seen in use, a fraction. Read about once a second:
    what lay between two readings is not in it. None when nobody looked."""
    client_lag_ms: float = 0.0
    """The latest that the client came to a due timer."""
    client_cpu: float = 0.0
    """CPU time of the client over the duration of the pass, a fraction of one core."""
    looping: int = 0
    """Replies that are mostly one phrase over and over."""
    host: HostLoad | None = None
    """What the engine's machine gave meanwhile; None when nobody looked."""
    warnings: Mapping[str, int] = field(default_factory=dict)
    """What the engine's log warned of during the pass, and how often."""
    request_rate: float | None = None
    """Requests per second of an open loop; None: the closed loop."""
    times: RequestTimes | None = None
    """None without a successful request."""
    queued: int = 0
    """Requests of an open loop that found no free slot on arrival."""
    not_json: int = 0
    """Replies that a `response_format` wanted to be JSON and that are none; those cut at their
    max_tokens cannot be, and are not counted."""
    invalid: str | None = None
    """Why this pass must not enter a curve."""
    remedy: str = ""
    """What to do about that."""

    @property
    def output_throughput(self) -> float:
        """Output tokens per second of wall clock, all streams together."""
        return self.output_tokens / self.duration_s

    @property
    def log_throughput(self) -> float:
        """Natural logarithm of the output throughput."""
        return math.log(self.output_throughput)

    @property
    def latencies(self) -> Latencies | None:
        """Median and p99 over the requests of this pass; None as in `pooled_latencies`."""
        return pooled_latencies([self.times])

    @property
    def mean_e2e_ms(self) -> float | None:
        """Mean milliseconds from arrival to the end of the reply; None without a success."""
        return self.times.mean_e2e_ms if self.times else None

    @property
    def log_speed(self) -> float:
        """What is paired and averaged: larger is faster, a difference is a log speedup.

        The closed loop has the log of its output throughput. In an open loop the rate fixes the
        throughput, so it has minus the log of the mean E2E latency. That is the same quantity: with
        c requests always under way, Little's law makes throughput and E2E latency reciprocal.
        """
        if self.request_rate is None:
            return self.log_throughput
        if self.mean_e2e_ms is None:
            raise ValueError(f"a pass at {self.request_rate:g} requests/s without a success")
        return -math.log(self.mean_e2e_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """All passes of one trial, the invalid ones included."""

    passes: tuple[Pass, ...]
    cut_short: bool = False
    """The launch ended early for another reason than this trial: interrupted, another K failed, its
    time was up for good."""
    pruned: str | None = None
    """Why it was stopped before its time: it cannot be the answer."""
    kind: Literal["measurement"] = "measurement"

    def at(self, concurrency: int) -> tuple[Pass, ...]:
        """The valid passes at one concurrency, in block order; the last one of a block counts."""
        last = {p.block: p for p in self.passes if p.concurrency == concurrency and not p.invalid}
        return tuple(last[block] for block in sorted(last))

    def at_rates(self, rates: Mapping[int, float | None]) -> "Measurement":
        """Without the passes at another request rate than a concurrency now has.

        Whatever is taken away, the launch is no longer a whole one.
        """
        kept = tuple(
            p for p in self.passes if rates.get(p.concurrency, p.request_rate) == p.request_rate
        )
        if kept == self.passes:
            return self
        return replace(self, passes=kept, cut_short=True, pruned=None)

    @property
    def spec(self) -> SpecCounters | None:
        """The pooled counters of all valid passes; None without any."""
        counters = [p.spec for p in self.passes if p.spec is not None and not p.invalid]
        return sum(counters[1:], counters[0]) if counters else None


class Cause(StrEnum):
    """Why a launch or a trial gave no number; core/causes.py has what is known of each."""

    OUT_OF_MEMORY_START = "out_of_memory_start"
    OUT_OF_MEMORY_CAPTURE = "out_of_memory_capture"
    OUT_OF_MEMORY_RUNTIME = "out_of_memory_runtime"
    UTILIZATION_TOO_HIGH = "utilization_too_high"
    KV_CACHE_TOO_SMALL = "kv_cache_too_small"
    MEMORY_OCCUPIED = "memory_occupied"
    START_TIMEOUT = "start_timeout"
    START_STALLED = "start_stalled"
    CRASHED_START = "crashed_start"
    ENGINE_REFUSED = "engine_refused"
    ENGINE_TOO_OLD = "engine_too_old"
    LAUNCHER_BROKEN = "launcher_broken"
    MISSING_PACKAGE = "missing_package"
    MISSING_WEIGHTS = "missing_weights"
    WEIGHTS_MISMATCH = "weights_mismatch"
    VOCABULARY_MISMATCH = "vocabulary_mismatch"
    COMPILE_CACHE = "compile_cache"
    PORT_TAKEN = "port_taken"
    WRONG_SERVER = "wrong_server"
    PROXY_ANSWERED = "proxy_answered"
    DISK_FULL = "disk_full"
    WEDGED = "wedged"
    TRANSIENT = "transient"
    CRASHED_RUNTIME = "crashed_runtime"
    ENGINE_STALLED = "engine_stalled"
    LOAD_FAILED = "load_failed"
    SAMPLING_BROKEN = "engine_sampling_broken"
    DRAFT_USELESS = "draft_useless"
    LIVE_K_NOT_IN_FORCE = "live_k_not_in_force"
    NO_TIME = "no_time"
    INTERRUPTED = "interrupted"


TRIES = 2
"""Launches of one point that may end in vain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A trial that ended without a measurement, and what to do about it."""

    cause: Cause
    detail: str
    remedy: str = ""
    after_s: float | None = None
    """How long the engine lived; None when it did not end by itself."""
    kind: Literal["failure"] = "failure"


Outcome = Measurement | Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """What the engine said of itself: read back, not assumed."""

    version: str
    device: str
    kv_cache_tokens: int | None
    boot_s: float
    kv_cache_bytes: int | None = None
    """What the KV cache takes, as the engine's log has it: to a hundredth of a GiB."""
    memory_bytes: int | None = None
    """The device's memory, of which gpu_memory_utilization is a share; the RAM on a CPU."""
    resolved: Mapping[str, JSON] = field(default_factory=dict)
    """Resolved settings that matter, such as speculative_config, max_model_len, dtype."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A trial and its outcome, with the launch it came from."""

    trial: Trial
    outcome: Outcome
    launch_id: str
    fingerprint: str
    """Hash of what must be equal for two records to be compared: target, workload, engine."""
    why: str
    facts: EngineFacts | None = None

    @property
    def measurement(self) -> Measurement | None:
        """The outcome if it is a measurement."""
        return self.outcome if isinstance(self.outcome, Measurement) else None
