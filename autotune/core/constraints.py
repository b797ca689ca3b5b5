"""How far a measurement is from the constraints: what Optuna is told beside the value.

Rule: feasibility comes first; a number above 0 is by how many milliseconds a bound is broken, at
the concurrency in its name; what was not measured has none.
"""

from collections.abc import Mapping

from autotune.core.latency import Latencies, pooled_latencies
from autotune.core.study import StudySpec
from autotune.core.trial import Record


def beyond(spec: StudySpec, latencies: Latencies | None, concurrency: int) -> dict[str, float]:
    """By how much these latencies of one level are above each bound; nothing where unknown."""
    if latencies is None:
        return {}
    return {
        f"{c.metric}.c{concurrency}": getattr(latencies, c.metric) - c.upper
        for c in spec.objective.constraints
    }


def excess(spec: StudySpec, record: Record) -> Mapping[str, float]:
    """Milliseconds above each bound at each level, such as `p99_ttft_ms.c4`; 0 or less keeps it."""
    found: dict[str, float] = {}
    for level in spec.workload.levels:
        passes = record.measurement.at(level.concurrency) if record.measurement else ()
        found |= beyond(spec, pooled_latencies(p.times for p in passes), level.concurrency)
    return found


def infeasibility(excess: Mapping[str, float]) -> float:
    """How far from feasible: what is above the bounds, in all, as Optuna's samplers add it up."""
    return sum(max(value, 0.0) for value in excess.values())
