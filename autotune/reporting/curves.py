"""The measured curves as a table: one row for each split, candidate, level and K.

Rules: what was not measured is empty, never zero; the `overall` rows carry the weighted speedup
and the pooled acceptance, no throughput or latency, since those belong to one level; `compared` has
what the speedups are ratios of (core/objective.py).
"""

import pandas as pd

from autotune.core.latency import FIGURES, Latencies
from autotune.core.recommendation import Recommendation
from autotune.core.speedup import Point, SpeedupCurve
from autotune.core.statistics import Interval

OVERALL = "overall"

Row = dict[str, str | int | float | bool | None]


def curves_table(result: Recommendation) -> pd.DataFrame:
    """Every point of every curve, the search first."""
    rows = [
        _row(split, curve, point)
        for split, found in (("search", result.search), ("confirmation", result.confirmation))
        for curve in found
        for point in curve.points
    ]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return pd.DataFrame(rows, columns=columns)


def curves_csv(result: Recommendation) -> str:
    """The table as CSV with six significant figures."""
    return curves_table(result).to_csv(index=False, float_format="%.6g", lineterminator="\n")


def _row(split: str, curve: SpeedupCurve, point: Point) -> Row:
    k, profile = point.num_speculative_tokens, point.acceptance
    overall = curve.concurrency is None
    row: Row = {
        "split": split,
        "candidate": curve.candidate,
        "concurrency": OVERALL if curve.concurrency is None else str(curve.concurrency),
        "request_rate": curve.request_rate,
        "compared": curve.compared,
        "num_speculative_tokens": k,
        "speedup": point.speedup.mean,
        "speedup_low": point.speedup.low,
        "speedup_high": point.speedup.high,
        **_interval("by_steps", point.by_steps),
        **_interval("by_throughput", point.by_throughput),
        **_interval("bootstrap", point.bootstrapped),
        "knee": k == curve.knee.num_speculative_tokens and not curve.knee.single,
        "blocks": point.blocks,
        "output_throughput": None if overall else point.throughput,
        "acceptance_rate": profile.rate if profile else None,
        "acceptance_length": profile.length if profile else None,
    }
    row |= _latencies(None if overall else point.latencies)
    per_position = profile.per_position if profile else ()
    return row | {f"acceptance_pos_{i}": share for i, share in enumerate(per_position, start=1)}


def _interval(name: str, interval: Interval | None) -> Row:
    return {
        name: interval.mean if interval else None,
        f"{name}_low": interval.low if interval else None,
        f"{name}_high": interval.high if interval else None,
    }


def _latencies(latencies: Latencies | None) -> Row:
    return {name: getattr(latencies, name) if latencies else None for name in FIGURES}
