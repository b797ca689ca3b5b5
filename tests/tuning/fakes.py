"""An engine and a load generator that only keep books: the same numbers every time, no process.

A `World` holds what both share: a clock that passes move forward, the speeds, a log of what
happened in which order, and the trouble that a test wants.
"""

import contextlib
import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from autotune.core.acceptance import SpecCounters
from autotune.core.jsontype import JSON
from autotune.core.study import StudySpec
from autotune.core.trial import BASELINE, Cause, EngineFacts, Launch, Record, Stage
from autotune.core.workload import Workload
from autotune.errors import LaunchError
from autotune.ports import (
    Arrivals,
    Counters,
    LoadResult,
    Request,
    RequestSample,
    ServeOrder,
    Server,
    Surroundings,
    Watch,
)
from autotune.tuning.events import Event
from autotune.tuning.ledger import Ledger
from autotune.tuning.paths import StudyPaths
from autotune.tuning.runner import Rig, run_launch
from tests.builders import PROFILES, make_facts
from tests.builders_study import tput_of

FINGERPRINT = "f0f0f0f0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One use of the load generator."""

    candidate: str
    k: int
    concurrency: int
    salts: tuple[str, ...]
    prompts: tuple[str, ...]
    number: int
    """How many measured passes came before, over all launches; -1 for a warm-up."""
    arrivals: Arrivals | None = None
    """None in a closed loop."""

    @property
    def block(self) -> int:
        """The block of a measured pass, as its cache salt tells it."""
        return int(self.salts[0].split(".")[1])

    @property
    def dice(self) -> random.Random:
        """The noise of this pass: the same when it is run again, in whatever order."""
        place = self.salts[0].rsplit(".", 2)[0]
        return random.Random(f"{self.candidate}/{self.k}/{place}")


def always(temperature: float) -> bool:
    """At any temperature."""
    return True


def no_trouble(call: Call) -> str | None:
    """Nothing happens."""


def quiet(call: Call) -> Surroundings:
    """Nothing else goes on."""
    return Surroundings()


@dataclass(slots=True, kw_only=True)
class World:
    """What a fake engine and a fake load generator share."""

    pass_s: float = 1.0
    """How far each pass moves the clock."""
    trouble: Callable[[Call], str | None] = no_trouble
    """May raise, or give the error with which every request of the pass fails."""
    start_trouble: Callable[[str], object] = str
    """May raise when a server of this candidate is started."""
    end_trouble: Callable[[str], object] = str
    """May raise when a server of this candidate has ended."""
    force_k: int | None = None
    """The K that the scheduler has in force, whatever was asked for."""
    lag_s: float = 0.0
    """How late the client is in every pass."""
    around: Callable[[Call], Surroundings] = quiet
    """What goes on around a pass besides serving it."""
    accepts: Callable[[float], bool] = always
    """Whether drafts are accepted at this temperature."""
    now: float = 0.0
    orders: list[ServeOrder] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    servers: int = 0

    @property
    def passes(self) -> list[Call]:
        """The calls that were measured."""
        return [c for c in self.calls if c.number >= 0]

    def monotonic(self) -> float:
        """The clock of this world, in the place of time.monotonic."""
        return self.now

    def probe(self, launcher: tuple[str, ...]) -> Mapping[str, str]:
        """Facts of the engine."""
        return {"fake": "1"}

    def speculative_fields(self, launcher: tuple[str, ...]) -> Mapping[str, JSON]:
        """Nobody knows."""
        return {}

    def command(self, order: ServeOrder, port: int) -> Sequence[str]:
        """Nothing is started."""
        return ["fake"]

    @contextlib.contextmanager
    def serve(self, order: ServeOrder) -> Iterator[Server]:
        """A server, counted while it lives."""
        about = json.loads(order.config_file.read_text())
        self.log.append(f"start {about['candidate']}")
        self.orders.append(order)
        self.start_trouble(about["candidate"])
        self.servers += 1
        try:
            yield FakeServer(world=self, live=order.live, **about)
        finally:
            self.servers -= 1
            self.log.append("stop")
            self.end_trouble(about["candidate"])

    def run(
        self,
        server: Server,
        workload: Workload,
        requests: Sequence[Request],
        concurrency: int,
        arrivals: Arrivals | None = None,
    ) -> LoadResult:
        """One pass at the speed of the table."""
        assert isinstance(server, FakeServer)
        assert server.drained, "requests were sent to a busy server"
        k = requests[0].xargs.get("num_speculative_tokens", server.k_max)
        warm_up = requests[0].cache_salt.startswith("warm-up")
        call = Call(
            candidate=server.candidate,
            k=k,
            concurrency=concurrency,
            salts=tuple(r.cache_salt for r in requests),
            prompts=tuple(r.prompt.id for r in requests),
            number=-1 if warm_up else len(self.passes),
            arrivals=arrivals,
        )
        self.calls.append(call)
        self.log.append(f"pass K={k}")
        server.drained = False
        error = self.trouble(call)
        self.now += self.pass_s
        server.accepts = self.accepts(workload.sampling.temperature)
        return server.answer(call, workload.max_tokens, error)


@dataclass(slots=True, kw_only=True)
class FakeServer:
    """Counts what a vLLM would count."""

    world: World
    candidate: str
    k_max: int
    live: bool
    drained: bool = True
    accepts: bool = True
    tokens: int = 0
    spec: SpecCounters = field(default_factory=SpecCounters)
    steps: dict[int, int] = field(default_factory=dict)
    base_url: str = "http://127.0.0.1:1"
    model: str = "fake"

    @property
    def facts(self) -> EngineFacts:
        """What an engine says of itself."""
        return make_facts(k=self.k_max)

    def counters(self) -> Counters:
        """All that was counted so far."""
        return Counters(
            spec=self.spec if self.k_max else None,
            generation_tokens=self.tokens,
            prompt_tokens=0,
            prefix_queries=0,
            prefix_hits=0,
            preemptions=0,
            running=0,
            waiting=0,
            kv_cache_usage=0.0,
        )

    def wait_drained(self) -> None:
        """At once."""
        self.drained = True
        self.world.log.append("drained")

    def steps_by_k(self) -> Mapping[int, int]:
        """The steps since the last call."""
        steps, self.steps = self.steps, {}
        return steps

    def watch(self) -> Watch:
        """Tells, when the pass is over, what the world lets go on around it."""
        return FakeWatch(self.world)

    def check_alive(self) -> None:
        """It is."""

    def answer(self, call: Call, max_tokens: int, error: str | None) -> LoadResult:
        """Replies of full length at the table's speed, and the counts that go with them."""
        tokens = 0 if error else max_tokens * len(call.prompts)
        speed = tput_of(call.candidate, call.k)[call.concurrency]
        duration = len(call.prompts) * max_tokens / speed * math.exp(call.dice.gauss(0, 0.005))
        in_force = call.k if self.world.force_k is None else self.world.force_k
        self.steps[in_force] = self.steps.get(in_force, 0) + max(tokens, 1)
        self.tokens += tokens
        spec = drafted(call.candidate, call.k, tokens)
        nothing = replace(spec, accepted_tokens=0, accepted_per_pos=(0,) * call.k)
        self.spec += spec if self.accepts else nothing
        each = max_tokens if not error else 0
        samples = tuple(sample(prompt, each, duration, error) for prompt in call.prompts)
        return LoadResult(
            samples=samples,
            duration_s=duration,
            client_cpu_s=0.0,
            event_loop_lag_s=self.world.lag_s,
        )


@dataclass(frozen=True, slots=True)
class FakeWatch:
    """Looks at the latest pass."""

    world: World

    def end(self) -> Surroundings:
        """What went on around it."""
        return self.world.around(self.world.calls[-1])


def drafted(candidate: str, k: int, tokens: int) -> SpecCounters:
    """The counts of a draft model that wrote these tokens."""
    if k == 0:
        return SpecCounters()
    profile = PROFILES[candidate]
    rates = [*profile, *(profile[-1] * 0.7**i for i in range(1, k + 1))][:k]
    drafts = round(tokens / (1 + sum(rates)))
    per_position = tuple(round(rate * drafts) for rate in rates)
    return SpecCounters(
        drafts=drafts,
        draft_tokens=k * drafts,
        accepted_tokens=sum(per_position),
        accepted_per_pos=per_position,
    )


def sample(prompt: str, tokens: int, duration: float, error: str | None) -> RequestSample:
    """One reply, all of a piece."""
    return RequestSample(
        prompt_id=prompt,
        prompt_tokens=10,
        output_tokens=tokens,
        sent_s=0.0,
        first_token_s=None if error else 0.01,
        end_s=duration,
        finish_reason=None if error else "length",
        error=error,
        text="",
        chunk_s=() if error else (0.01, duration),
        chunk_tokens=() if error else (1, tokens - 1),
    )


def crash(detail: str, cause: Cause = Cause.CRASHED_RUNTIME) -> LaunchError:
    """What an engine raises when it finds its server gone."""
    return LaunchError(cause, detail, "see the log")


def write_config(launch: Launch, folder: Path) -> Path:
    """The fake engine's configuration file."""
    file = folder / "config.json"
    file.write_text(json.dumps({"candidate": launch.name, "k_max": launch.k_max}))
    return file


def make_rig(world: World, spec: StudySpec, root: Path) -> Rig:
    """A rig in which the world is both engine and load generator."""
    return Rig(
        spec=spec,
        engine=world,
        load_generators={"closed_loop": world, "open_loop": world},
        paths=StudyPaths(root=root, name=spec.name),
        fingerprint=FINGERPRINT,
        notify=world.events.append,
    )


def make_ledger(rig: Rig) -> Ledger:
    """The study's ledger, on disk."""
    rig.paths.folder.mkdir(parents=True, exist_ok=True)
    return Ledger(f"sqlite:///{rig.paths.database}", rig.spec)


def make_launch(
    spec: StudySpec,
    name: str = "eagle",
    ks: tuple[int, ...] = (0, 1, 2, 3, 5),
    *,
    max_blocks: int = 3,
    measure_s: float | None = None,
    start_timeout_s: float | None = None,
) -> Launch:
    """One launch as the plan would ask for it."""
    return Launch(
        stage=Stage.BASELINE if name == BASELINE else Stage.SCREEN,
        candidate=None if name == BASELINE else spec.candidate(name),
        num_speculative_tokens=ks,
        gpu_memory_utilization=0.4,
        live=len(ks) > 1,
        max_blocks=max_blocks,
        measure_s=measure_s,
        start_timeout_s=start_timeout_s,
        why="a test",
    )


def run_one(rig: Rig, launch: Launch, known: Sequence[Record] = ()) -> list[Record]:
    """The records of one launch, in a folder of its own."""
    folder = rig.paths.next_launch()
    return list(run_launch(launch, rig, write_config(launch, folder), folder, known))
