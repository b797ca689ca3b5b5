"""The demo's space on a real engine: the whole grid, one launch a point, beside autotune's study.

    python studies/benchmarks/search_real.py grid --minutes 60    go on with the grid for an hour
    python studies/benchmarks/search_real.py again --rounds 3     the answers, side by side

Each part keeps what it has after every launch (results/search-real.jsonl, a line a launch) and goes
on from there. Random search and Optuna's TPE need no launches of their own: a trial of theirs is a
launch of the grid, so they are replayed on the grid's (rivals.py).

Rule: a launch of the grid is what one does by hand: static K, all blocks, every level.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from recording import ROOT
from replaying import KS

from autotune.config import load
from autotune.core.study import StudySpec
from autotune.core.trial import BASELINE, Launch, Record, Stage
from autotune.exporters.vllm_yaml import render_engine_args
from autotune.files import write_text
from autotune.ports import Engine, LoadGenerator, find, names
from autotune.tuning.paths import StudyPaths
from autotune.tuning.runner import Rig, run_launch

KEPT = Path(__file__).parent / "results" / "search-real.jsonl"
BLOCKS = 4
Point = tuple[str, int]


def main() -> None:
    """One part, as far as its minutes go."""
    args = _arguments()
    spec = demo(BLOCKS)
    if args.part == "grid":
        points = [(BASELINE, 0), *((c.name, k) for c in spec.candidates for k in KS)]
        done = {(row["candidate"], row["k"]) for row in kept("grid")}
        left = [p for p in points if p not in done]
        print(f"{len(done)} of {len(points)} points are there")
        _go(spec, "grid", [(p, Stage.SCREEN, 0) for p in left], args.minutes)
        return
    answers: list[Point] = [(BASELINE, 0), *(_point(text) for text in args.answers)]
    done_rounds = {(row["candidate"], row["k"], row["repeat"]) for row in kept("again")}
    todo = [
        (p, Stage.CONFIRM, repeat)
        for repeat in range(args.rounds)
        for p in answers
        if (*p, repeat) not in done_rounds
    ]
    _go(spec, "again", todo, args.minutes)


def demo(blocks: int) -> StudySpec:
    """The demo's study over K = 1 to 8 for every candidate."""
    spec = load(ROOT / "candidates.yaml").spec
    return replace(
        spec,
        candidates=tuple(replace(c, num_speculative_tokens=KS) for c in spec.candidates),
        search=replace(spec.search, max_blocks=blocks),
    )


def kept(part: str) -> list[dict[str, Any]]:
    """The launches of a part that are there."""
    if not KEPT.exists():
        return []
    rows = [json.loads(line) for line in KEPT.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if row["part"] == part]


def _go(
    spec: StudySpec, part: str, todo: Sequence[tuple[Point, Stage, int]], minutes: float
) -> None:
    started = time.monotonic()
    for point, stage, repeat in todo:
        if time.monotonic() - started > minutes * 60:
            print("the minutes are spent; run it again to go on")
            return
        began = time.monotonic()
        rows = [_row(record) for record in _launch(spec, point, stage, repeat)]
        row = {"part": part, "repeat": repeat, "seconds": time.monotonic() - began} | rows[0]
        print(json.dumps({k: v for k, v in row.items() if k != "log_throughput"}))
        with KEPT.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def _row(record: Record) -> dict[str, Any]:
    measured = record.measurement
    return {
        "candidate": record.trial.candidate,
        "k": record.trial.num_speculative_tokens,
        "failed": None if measured else record.outcome.cause.value,  # type: ignore[union-attr]
        "log_throughput": {
            str(c): {str(p.block): p.log_throughput for p in measured.at(c)}
            for c in sorted({p.concurrency for p in measured.passes})
        }
        if measured
        else {},
    }


def _launch(spec: StudySpec, point: Point, stage: Stage, repeat: int) -> Iterator[Record]:
    name, k = point
    launch = Launch(
        stage=stage,
        candidate=spec.candidate(name) if k else None,
        num_speculative_tokens=(k,),
        gpu_memory_utilization=spec.search.gpu_memory_utilization[0],
        max_blocks=spec.search.max_blocks,
        repeat=repeat,
        why="one launch a point",
    )
    engine: Engine = find("engines", spec.target.engine)
    generators: dict[str, LoadGenerator] = {n: find("loadgens", n) for n in names("loadgens")}
    with tempfile.TemporaryDirectory() as folder:
        paths = StudyPaths(root=Path(folder), name="grid")
        rig = Rig(
            spec=replace(spec, name="grid"),
            engine=engine,
            load_generators=generators,
            paths=paths,
            fingerprint="",
            notify=lambda event: None,
        )
        place = paths.next_launch()
        text = render_engine_args(spec, launch.candidate, k, launch.gpu_memory_utilization)
        yield from run_launch(launch, rig, write_text(place / "vllm.yaml", text), place)


def _point(text: str) -> Point:
    name, _, k = text.rpartition(":")
    return name, int(k)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("part", choices=("grid", "again"))
    parser.add_argument("--minutes", type=float, default=60.0, help="start no launch after these")
    parser.add_argument("--rounds", type=int, default=3, help="of `again`")
    parser.add_argument("--answers", nargs="*", default=[], help="candidate:K of `again`")
    return parser.parse_args()


if __name__ == "__main__":
    main()
