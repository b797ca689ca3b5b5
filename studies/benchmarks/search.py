"""Does the search find what is there, and with how few launches? Replayed studies, without a clock.

    python studies/benchmarks/search.py --replay    landscapes, kept in results/search.json
    python studies/benchmarks/search.py --render    renew docs/benchmarks.md from what is kept

The real engine's part is search_real.py; both are rendered here.

Rule: every figure of the document comes from results/search.json and results/search-real.jsonl.
"""

import argparse
import json
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import search_real_report
from calibration import Noise
from fitting import fit
from landscapes import draw
from recording import quiet_records
from replaying import KS, Machine, make_study, replay
from rivals import Measuring, grid, random, seconds_of, tpe
from search_report import BEGIN, END, render

from autotune.core.trial import BASELINE, Record
from autotune.files import write_text

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "search.json"
DOCUMENT = HERE.parent.parent / "docs" / "benchmarks.md"
WHOLE_GRID = "grid, every point"


def main() -> None:
    """Replay and render, or only what is asked for."""
    args = _arguments()
    if args.replay or not args.render:
        noise = fit(quiet_records())
        with ProcessPoolExecutor() as pool:
            rows = list(pool.map(partial(one, noise), range(args.landscapes), chunksize=4))
        write_text(RESULT, json.dumps({"replay": rows}, indent=1) + "\n")
    sections = {
        (BEGIN, END): render(json.loads(RESULT.read_text(encoding="utf-8"))),
        (search_real_report.BEGIN, search_real_report.END): search_real_report.render(),
    }
    text = DOCUMENT.read_text(encoding="utf-8")
    for (begin, end), section in sections.items():
        print(section)
        before, rest = text.split(begin)
        text = f"{before}{begin}\n\n{section}\n\n{end}{rest.split(end)[1]}"
    write_text(DOCUMENT, text)


def one(noise: Noise, seed: int) -> dict[str, Any]:
    """One landscape, tuned in every way; the regret is that of what would be deployed."""
    landscape = draw(np.random.default_rng(seed))
    done = replay(landscape, noise, np.random.default_rng((seed, 1)))
    finalist = done.answer.finalist
    picked = (
        (finalist.candidate, finalist.num_speculative_tokens)
        if finalist and done.answer.speculates
        else (BASELINE, 0)
    )
    spent_s = _seconds(done.records)
    searched = [x for x in done.launches if x.stage.prompts == "search"]
    ways: dict[str, Any] = {
        "autotune": {
            "launches": len(done.launches),
            "before_confirmation": len(searched),
            "seconds": spent_s,
            "picked": picked,
            "verdict": done.answer.verdict.value,
        }
    }
    spec = make_study(landscape)
    for name, way, budget_s in (
        ("grid", grid, spent_s),
        ("random", partial(random, dice=np.random.default_rng((seed, 2))), spent_s),
        ("TPE", partial(tpe, seed=seed), spent_s),
        (WHOLE_GRID, grid, float("inf")),
    ):
        machine = Machine(landscape=landscape, noise=noise, dice=np.random.default_rng((seed, 3)))
        measuring = Measuring(spec=spec, machine=machine, budget_s=budget_s)
        point = way(measuring)
        ways[name] = {
            "launches": measuring.launches,
            "seconds": measuring.spent_s,
            "picked": point,
        }
    best = landscape.best(KS)
    for found in ways.values():
        name, k = found["picked"]
        lacks = 1 - (landscape.speedup(name, k) if k else 1.0) / best
        # Beyond the K that were asked for there may be better ones: that is no negative regret.
        found["regret"], found["beyond"] = max(lacks, 0.0), max(-lacks, 0.0)
    return {"family": landscape.family, "best": best, "ways": ways}


def _seconds(records: Sequence[Record]) -> float:
    launches: dict[str, list[Any]] = {}
    for r in records:
        if r.measurement:
            launches.setdefault(r.launch_id, []).extend(r.measurement.passes)
    return sum(map(seconds_of, launches.values()))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--replay", action="store_true", help="tune the landscapes")
    parser.add_argument("--render", action="store_true", help="renew the document")
    parser.add_argument("--landscapes", type=int, default=240, help="how many")
    return parser.parse_args()


if __name__ == "__main__":
    main()
