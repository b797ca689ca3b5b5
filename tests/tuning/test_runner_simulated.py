"""One launch on the simulated engine, with the real load generator: what a fake would believe."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

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
from autotune.ports import find, names
from autotune.tuning import samples
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
) -> StudySpec:
    """Blocks of eight prompts, a draft that is right now and then."""
    return StudySpec(
        name="s",
        target=Target(model="/models/t", engine="simulated", env=world_env(folder)),
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
    return [p for r in records if r.measurement for p in r.measurement.passes]


def test_prompts_that_begin_alike_do_not_help_each_other(tmp_path: Path) -> None:
    """A system prompt of whole cache blocks is computed anew for every request."""
    measured = live_passes(study(tmp_path), tmp_path)
    assert [p.invalid for p in measured] == [None] * 6
    assert {p.prefix_hit_rate for p in measured} == {0.0}
    assert all(p.prompt_tokens > 8 * len(SYSTEM.split()) for p in measured)
    assert all(0 < p.client_lag_ms < 200 for p in measured)


def arrivals(folder: Path) -> dict[tuple[int, int], list[tuple[str, float, float, float]]]:
    """(block, K) to prompt, scheduled arrival, wait and end of each request."""
    frame = samples.read(folder / "studies" / "s" / "launches" / "001")
    found: dict[tuple[int, int], list[tuple[str, float, float, float]]] = {}
    for row in frame.to_dict("records"):
        key = (row["block"], row["num_speculative_tokens"])
        request = (row["prompt_id"], row["sent_s"], row["waited_s"], row["end_s"])
        found.setdefault(key, []).append(request)
    return found


def test_requests_come_at_the_rate_at_every_k(tmp_path: Path) -> None:
    """The same arrivals for the same prompts of a block, at the rate asked for, in another block
    others; the pass keeps rate, latency and lag."""
    rate = 40.0
    measured = live_passes(study(tmp_path, Level(concurrency=2, request_rate=rate)), tmp_path)
    assert [p.invalid for p in measured] == [None] * 6
    found = arrivals(tmp_path)
    plans = {key: [(name, due) for name, due, _, _ in rows] for key, rows in found.items()}
    for (block, _), plan in plans.items():
        assert plan == plans[block, 0]
        assert len(plan) == 8
        assert plan[-1][1] == pytest.approx(8 / rate, abs=1e-5)
    assert [due for _, due in plans[0, 0]] != [due for _, due in plans[1, 0]]
    for p in measured:
        assert p.request_rate == rate
        assert p.mean_e2e_ms
        assert p.log_speed == -math.log(p.mean_e2e_ms)
        assert 0 < p.client_lag_ms < 200


def test_a_queue_at_the_slots_is_latency_and_not_lag(tmp_path: Path) -> None:
    """Far more requests than the server can take: two under way, the others wait their time."""
    measured = live_passes(study(tmp_path, Level(concurrency=2, request_rate=2000.0)), tmp_path)
    assert [p.invalid for p in measured] == [None] * 6
    for rows in arrivals(tmp_path).values():
        starts = sorted(due + waited for _, due, waited, _ in rows)
        ends = sorted(end for _, _, _, end in rows)
        assert all(start >= end for start, end in zip(starts[2:], ends, strict=False))
        assert rows[-1][2] > max(end - due - waited for _, due, waited, end in rows)
    waits = [1e3 * max(waited for _, _, waited, _ in rows) for rows in arrivals(tmp_path).values()]
    assert max(p.client_lag_ms for p in measured) < max(waits)


@pytest.mark.parametrize("rate", [None, 40.0])
def test_every_turn_of_a_conversation_is_a_request(tmp_path: Path, rate: float | None) -> None:
    """Client and server agree about them, no turn finds the one before in the prefix cache; in the
    open loop, too, where the first turn alone has an arrival."""
    spec = study(tmp_path, Level(concurrency=2, request_rate=rate), conversations)
    measured = live_passes(spec, tmp_path)
    assert [p.invalid for p in measured] == [None] * 6
    blocks = {p.block: spec.workload.block("search", 2, p.block) for p in measured}
    assert all(p.requests == sum(x.requests for x in blocks[p.block]) for p in measured)
    assert {p.requests for p in measured} != {8}
    assert {p.prefix_hit_rate for p in measured} == {0.0}
    found = samples.read(next(StudyPaths(root=tmp_path, name="s").launches.glob("*/")))
    assert len(found) == sum(p.requests for p in measured)
    assert set(found["prompt_id"].str.contains("#")) == {True, False}


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
