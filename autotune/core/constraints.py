"""How far a measurement is from the constraints: what Optuna is told beside the value.

Rule: feasibility comes first; a number above 0 is by how many milliseconds a bound is broken, at
the concurrency in its name; what was not measured has none.
"""

from collections.abc import Mapping

from autotune.core.latency import pooled_latencies
from autotune.core.study import StudySpec
from autotune.core.trial import Record


def excess(spec: StudySpec, record: Record) -> Mapping[str, float]:
    """Milliseconds above each bound at each level, such as `p99_ttft_ms.c4`; 0 or less keeps it."""
    found: dict[str, float] = {}
    for level in spec.workload.levels:
        passes = record.measurement.at(level.concurrency) if record.measurement else ()
        latencies = pooled_latencies(p.times for p in passes)
        if latencies is None:
            continue
        for c in spec.objective.constraints:
            value: float = getattr(latencies, c.metric)
            found[f"{c.metric}.c{level.concurrency}"] = value - c.upper
    return found
