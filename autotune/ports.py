"""The seams: what the tuner needs from engines, load generators, trackers and exporters.

Rule: a folder is a registry. `engine: vllm` in a candidates file means autotune/engines/vllm.py,
whose last line is `PLUGIN: Engine = ...`. A plugin file is light to import: engines are children.
"""

import importlib
import importlib.util
import pkgutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from autotune.core.acceptance import SpecCounters
from autotune.core.host import HostLoad
from autotune.core.jsontype import JSON
from autotune.core.recommendation import Recommendation
from autotune.core.replychecks import NO_CHECKS, ReplyChecks
from autotune.core.study import StudySpec
from autotune.core.trial import EngineFacts, Record
from autotune.core.workload import Prompt, Workload
from autotune.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """One reading of the engine's metrics; cumulative but for the three gauges.

    What an engine does not show is None, not known; without the other four nothing is measured.
    """

    spec: SpecCounters | None
    generation_tokens: int
    prompt_tokens: int
    prefix_queries: int | None
    prefix_hits: int | None
    preemptions: int | None
    running: int
    waiting: int
    kv_cache_usage: float | None
    """Share of the KV cache in use, a fraction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOrder:
    """What one server is started with: a file for `--config` and what must stay out of it."""

    config_file: Path
    folder: Path
    """Where argv, environment, log and step record of this launch are kept."""
    launcher: tuple[str, ...]
    env: Mapping[str, str]
    live: bool
    model: str
    start_timeout_s: float = 600.0
    silence_s: float = 600.0
    """How long a starting engine may write nothing to its log."""
    fresh_cache: bool = False
    """Whether compiled code is kept in the launch's own folder: the shared cache did harm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What went on around a pass, besides serving it."""

    disturbances: Sequence[str] = ()
    """Lines of the engine's log that tell of work other than serving: they spoil a pass."""
    warnings: Mapping[str, int] = field(default_factory=dict)
    """What else the log warned of, and how often."""
    host: HostLoad | None = None
    kv_cache_peak: float | None = None
    """Highest share of the KV cache that was seen in use."""


class Watch(Protocol):
    """An eye on the surroundings of one pass."""

    def end(self) -> Surroundings:
        """What went on since the watch began; call it outside the timed window."""


class Server(Protocol):
    """A running engine; it is gone when its `with` block ends, however it ends."""

    @property
    def base_url(self) -> str: ...
    @property
    def model(self) -> str:
        """The model name that requests must carry."""

    @property
    def facts(self) -> EngineFacts: ...
    def counters(self) -> Counters:
        """Read the metrics; raises LaunchError when the engine is gone."""

    def wait_drained(self) -> None:
        """Return when nothing runs or waits; raises LaunchError when that does not happen."""

    def steps_by_k(self) -> Mapping[int, int]:
        """Engine steps since the last call, by the K the scheduler had in force (live only)."""

    def watch(self) -> Watch:
        """Begin to watch the engine's log and its machine."""

    def check_alive(self) -> None:
        """Raise LaunchError with the observed cause when the engine has ended."""


class Engine(Protocol):
    """How a server is started and what can be known beforehand."""

    def probe(self, launcher: tuple[str, ...]) -> Mapping[str, str]:
        """Engine and host facts that a result depends on, without starting the engine."""

    def speculative_fields(self, launcher: tuple[str, ...]) -> Mapping[str, JSON]:
        """The fields of the installed SpeculativeConfig with their defaults; empty: not known."""

    def command(self, order: ServeOrder, port: int) -> Sequence[str]:
        """The argv that serves this order; pure, so that --dry-run can print it."""

    def serve(self, order: ServeOrder) -> AbstractContextManager[Server]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request of a pass."""

    prompt: Prompt
    cache_salt: str
    xargs: Mapping[str, int] = field(default_factory=dict)
    """vLLM's `vllm_xargs`; carries the K of the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSample:
    """What the client saw of one request; times in seconds since the pass began."""

    prompt_id: str
    prompt_tokens: int
    output_tokens: int
    sent_s: float
    first_token_s: float | None
    end_s: float
    finish_reason: str | None
    error: str | None
    text: str
    chunk_s: tuple[float, ...]
    chunk_tokens: tuple[int, ...]
    """Output tokens carried by each chunk, from the running usage."""
    waited_s: float = 0.0
    """How long after `sent_s` the request was really sent. In an open loop `sent_s` is the time at
    which it was to arrive: what it then waited for a free slot is part of its latency."""
    json_text: str | None = None
    """What is to be JSON: the text without its reasoning; None where none was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """One pass as the client saw it."""

    samples: tuple[RequestSample, ...]
    duration_s: float
    client_cpu_s: float
    event_loop_lag_s: float = 0.0
    """The latest that the client came to a due timer: its timestamps may be this late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """How requests come by themselves."""

    request_rate: float
    """Requests per second."""
    seed: str
    """The same seed, number of requests and rate give the same arrival times."""


class LoadGenerator(Protocol):
    """Sends a pass and times it, with at most `concurrency` requests under way."""

    def run(
        self,
        server: Server,
        workload: Workload,
        requests: Sequence[Request],
        concurrency: int,
        arrivals: Arrivals | None = None,
    ) -> LoadResult:
        """One pass; without `arrivals` the next request is sent when another has ended."""


class Tracker(Protocol):
    """Shows a study elsewhere; must never stop it."""

    def record(self, record: Record, folder: Path) -> None: ...
    def finish(
        self,
        spec: StudySpec,
        result: Recommendation,
        files: Sequence[Path],
        checks: ReplyChecks = NO_CHECKS,
    ) -> None: ...


class Exporter(Protocol):
    """Renders the recommended deployment for one consumer."""

    filename: str

    def render(
        self, spec: StudySpec, result: Recommendation, provenance: Mapping[str, JSON]
    ) -> str:
        """The text of the file; empty where the answer has no such file."""


def names(family: str) -> tuple[str, ...]:
    """The plugins of a family, by file name; those that begin with `_` are none."""
    package = importlib.import_module(f"autotune.{family}")
    found = [m.name for m in pkgutil.iter_modules(package.__path__)]
    return tuple(n for n in found if not n.startswith("_") and _is_plugin(family, n))


def find(family: str, name: str) -> Any:  # noqa: ANN401 - annotated at the one call site
    """The plugin `autotune/<family>/<name>.py`; raises UserError that lists the known ones."""
    if name not in names(family):
        raise UserError(f"unknown {family[:-1]} {name!r}; there are: {', '.join(names(family))}")
    return importlib.import_module(f"autotune.{family}.{name}").PLUGIN


def _is_plugin(family: str, name: str) -> bool:
    spec = importlib.util.find_spec(f"autotune.{family}.{name}")
    if spec is None or spec.origin is None or spec.submodule_search_locations is not None:
        return False
    return "\nPLUGIN" in Path(spec.origin).read_text(encoding="utf-8")
