"""The real part of the search benchmark in words: from results/search-real.jsonl to the document.

Rules: what is not there yet is said to be missing; the answers' speedups are those measured side by
side afterwards, not those that chose them.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import fmean, stdev

import numpy as np
from rivals import random, tpe
from scipy.special import stdtrit
from search_points import (
    PLAIN,
    Point,
    Row,
    Walk,
    best_of,
    kept,
    log_speedup,
    searched,
    tuned,
)

from autotune.core.statistics import Interval

BEGIN = "<!-- search-real: begin, by `make bench-search` -->"
END = "<!-- search-real: end -->"
POINTS, SEEDS = 32, 200
GRID = POINTS + 1
"""Launches of a grid in one go; the baseline of each further sitting is none of them."""
LAUNCH_GOAL, TIME_GOAL, REGRET_GOAL = 1 / 5, 1 / 4, 0.02


def render() -> str:
    """The section's text, without its markers."""
    grid, study = kept("grid"), tuned()
    there = len(searched())
    if there < POINTS or study is None:
        return (
            f"Not complete: {there} of {POINTS} points of the grid are measured"
            + ("" if study else ", autotune's study is not")
            + "."
        )
    devices = sorted({row["device"] for row in [*grid, study] if "device" in row})
    sittings = len({row["sitting"] for row in grid})
    head = (
        f"{', '.join(devices)}. The grid took {sittings} sittings, each with a baseline of its own."
    )
    return "\n\n".join([head, _table(grid, study), _goals(grid, study), _curves()])


def _table(grid: Sequence[Row], study: Row) -> str:
    lines = [
        "| search | launches | wall time, min | answer | its speedup, measured side by side |",
        "|---|---|---|---|---|",
        _line("grid, every point", GRID, _spent(grid), best_of(searched())),
        _line("autotune", study["launches"], study["seconds"], _named(study)),
    ]
    ways: list[tuple[str, Callable[[Walk, int], Point]]] = [
        ("random", lambda walk, seed: random(walk, np.random.default_rng(seed))),
        ("Optuna's TPE", tpe),
    ]
    for name, way in ways:
        walks = [Walk(budget_s=study["seconds"]) for _ in range(SEEDS)]
        found = Counter(way(walk, seed) for seed, walk in enumerate(walks))
        launches = fmean(walk.launches for walk in walks)
        spent = fmean(walk.spent_s for walk in walks)
        told = ", ".join(f"{_name(p)} ({n / SEEDS:.0%})" for p, n in found.most_common(3))
        lines.append(f"| {name}, {SEEDS} seeds | {launches:.0f} | {spent / 60:.0f} | {told} | |")
    return "\n".join(lines)


def _line(name: str, launches: int, seconds: float, point: Point) -> str:
    found = _again(point)
    shown = found.show() if found else ("1, by definition" if point == PLAIN else "not measured")
    return f"| {name} | {launches} | {seconds / 60:.0f} | {_name(point)} | {shown} |"


def _goals(grid: Sequence[Row], study: Row) -> str:
    launches = study["before_confirmation"] / GRID
    share = study["seconds"] / _spent(grid)
    before = study["before_confirmation"]
    few, short = _met(launches, LAUNCH_GOAL), _met(share, TIME_GOAL)
    launched = (
        "- Goal: before its confirmation at most a fifth of the grid's launches; "
        f"{few}: {before} of {GRID}."
    )
    took = (
        f"- Goal: at most a quarter of its wall time in all; {short}: {share:.0%}, with a budget "
        f"of {study['budget']}."
    )
    lines = [launched, took]
    regret = _regret(best_of(searched()), _named(study))
    if regret is None:
        lines.append("- Regret: the answers were not measured side by side yet.")
    else:
        lines.append(
            f"- Goal: the lower end of the regret's interval at most {REGRET_GOAL:.0%}; "
            f"{_met(regret.low - 1, REGRET_GOAL)}: the grid's answer is {regret.show()} of "
            "autotune's."
        )
    return "\n".join(lines)


def _curves() -> str:
    """The grid as it was measured."""
    found = searched()
    ks = sorted({k for _, k in found})
    lines = [
        "The grid's figures, one launch each:",
        "",
        f"| candidate | {' | '.join(f'K = {k}' for k in ks)} |",
        f"|---|{'---|' * len(ks)}",
    ]
    for name in dict.fromkeys(name for name, _ in found):
        row = [f"{math.exp(found[name, k]):.2f}x" if (name, k) in found else "" for k in ks]
        lines.append(f"| {name} | {' | '.join(row)} |")
    return "\n".join(lines)


def _again(point: Point) -> Interval | None:
    """The speedup over the baselines of the same rounds."""
    return None if point == PLAIN else _ratio(point, PLAIN)


def _regret(grid: Point, ours: Point) -> Interval | None:
    """How many times as fast the grid's answer is."""
    if grid == ours:
        return Interval(mean=1.0, low=1.0, high=1.0)
    return _ratio(grid, ours)


def _ratio(one: Point, other: Point) -> Interval | None:
    rounds = {}
    for row in kept("again"):
        if "failed" not in row:
            rounds[row["candidate"], row["k"], row["sitting"]] = row
    numbers = sorted({n for *_, n in rounds})
    logs = [
        log_speedup(rounds[*one, n], rounds[*other, n])
        for n in numbers
        if (*one, n) in rounds and (*other, n) in rounds
    ]
    if len(logs) < 2:  # noqa: PLR2004 - one has no spread
        return None
    margin = float(stdtrit(len(logs) - 1, 0.975)) * stdev(logs) / math.sqrt(len(logs))
    mean = fmean(logs)
    low, high = math.exp(mean - margin), math.exp(mean + margin)
    return Interval(mean=math.exp(mean), low=low, high=high)


def _named(study: Row) -> Point:
    return study["candidate"], study["k"]


def _name(point: Point) -> str:
    return "plain decoding" if point == PLAIN else f"{point[0]} at K = {point[1]}"


def _spent(rows: Sequence[Row]) -> float:
    return float(sum(row["seconds"] for row in rows))


def _met(value: float, most: float) -> str:
    return "met" if value <= most else "NOT met"
