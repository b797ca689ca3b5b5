"""One live launch on the simulated engine, with the real load generators, for tests of passes."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from autotune.core.study import Candidate, Objective, Search, StudySpec, Target
from autotune.core.trial import Launch, Pass, Record, Stage
from autotune.core.workload import Level, Prompt, Sampling, Workload
from autotune.ports import find, names
from autotune.tuning.paths import StudyPaths
from autotune.tuning.runner import Rig, run_launch
from tests.engines.orders import world_env

SYSTEM = "You are a careful assistant of a small library in the mountains ." * 5
"""Sixty words: three whole blocks of the simulated prefix cache, four with the template's."""


def prompts(split: str) -> tuple[Prompt, ...]:
    """Different questions below one system prompt."""
    return tuple(
        Prompt(
            id=f"{split}-{i}",
            messages=(
                {"role": "system", "content": SYSTEM},
                {"role": "user", "content": f"question {i} of {split} ?"},
            ),
        )
        for i in range(16)
    )


CLOSED = Level(concurrency=2)


def conversations(split: str) -> tuple[Prompt, ...]:
    """Every other prompt has two later turns."""
    return tuple(
        replace(p, later_turns=("go on .", "and then ?") if i % 2 else ())
        for i, p in enumerate(prompts(split))
    )


def study(
    folder: Path,
    level: Level = CLOSED,
    asked: Callable[[str], tuple[Prompt, ...]] = prompts,
    /,
    **world: object,
) -> StudySpec:
    """Blocks of eight prompts, a draft that is right now and then."""
    return StudySpec(
        name="s",
        target=Target(model="/models/t", engine="simulated", env=world_env(folder, **world)),
        workload=Workload(
            search=asked("search"),
            confirmation=asked("confirmation"),
            levels=(level,),
            max_tokens=20,
            sampling=Sampling(temperature=0.0),
        ),
        candidates=(Candidate(name="d", method="draft_model", model="/models/d"),),
        search=Search(num_speculative_tokens=(1, 2), min_blocks=2, max_blocks=2),
        objective=Objective(),
    )


def live_launch(spec: StudySpec, folder: Path) -> list[Record]:
    """The records of one live launch at K = 0, 1, 2."""
    launch = Launch(
        stage=Stage.SCREEN,
        candidate=spec.candidates[0],
        num_speculative_tokens=(0, 1, 2),
        gpu_memory_utilization=0.9,
        live=True,
        max_blocks=2,
        why="a test",
    )
    rig = Rig(
        spec=spec,
        engine=find("engines", "simulated"),
        load_generators={name: find("loadgens", name) for name in names("loadgens")},
        paths=StudyPaths(root=folder, name="s"),
        fingerprint="f",
        notify=lambda _: None,
    )
    at = rig.paths.next_launch()
    config = at / "vllm.yaml"
    draft = spec.candidates[0].speculative_config(launch.k_max)
    args = {"model": "/models/t", "speculative-config": draft, **spec.target.engine_args}
    config.write_text(json.dumps(args))
    records = list(run_launch(launch, rig, config, at))
    assert [r.trial.num_speculative_tokens for r in records] == [0, 1, 2]
    return records


def live_passes(spec: StudySpec, folder: Path) -> list[Pass]:
    """All passes of one live launch, in their order."""
    records = live_launch(spec, folder)
    found = [p for r in records if r.measurement for p in r.measurement.passes]
    return sorted(found, key=lambda p: p.order)
