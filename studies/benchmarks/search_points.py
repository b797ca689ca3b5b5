"""What the real part of the search benchmark has measured (results/search-real.jsonl).

Rules: a point of the grid is compared with the baseline of its own sitting, block by block; random
search and TPE need no launches of their own: a trial of theirs is a launch of the grid.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from autotune.core.trial import BASELINE

HERE = Path(__file__).resolve().parent
SPACE = HERE / "search.yaml"
KEPT = HERE / "results" / "search-real.jsonl"
WEIGHTS: Mapping[str, float] = {
    str(level["level"]): float(level["weight"])
    for level in yaml.safe_load(SPACE.read_text(encoding="utf-8"))["workload"]["concurrency"]
}
"""Of the levels."""
Point = tuple[str, int]
PLAIN: Point = (BASELINE, 0)
Row = Mapping[str, Any]


def kept(part: str) -> list[dict[str, Any]]:
    """The launches of a part that are there."""
    if not KEPT.exists():
        return []
    rows = [json.loads(line) for line in KEPT.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if row["part"] == part]


def searched() -> dict[Point, float]:
    """The log of each point's speedup, as the grid measured it; a failed one is no gain at all."""
    rows = kept("grid")
    plain = {row["sitting"]: row for row in rows if not row["k"]}
    return {
        (row["candidate"], row["k"]): log_speedup(row, plain[row["sitting"]])
        for row in rows
        if row["k"]
    }


def log_speedup(row: Row, plain: Row) -> float:
    """Weighted over the levels, over the blocks that both ran."""
    if "failed" in row:
        return float("-inf")
    found = []
    for level, weight in WEIGHTS.items():
        ours, theirs = row["log_throughput"][level], plain["log_throughput"][level]
        shared = ours.keys() & theirs.keys()
        found.append((weight, fmean(ours[b] - theirs[b] for b in shared)))
    return sum(w * x for w, x in found) / sum(w for w, _ in found)


def best_of(logs: Mapping[Point, float]) -> Point:
    """The point with the best figure; plain decoding where none gains."""
    best = max(logs, key=lambda point: logs[point], default=PLAIN)
    return best if logs.get(best, 0.0) > 0 else PLAIN


def tuned() -> Row | None:
    """The last study of autotune."""
    return kept("tune")[-1] if kept("tune") else None


def answers() -> list[Point]:
    """The points that are measured side by side: the grid's best, and what autotune names."""
    study = tuned()
    mine: list[Point] = [(study["finalist"][0], study["finalist"][1])] if study else []
    return list(dict.fromkeys(p for p in (best_of(searched()), *mine) if p != PLAIN and p[0]))


@cache
def costs() -> Mapping[Point, float]:
    """Seconds of each launch of the grid; of plain decoding the first."""
    return {(row["candidate"], row["k"]): row["seconds"] for row in reversed(kept("grid"))}


@cache
def measured() -> Mapping[Point, float]:
    """`searched`, read once."""
    return searched()


@dataclass(slots=True, kw_only=True)
class Walk:
    """A search that may launch points of the grid until its seconds are spent (rivals.py)."""

    budget_s: float
    spent_s: float = field(default_factory=lambda: costs()[PLAIN])
    launches: int = 1
    found: dict[Point, float] = field(default_factory=dict)

    @property
    def names(self) -> Sequence[str]:
        """The candidates."""
        return list(dict.fromkeys(name for name, _ in measured()))

    @property
    def over(self) -> bool:
        """Whether nothing is left for another launch."""
        return self.spent_s >= self.budget_s

    def measure(self, point: Point) -> float:
        """What the grid measured there, at its price."""
        self.launches += 1
        self.spent_s += costs()[point]
        self.found[point] = measured()[point]
        return self.found[point]

    @property
    def answer(self) -> Point:
        """The point with the best figure; plain decoding where none is above 1."""
        return best_of(self.found)
