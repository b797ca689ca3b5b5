"""Real launches to learn the noise from: the demo's target, plain and with a draft, in turn.

Rules: A B A B, so that the arms share the machine's hours; what is kept is every pass as the tuner
would keep it, without paths or names of the machine; another run replaces it as a whole.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bench_rig import bench_rig
from pydantic import TypeAdapter

from autotune.config import load
from autotune.core.study import StudySpec
from autotune.core.trial import BASELINE, Launch, Measurement, Pass, Record, Stage, Trial
from autotune.exporters.vllm_yaml import render_engine_args
from autotune.files import write_text
from autotune.tuning.runner import run_launch

ROOT = Path(__file__).resolve().parents[2]
RECORDS = Path(__file__).parent / "results" / "records.jsonl"
QUIET = Path(__file__).parent / "results" / "quiet"
"""The passes of a demo study, a file a launch, from a machine that did nothing else."""
CANDIDATE = "eagle"
K = 2
LIVE_KS = (0, 1, 2)
_RECORD: TypeAdapter[Record] = TypeAdapter(Record)
_PASS: TypeAdapter[Pass] = TypeAdapter(Pass)


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


def quiet_records() -> list[Record]:
    """The launches of a demo study, from a machine that did nothing else.

    Its passes stand there launch by launch: K = 0 alone is plain decoding, the first for the search
    and later ones for the confirmation; several K are a live launch; one K is the winner's.
    """
    found: list[Record] = []
    for file in sorted(QUIET.glob("*.jsonl")):
        passes = [_PASS.validate_json(line) for line in file.read_text("utf-8").splitlines()]
        ks = sorted({p.num_speculative_tokens for p in passes})
        plain, live = ks == [0], len(ks) > 1
        first = not any(r.trial.candidate == BASELINE for r in found)
        stage = (Stage.BASELINE if first else Stage.CONFIRM) if plain else Stage.CONFIRM
        for k in ks:
            trial = Trial(
                candidate=BASELINE if plain else f"draft of {file.stem}" if live else "winner",
                num_speculative_tokens=k,
                gpu_memory_utilization=0.0,
                stage=Stage.SCREEN if live else stage,
                live=live,
            )
            mine = tuple(p for p in passes if p.num_speculative_tokens == k)
            found.append(
                Record(
                    trial=trial,
                    outcome=Measurement(passes=mine),
                    launch_id=file.stem,
                    fingerprint="",
                    why="a demo study",
                )
            )
    return found


def _measured(spec: StudySpec, rounds: int, blocks: int) -> Iterator[Record]:
    named = replace(spec, name="recording", search=replace(spec.search, max_blocks=blocks))
    with tempfile.TemporaryDirectory() as folder:
        rig = bench_rig(named, Path(folder))
        for launch in _launches(spec, rounds, blocks):
            place = rig.paths.next_launch()
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
