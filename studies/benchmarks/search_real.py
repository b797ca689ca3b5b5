"""One space on a real engine (search.yaml), searched as one does by hand, and by autotune.

    python studies/benchmarks/search_real.py grid --minutes 60    go on with the grid for an hour
    python studies/benchmarks/search_real.py tune --budget 26m    autotune's study, from nothing
    python studies/benchmarks/search_real.py again --rounds 3     all answers, side by side

Each part keeps what it has after every launch (results/search-real.jsonl, a line a launch), and the
grid and `again` go on from there. A sitting, one call of the grid, begins with a baseline of its
own, over which its points are compared: a machine is not the same for hours.

Rule: a launch of the grid is what one does by hand: static K, all blocks, every level.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from bench_rig import bench_rig
from recording import ROOT
from search_points import KEPT, SPACE, Point, answers, kept, searched

from autotune.config import load
from autotune.core.study import StudySpec
from autotune.core.trial import BASELINE, Launch, Record, Stage
from autotune.exporters.vllm_yaml import render_engine_args
from autotune.files import write_text
from autotune.tuning.journal import launch_of
from autotune.tuning.paths import StudyPaths
from autotune.tuning.runner import run_launch

PLAIN: Point = (BASELINE, 0)
FINISHED = {0, 3, 4, 6}


def main() -> None:
    """One part, as far as its minutes go."""
    args = _arguments()
    if args.part == "tune":
        _keep(_tuned(args.budget))
        return
    spec = load(SPACE).spec
    if args.part == "grid":
        points = [(c.name, k) for c in spec.candidates for k in spec.ks(c)]
        left = [p for p in points if p not in searched()]
        print(f"{len(points) - len(left)} of {len(points)} points are there")
        sitting = 1 + max((row["sitting"] for row in kept("grid")), default=0)
        _go(spec, "grid", [(p, sitting) for p in [PLAIN, *left]] if left else [], args.minutes)
        return
    there = {(row["candidate"], row["k"], row["sitting"]) for row in kept("again")}
    rounds = [(p, n) for n in range(args.rounds) for p in (PLAIN, *answers())]
    _go(spec, "again", [(p, n) for p, n in rounds if (*p, n) not in there], args.minutes)


def _go(spec: StudySpec, part: str, todo: Sequence[tuple[Point, int]], minutes: float) -> None:
    started = time.monotonic()
    for point, sitting in todo:
        if time.monotonic() - started > minutes * 60:
            print("the minutes are spent; run it again to go on")
            return
        began = time.monotonic()
        found = list(_launch(spec, point, Stage.SCREEN if part == "grid" else Stage.CONFIRM))
        seconds = time.monotonic() - began
        _keep({"part": part, "sitting": sitting, "seconds": seconds} | _row(point, found))


def _keep(row: dict[str, Any]) -> None:
    print(json.dumps({k: v for k, v in row.items() if k != "log_throughput"}), flush=True)
    with KEPT.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def _row(point: Point, found: Sequence[Record]) -> dict[str, Any]:
    row: dict[str, Any] = {"candidate": point[0], "k": point[1]}
    measured = [r for r in found if r.measurement]
    if not measured:
        return row | {"failed": [str(r.outcome) for r in found]}
    record = measured[0]
    passes = [p for p in record.measurement.passes if not p.invalid] if record.measurement else []
    levels = sorted({p.concurrency for p in passes})
    return row | {
        "device": record.facts.device if record.facts else "",
        "engine": record.facts.version if record.facts else "",
        "log_throughput": {
            str(c): {str(p.block): p.log_throughput for p in passes if p.concurrency == c}
            for c in levels
        },
    }


def _launch(spec: StudySpec, point: Point, stage: Stage) -> Iterator[Record]:
    name, k = point
    launch = Launch(
        stage=stage if k or stage is Stage.CONFIRM else Stage.BASELINE,
        candidate=spec.candidate(name) if k else None,
        num_speculative_tokens=(k,),
        gpu_memory_utilization=spec.search.gpu_memory_utilization[0],
        max_blocks=spec.search.max_blocks,
        why="one launch a point",
    )
    with tempfile.TemporaryDirectory() as folder:
        rig = bench_rig(spec, Path(folder))
        place = rig.paths.next_launch()
        text = render_engine_args(spec, launch.candidate, k, launch.gpu_memory_utilization)
        yield from run_launch(launch, rig, write_text(place / "vllm.yaml", text), place)


def _tuned(budget: str) -> dict[str, Any]:
    """`autotune run` from nothing, as a user would start it."""
    loaded = load(SPACE)
    paths = StudyPaths(root=loaded.root, name=loaded.spec.name)
    shutil.rmtree(paths.folder, ignore_errors=True)
    command = [sys.executable, "-m", "autotune", "run", str(SPACE), "--budget", budget]
    began = time.monotonic()
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    seconds = time.monotonic() - began
    if code not in FINISHED:
        raise SystemExit(f"autotune run ended with {code}")
    best = yaml.safe_load((paths.report / "best-config.yaml").read_text(encoding="utf-8"))
    speculates = best["verdict"] == "speculate"
    evidence = best["evidence"]
    launches = [x for f in sorted(paths.launches.iterdir()) if (x := launch_of(f))]
    return {
        "part": "tune",
        "sitting": 0,
        "seconds": seconds,
        "budget": budget,
        "launches": len(launches),
        "before_confirmation": sum(x.stage.prompts == "search" for x in launches),
        "verdict": best["verdict"],
        "basis": best["basis"],
        "device": re.sub(r"\s+", " ", best["device"]),
        "candidate": evidence["candidate"] if speculates else BASELINE,
        "k": evidence["num_speculative_tokens"] if speculates else 0,
        "finalist": [evidence.get("candidate"), evidence.get("num_speculative_tokens")],
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("part", choices=("grid", "tune", "again"))
    parser.add_argument("--minutes", type=float, default=60.0, help="start no launch after these")
    parser.add_argument("--rounds", type=int, default=3, help="of `again`")
    parser.add_argument("--budget", default="26m", help="of `tune`")
    return parser.parse_args()


if __name__ == "__main__":
    main()
