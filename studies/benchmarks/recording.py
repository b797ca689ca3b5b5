"""Real launches to learn the noise from: the demo's target, plain and with a draft, in turn.

Rules: A B A B, so that the arms share the machine's hours; what is kept is every pass as the tuner
would keep it, without paths or names of the machine; another run replaces it as a whole.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pydantic import TypeAdapter

from autotune.config import load
from autotune.core.study import StudySpec
from autotune.core.trial import Launch, Record, Stage
from autotune.exporters.vllm_yaml import render_engine_args
from autotune.files import write_text
from autotune.ports import Engine, LoadGenerator, find, names
from autotune.tuning.paths import StudyPaths
from autotune.tuning.runner import Rig, run_launch

ROOT = Path(__file__).resolve().parents[2]
RECORDS = Path(__file__).parent / "results" / "records.jsonl"
CANDIDATE = "eagle"
K = 2
LIVE_KS = (0, 1, 2)
_RECORD: TypeAdapter[Record] = TypeAdapter(Record)


def record(rounds: int, blocks: int) -> list[Record]:
    """Launch and measure, and keep the records; prints what it does."""
    found = list(_measured(load(ROOT / "candidates.yaml").spec, rounds, blocks))
    lines = [_RECORD.dump_json(_nameless(r)).decode() for r in found]
    write_text(RECORDS, "\n".join(lines) + "\n")
    return found


def read_records() -> list[Record]:
    """What the last recording kept."""
    lines = RECORDS.read_text(encoding="utf-8").splitlines()
    return [_RECORD.validate_json(line) for line in lines]


def _measured(spec: StudySpec, rounds: int, blocks: int) -> Iterator[Record]:
    engine: Engine = find("engines", spec.target.engine)
    generators: dict[str, LoadGenerator] = {n: find("loadgens", n) for n in names("loadgens")}
    with tempfile.TemporaryDirectory() as folder:
        paths = StudyPaths(root=Path(folder), name="recording")
        rig = Rig(
            spec=replace(spec, name="recording", search=replace(spec.search, max_blocks=blocks)),
            engine=engine,
            load_generators=generators,
            paths=paths,
            fingerprint="",
            notify=lambda event: None,
        )
        for launch in _launches(spec, rounds, blocks):
            place = paths.next_launch()
            text = render_engine_args(
                spec, launch.candidate, launch.k_max, launch.gpu_memory_utilization
            )
            print(f"launch {place.name}: {launch.name}, K = {launch.num_speculative_tokens}")
            yield from run_launch(launch, rig, write_text(place / "vllm.yaml", text), place)


def _launches(spec: StudySpec, rounds: int, blocks: int) -> Iterator[Launch]:
    """One live launch for the ratios of K to K, then plain and static ones in turn."""
    plain = Launch(
        stage=Stage.BASELINE,
        candidate=None,
        num_speculative_tokens=(0,),
        gpu_memory_utilization=spec.search.gpu_memory_utilization[0],
        max_blocks=blocks,
        why="a recording",
    )
    draft = replace(plain, stage=Stage.REFINE, candidate=spec.candidate(CANDIDATE))
    yield replace(draft, num_speculative_tokens=LIVE_KS, live=True)
    for repeat in range(rounds):
        yield replace(plain, repeat=repeat)
        yield replace(draft, num_speculative_tokens=(K,), repeat=repeat)


def _nameless(found: Record) -> Record:
    facts = found.facts and replace(found.facts, resolved={})
    trial = replace(found.trial, model=None, weights="")
    return replace(found, trial=trial, facts=facts)
