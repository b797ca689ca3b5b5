"""One launch on the simulated engine, with the real load generator: what a fake would believe."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from autotune.core.study import (
    JSON,
    Candidate,
    Level,
    Objective,
    Prompt,
    Sampling,
    Search,
    StudySpec,
    Target,
    Workload,
)
from autotune.core.trial import Launch, Pass, Stage
from autotune.ports import find
from autotune.tuning.paths import StudyPaths
from autotune.tuning.runner import Rig, run_launch
from autotune.tuning.samples import read
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


def conversations(split: str) -> tuple[Prompt, ...]:
    """Every other prompt has two later turns."""
    return tuple(
        replace(p, later_turns=("go on .", "and then ?") if i % 2 else ())
        for i, p in enumerate(prompts(split))
    )


def study(folder: Path, asked: Callable[[str], tuple[Prompt, ...]] = prompts) -> StudySpec:
    """Two streams, blocks of eight prompts, a draft that is right now and then."""
    return StudySpec(
        name="s",
        target=Target(model="/models/t", engine="simulated", env=world_env(folder)),
        workload=Workload(
            search=asked("search"),
            confirmation=asked("confirmation"),
            levels=(Level(concurrency=2),),
            max_tokens=20,
            sampling=Sampling(temperature=0.0),
        ),
        candidates=(Candidate(name="d", method="draft_model", model="/models/d"),),
        search=Search(num_speculative_tokens=(1, 2), min_blocks=2, max_blocks=2),
        objective=Objective(),
    )


def live_passes(spec: StudySpec, folder: Path) -> list[Pass]:
    """All passes of one live launch at K = 0, 1, 2."""
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
        load_generator=find("loadgens", "closed_loop"),
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
    return [p for r in records if r.measurement for p in r.measurement.passes]


def test_prompts_that_begin_alike_do_not_help_each_other(tmp_path: Path) -> None:
    """A system prompt of whole cache blocks is computed anew for every request."""
    measured = live_passes(study(tmp_path), tmp_path)
    assert [p.invalid for p in measured] == [None] * 6
    assert {p.prefix_hit_rate for p in measured} == {0.0}
    assert all(p.prompt_tokens > 8 * len(SYSTEM.split()) for p in measured)
    assert all(0 < p.client_lag_ms < 200 for p in measured)


def test_every_turn_of_a_conversation_is_a_request(tmp_path: Path) -> None:
    """Client and server agree about them, no turn finds the one before in the prefix cache."""
    spec = study(tmp_path, conversations)
    measured = live_passes(spec, tmp_path)
    assert [p.invalid for p in measured] == [None] * 6
    blocks = {p.block: spec.workload.block("search", 2, p.block) for p in measured}
    assert all(p.requests == sum(x.requests for x in blocks[p.block]) for p in measured)
    assert {p.requests for p in measured} != {8}
    assert {p.prefix_hit_rate for p in measured} == {0.0}
    samples = read(next(StudyPaths(root=tmp_path, name="s").launches.glob("*/")))
    assert len(samples) == sum(p.requests for p in measured)
    assert set(samples["prompt_id"].str.contains("#")) == {True, False}


def test_an_adapter_is_served_by_its_name(tmp_path: Path) -> None:
    """Requests that name it are answered, all others are not at stake."""
    spec = study(tmp_path)
    args: dict[str, JSON] = {"enable-lora": True, "lora-modules": ["sql=/adapters/sql"]}
    spec = replace(
        spec,
        workload=replace(spec.workload, lora="sql"),
        target=replace(spec.target, engine_args=args),
    )
    assert {p.invalid for p in live_passes(spec, tmp_path)} == {None}
