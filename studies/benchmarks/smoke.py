"""Equal arms through HTTP: the whole path from the simulated engine's socket to the interval.

A smoke test of the calibration: too few pairs to count coverage, enough to see that nothing between
server and interval is wrong by a factor. The lookup never finds anything, so the arm that
speculates is as fast as the plain one.

Rule: nothing is faked between the socket and the interval.
"""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bench_rig import bench_rig
from calibration import make_spec

from autotune.core.noise import noise_of
from autotune.core.speedup import curves
from autotune.core.statistics import Interval
from autotune.core.study import Candidate, StudySpec, Target
from autotune.core.trial import Launch, Record, Stage
from autotune.core.workload import Level, Prompt
from autotune.tuning.runner import run_launch

WORLD = {
    "time_scale": 0.3,
    "startup_s": 0.0,
    "step": {"t_verify_token": 0.0},
    "noise": {"launch_sigma": 0.01, "step_sigma": 0.05, "drift": 0.01},
    "reply": {"low": 32, "high": 32},
    "drafts": {"ngram": {"acceptance": [0.5], "t_draft": 0.0, "coverage": 0.0}},
}
CANDIDATE = Candidate(name="equal", method="ngram")
BLOCKS = 3


def equal_pairs(pairs: int) -> list[Interval]:
    """The speedup of a draft that changes nothing, so often."""
    with tempfile.TemporaryDirectory() as folder, _world(Path(folder) / "world.json"):
        return [_pair(Path(folder), number) for number in range(pairs)]


@contextmanager
def _world(file: Path) -> Iterator[None]:
    file.write_text(json.dumps(WORLD), encoding="utf-8")
    before = os.environ.get("AUTOTUNE_SIM_WORLD")
    os.environ["AUTOTUNE_SIM_WORLD"] = str(file)
    try:
        yield
    finally:
        os.environ.pop("AUTOTUNE_SIM_WORLD")
        if before is not None:
            os.environ["AUTOTUNE_SIM_WORLD"] = before


def _pair(root: Path, number: int) -> Interval:
    spec = _spec(number)
    rig = bench_rig(spec, root)
    records: list[Record] = []
    for launch in _launches(spec):
        place = rig.paths.next_launch()
        records += run_launch(launch, rig, _config(place, launch), place)
    found = curves(spec, records, noise_of(records, spec.workload.levels))
    return next(c.points[0].speedup for c in found if c.concurrency is None)


def _spec(number: int) -> StudySpec:
    prompts = tuple(
        Prompt(id=f"{number}-{i}", messages=({"role": "user", "content": f"prompt {number} {i}"},))
        for i in range(32)
    )
    spec = make_spec()
    workload = replace(
        spec.workload, search=prompts, confirmation=prompts, levels=(Level(concurrency=2),)
    )
    return replace(
        spec,
        name=f"equal-{number}",
        target=Target(model="equal", engine="simulated"),
        workload=workload,
        candidates=(CANDIDATE,),
    )


def _launches(spec: StudySpec) -> Iterator[Launch]:
    plain = Launch(
        stage=Stage.BASELINE,
        candidate=None,
        num_speculative_tokens=(0,),
        gpu_memory_utilization=0.5,
        max_blocks=BLOCKS,
        why="an equal pair",
    )
    yield plain
    yield replace(plain, stage=Stage.REFINE, candidate=CANDIDATE, num_speculative_tokens=(1,))


def _config(folder: Path, launch: Launch) -> Path:
    k = launch.k_max
    config: dict[str, object] = {"model": "equal", "seed": int(folder.name)}
    if launch.candidate:
        config["speculative-config"] = launch.candidate.speculative_config(k)
    file = folder / "vllm.yaml"
    file.write_text(json.dumps(config), encoding="utf-8")
    return file
