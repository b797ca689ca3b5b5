"""How much do equal launches differ? Starts the demo's baseline several times and says.

The result (results/equal-launches.json) is where the prior of the launch effect in
autotune/core/noise.py comes from. Run it on a machine that does nothing else:

    python studies/smollm2-135m/equal_launches.py --launches 6
"""

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from autotune.config import load
from autotune.core.trial import Launch, Record, Stage
from autotune.exporters.vllm_yaml import render_engine_args
from autotune.files import write_text
from autotune.loadgens.closed_loop import ClosedLoop
from autotune.ports import Engine, find
from autotune.tuning.paths import StudyPaths
from autotune.tuning.runner import Rig, run_launch

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def main() -> None:
    """Launch, measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launches", type=int, default=6, help="how many equal launches")
    parser.add_argument("--blocks", type=int, default=3, help="blocks of prompts in each")
    parser.add_argument("--file", type=Path, default=ROOT / "candidates.yaml")
    args = parser.parse_args()
    records = [r for r in _launches(args.file, args.launches, args.blocks) if r.measurement]
    if len(records) < 2:  # noqa: PLR2004 - two are the least that can differ
        sys.exit("fewer than two launches gave a measurement: nothing to compare")
    levels = [level.concurrency for level in load(args.file).spec.workload.levels]
    result = {
        "launches": len(records),
        "blocks": args.blocks,
        "engine": records[0].facts.version if records[0].facts else "",
        "device": records[0].facts.device if records[0].facts else "",
        "levels": [_level(records, concurrency) for concurrency in levels],
        "sd_of_launch_mean": round(_launch_sd(records, levels), 5),
    }
    path = write_text(HERE / "results" / "equal-launches.json", json.dumps(result, indent=1) + "\n")
    print(f"written: {path.relative_to(ROOT)}")


def _launches(file: Path, launches: int, blocks: int) -> Sequence[Record]:
    loaded = load(file)
    engine: Engine = find("engines", loaded.spec.target.engine)
    spec = replace(loaded.spec, name="equal-launches")
    found: list[Record] = []
    with tempfile.TemporaryDirectory() as folder:
        paths = StudyPaths(root=Path(folder), name=spec.name)
        rig = Rig(
            spec=spec,
            engine=engine,
            load_generators={"closed_loop": ClosedLoop()},
            paths=paths,
            fingerprint="",
            notify=lambda event: None,
        )
        for repeat in range(launches):
            launch = _baseline(spec.search.gpu_memory_utilization[0], blocks, repeat)
            place = paths.next_launch()
            text = render_engine_args(spec, None, 0, launch.gpu_memory_utilization)
            found += run_launch(launch, rig, write_text(place / "vllm.yaml", text), place)
            print(f"launch {repeat + 1}: {_shown(found[-1], spec.workload.primary.concurrency)}")
    return found


def _baseline(gpu_memory_utilization: float, blocks: int, repeat: int) -> Launch:
    return Launch(
        stage=Stage.BASELINE,
        candidate=None,
        num_speculative_tokens=(0,),
        gpu_memory_utilization=gpu_memory_utilization,
        repeat=repeat,
        max_blocks=blocks,
        why="one of several equal launches",
    )


def _level(records: Sequence[Record], concurrency: int) -> dict[str, object]:
    means = [statistics.fmean(_logs(r, concurrency)) for r in records]
    spread = statistics.stdev(means)
    print(f"concurrency {concurrency}: standard deviation {spread:.2%} of the throughput")
    return {
        "concurrency": concurrency,
        "output_throughput": [round(math.exp(mean), 2) for mean in means],
        "sd_of_log_throughput": round(spread, 5),
    }


def _launch_sd(records: Sequence[Record], levels: Sequence[int]) -> float:
    """The launch effect: each launch's mean over its levels is one observation."""
    means = [statistics.fmean(statistics.fmean(_logs(r, c)) for c in levels) for r in records]
    spread = statistics.stdev(means)
    print(f"launch effect: standard deviation {spread:.2%}")
    return spread


def _logs(record: Record, concurrency: int) -> list[float]:
    """Log throughput of each valid block."""
    passes = record.measurement.at(concurrency) if record.measurement else ()
    return [p.log_throughput for p in passes]


def _shown(record: Record, concurrency: int) -> str:
    logs = _logs(record, concurrency)
    if not logs:
        return f"no measurement: {record.outcome}"
    speed = math.exp(statistics.fmean(logs))
    return f"{speed:.1f} tok/s at concurrency {concurrency}"


if __name__ == "__main__":
    main()
