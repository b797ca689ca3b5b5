"""Are the numbers true, and what do they cost? Widths on a real engine, coverage on a model.

    make bench-measure                                 all of it; half an hour on a quiet machine
    python studies/benchmarks/measure.py --record      real launches, kept in results/records.jsonl
    python studies/benchmarks/measure.py --calibrate   what follows, kept in results/measure.json
    python studies/benchmarks/measure.py --render      renew docs/benchmarks.md from what is kept

Rule: every figure of the document comes from results/measure.json, and that from the recording.
"""

import argparse
import json
import platform
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from calibration import Design, coverage, coverage_beside, false_stops
from fitting import fit
from measure_report import BEGIN, END, render
from recording import CANDIDATE, K, quiet_records, read_records, record
from smoke import equal_pairs
from widths import variance_ratios, widths

from autotune.core.proportion import CONFIDENCE
from autotune.files import write_text

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RESULT = HERE / "results" / "measure.json"
DOCUMENT = ROOT / "docs" / "benchmarks.md"

QUIET, RESTLESS = "quiet machine", "restless machine"
DESIGNS = {
    "A/A, one launch and three blocks each": (QUIET, Design(launches=1, blocks=3)),
    "A/A, three launches and eight blocks each": (QUIET, Design(launches=3, blocks=8)),
    "A/B, three launches and eight blocks each": (QUIET, Design(launches=3, blocks=8, k=2)),
    "A/A of one launch and four blocks each": (RESTLESS, Design(launches=1, blocks=4)),
    "A/A of three launches and four blocks each": (RESTLESS, Design(launches=3, blocks=4)),
}
FEW_BLOCKS = 12
"""Of an arm; a pair of fewer is cheap."""
BESIDE = {
    "two K of one launch, three blocks": (QUIET, 3),
    "two K of one launch, eight blocks": (QUIET, 8),
    "two K of one launch, four blocks": (RESTLESS, 4),
}


def main() -> None:
    """Record, calibrate, render: all of it, or the part that is asked for."""
    args = _arguments()
    everything = not (args.record or args.calibrate or args.render)
    if args.record or everything:
        record(args.rounds, args.blocks)
        if not everything:
            return
    if args.calibrate or everything:
        result = calibrate(args.pairs, args.smoke)
        write_text(RESULT, json.dumps(result, indent=1) + "\n")
    section = render(json.loads(RESULT.read_text(encoding="utf-8")))
    print(section)
    text = DOCUMENT.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    write_text(DOCUMENT, f"{before}{BEGIN}\n\n{section}\n\n{END}{rest.split(END)[1]}")


def calibrate(pairs: int, smoke: int) -> dict[str, Any]:
    """Everything that follows from the recordings, as figures."""
    records = read_records()
    noises = {QUIET: fit(quiet_records()), RESTLESS: fit(records)}
    facts = next(r.facts for r in records if r.facts)
    with ProcessPoolExecutor() as pool:
        covered = {
            f"{name}, {machine}": pool.submit(
                coverage, noises[machine], design, _pairs(pairs, design.launches * design.blocks)
            )
            for name, (machine, design) in DESIGNS.items()
        } | {
            f"{name}, {machine}": pool.submit(
                coverage_beside, noises[machine], blocks, _pairs(pairs, blocks)
            )
            for name, (machine, blocks) in BESIDE.items()
        }
        half = pairs // 2
        stops = [pool.submit(false_stops, noises[QUIET], half, seed) for seed in (0, 1)]
        result = {
            "recorded": {
                "engine": facts.version,
                "device": facts.device,
                "launches": len({r.launch_id for r in records}),
                "passes": sum(len(r.measurement.passes) for r in records if r.measurement),
                "invalid": sum(
                    1 for r in records if r.measurement for p in r.measurement.passes if p.invalid
                ),
                "candidate": CANDIDATE,
                "num_speculative_tokens": K,
            },
            "noise": {name: asdict(noise) for name, noise in noises.items()},
            "widths": [asdict(w) for w in widths(records)],
            "variance_ratios": {
                QUIET: variance_ratios(quiet_records()),
                RESTLESS: variance_ratios(records),
            },
            "coverage": {name: asdict(found.result()) for name, found in covered.items()},
            "false_stops": {
                "launches": 2 * half,
                "share": sum(found.result() for found in stops) / 2,
            },
        }
    # By itself, when nothing else runs: real sockets and real time.
    return result | {"smoke": _smoke(smoke), "python": platform.python_version()}


def _pairs(least: int, blocks: int) -> int:
    """More of them where a pair is short: a share of 95 % of 1,000 has a standard error of 0.7
    points, which is a third of what it may be off."""
    return round(least * max(FEW_BLOCKS / blocks, 1.0))


def _smoke(pairs: int) -> dict[str, float]:
    found = equal_pairs(pairs)
    return {
        "pairs": pairs,
        "covered": sum(i.low <= 1.0 <= i.high for i in found) / pairs,
        "mean": sum(i.mean for i in found) / pairs,
        "confidence": CONFIDENCE,
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n", maxsplit=1)[0] if __doc__ else ""
    )
    parser.add_argument("--record", action="store_true", help="launch the engine, keep the passes")
    parser.add_argument("--calibrate", action="store_true", help="fit, and count coverage")
    parser.add_argument("--render", action="store_true", help="renew the document")
    parser.add_argument("--rounds", type=int, default=5, help="launches of each arm")
    parser.add_argument("--blocks", type=int, default=8, help="blocks of each launch")
    parser.add_argument(
        "--pairs", type=int, default=1000, help="pairs of each design, at the least"
    )
    parser.add_argument("--smoke", type=int, default=20, help="pairs through HTTP")
    return parser.parse_args()


if __name__ == "__main__":
    main()
