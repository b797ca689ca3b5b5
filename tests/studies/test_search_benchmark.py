"""The real part of the search benchmark: what its kept launches amount to."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import search_points
import search_real_report

SECONDS = 100.0


def launched(part: str, candidate: str, k: int, speed: float, sitting: int = 1) -> dict[str, Any]:
    """A launch of eight blocks that are not alike."""
    blocks = {str(b): math.log(speed * (1 + b / 10)) for b in range(8)}
    return {
        "part": part,
        "sitting": sitting,
        "seconds": SECONDS,
        "candidate": candidate,
        "k": k,
        "device": "cpu",
        "engine": "0",
        "log_throughput": {"1": blocks, "4": blocks},
    }


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """A grid of two sittings, the second on a machine half as fast; written when it is left."""
    monkeypatch.setattr(search_points, "KEPT", tmp_path / "kept.jsonl")
    found = [launched("grid", "baseline", 0, 30.0), launched("grid", "baseline", 0, 15.0, 2)]
    for index, name in enumerate(("draft-2l", "draft-4l", "eagle", "ngram")):
        for k in range(1, 9):
            slow = 2 if k > 4 else 1
            gain = 0.8 + index / 10 - abs(k - 5) / 100
            found.append(launched("grid", name, k, gain * 30.0 / slow, slow))
    yield found
    search_points.costs.cache_clear()
    search_points.measured.cache_clear()


def keep(rows: list[dict[str, Any]]) -> None:
    """As the benchmark does, a line a launch."""
    search_points.KEPT.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_point_is_over_the_baseline_of_its_sitting(rows: list[dict[str, Any]]) -> None:
    """Half as fast a machine is no slower draft."""
    keep(rows)
    found = search_points.searched()
    assert len(found) == 32
    assert math.exp(found["ngram", 5]) == pytest.approx(1.1)
    assert math.exp(found["eagle", 1]) == pytest.approx(0.96)
    assert search_points.best_of(found) == ("ngram", 5)


def test_a_launch_that_failed_gains_nothing(rows: list[dict[str, Any]]) -> None:
    """It took its time all the same."""
    row = next(r for r in rows if (r["candidate"], r["k"]) == ("ngram", 5))
    del row["log_throughput"]
    row["failed"] = ["out of memory"]
    keep(rows)
    assert search_points.best_of(search_points.searched()) in {("ngram", 4), ("ngram", 6)}
    assert search_points.costs()["ngram", 5] == SECONDS


def test_goals_are_judged_by_what_was_measured_side_by_side(rows: list[dict[str, Any]]) -> None:
    """A fifth of 33 launches, a quarter of 3,400 seconds, and the answers of three rounds."""
    keep(rows)
    assert search_real_report.render() == (
        "Not complete: 32 of 32 points of the grid are measured, autotune's study is not."
    )
    study = {
        "part": "tune",
        "sitting": 0,
        "seconds": 900.0,
        "budget": "15m",
        "launches": 9,
        "before_confirmation": 5,
        "device": "cpu",
        "candidate": "ngram",
        "k": 4,
        "finalist": ["ngram", 4],
    }
    keep([*rows, study])
    assert search_points.answers() == [("ngram", 5), ("ngram", 4)]
    for n, noise in enumerate((0.99, 1.0, 1.01)):
        rows.append(launched("again", "baseline", 0, 30.0, n))
        rows.append(launched("again", "ngram", 5, 33.0 * noise, n))
        rows.append(launched("again", "ngram", 4, 30.0, n))
    keep([*rows, study])
    text = search_real_report.render()
    assert "NOT met: 26%" in text
    assert "met: 5 of 33" in text
    assert "NOT met: the grid's answer is 1.10x [1.07, 1.13] of autotune's" in text
    assert "| grid, every point | 33 | 57 | ngram at K = 5 | 1.10x [1.07, 1.13] |" in text
