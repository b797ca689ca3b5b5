"""A real vLLM over the demo's models: one server, a few prompts, what the counters say."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from autotune.config import load
from autotune.core.acceptance import SpecCounters
from autotune.core.jsontype import JSON
from autotune.core.study import Candidate, StudySpec
from autotune.exporters.vllm_yaml import render_engine_args
from autotune.ports import Engine, LoadGenerator, LoadResult, Request, ServeOrder, Server, find

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "studies" / "smollm2-135m" / "models"
START_TIMEOUT_S = 600.0
MEMORY = 0.3
"""gpu_memory_utilization: on a CPU the share of the RAM, which others may need, too."""

NEEDS = [
    pytest.mark.live,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
    pytest.mark.skipif(
        not (MODELS / "eagle" / "config.json").exists(),
        reason="the demo's models are not built: make models",
    ),
]
"""The marks of every test that starts the engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One pass: what the scheduler had in force, what was counted, what came back."""

    steps: Mapping[int, int]
    spec: SpecCounters | None
    result: LoadResult

    @property
    def rate(self) -> float:
        """Accepted over drafted tokens."""
        assert self.spec is not None
        return self.spec.accepted_tokens / self.spec.draft_tokens


def demo() -> StudySpec:
    """The demo's study, for its target, prompts and sampling."""
    return load(ROOT / "candidates.yaml").spec


@contextmanager
def serving(
    folder: Path,
    candidate: Candidate | None,
    k: int,
    *,
    live: bool,
    **engine_args: JSON,
) -> Iterator[Server]:
    """The demo's target, with a draft or plain, started as the tuner starts it."""
    with serving_at(folder, candidate, k, live=live, share=MEMORY, engine_args=engine_args) as it:
        yield it


@contextmanager
def serving_at(
    folder: Path,
    candidate: Candidate | None,
    k: int,
    *,
    live: bool,
    share: float,
    engine_args: Mapping[str, JSON],
) -> Iterator[Server]:
    """The same at another gpu_memory_utilization."""
    spec = demo()
    target = replace(spec.target, engine_args={**spec.target.engine_args, **engine_args})
    spec = replace(spec, target=target)
    engine: Engine = find("engines", "vllm")
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "vllm.yaml"
    config.write_text(render_engine_args(spec, candidate, k, share), encoding="utf-8")
    order = ServeOrder(
        config_file=config,
        folder=folder,
        launcher=(),
        env=spec.target.env,
        live=live,
        model=spec.target.model,
        start_timeout_s=START_TIMEOUT_S,
    )
    with engine.serve(order) as server:
        yield server


def one_pass(
    server: Server, *, k: int | None, prompts: int = 6, max_tokens: int = 24, concurrency: int = 1
) -> Seen:
    """Send some prompts, each with its K if one is given, and read the counters around them."""
    generator: LoadGenerator = find("loadgens", "closed_loop")
    workload = demo().workload
    xargs = {} if k is None else {"num_speculative_tokens": k}
    short = [p for p in workload.search if len(str(p.messages)) < 400][:prompts]
    requests = [Request(prompt=p, cache_salt=f"{k}", xargs=xargs) for p in short]
    server.wait_drained()
    server.steps_by_k()
    before = server.counters().spec
    result = generator.run(server, replace(workload, max_tokens=max_tokens), requests, concurrency)
    server.check_alive()
    server.wait_drained()
    after = server.counters().spec
    assert [sample.error for sample in result.samples] == [None] * prompts
    delta = after - before if after is not None and before is not None else None
    return Seen(steps=server.steps_by_k(), spec=delta, result=result)


def draft(name: str, method: str, model: Path | None, **settings: JSON) -> Candidate:
    """A candidate."""
    path = None if model is None else str(model)
    return Candidate(name=name, method=method, model=path, settings=settings)


def untrained(folder: Path, layers: int) -> Path:
    """A draft that is bad on purpose: the target after its first layers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(MODELS.parent))
        importlib.import_module("models").untrained_draft(MODELS / "target", folder, layers)
    for name in ("models", "composing", "rawtensors"):
        sys.modules.pop(name, None)
    return folder
