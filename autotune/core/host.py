"""What the machine gave while a pass ran: load, stolen time, clocks, heat.

Rules: what the machine does not tell is None, never 0; a pass on less of the machine than the
others of its launch is told of, not removed: who pairs block by block decides what it is worth.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

STEAL_LIMIT = 0.10
CLOCK_LIMIT = 0.80
"""Share of the launch's median clock below which a pass had less of the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLoad:
    """The engine's machine during one pass."""

    load_1m: float | None = None
    """Load average over the last minute when the pass ended."""
    steal: float | None = None
    """Share of CPU time that the hypervisor gave to others, a fraction."""
    cpu_mhz: float | None = None
    """Mean clock over the cores, of the readings before and after the pass."""
    gpu_mhz: float | None = None
    """SM clock right after the pass, of the slowest GPU; heat and watts are of the highest."""
    gpu_celsius: float | None = None
    gpu_watts: float | None = None


def shortfalls(loads: Sequence[HostLoad | None]) -> list[str | None]:
    """For each pass of one launch, how the host gave less than to the others; None if not."""
    known = [load for load in loads if load is not None]
    cpu = _median([load.cpu_mhz for load in known])
    gpu = _median([load.gpu_mhz for load in known])
    return [None if load is None else _shortfall(load, cpu, gpu) for load in loads]


def _shortfall(load: HostLoad, cpu_mhz: float | None, gpu_mhz: float | None) -> str | None:
    if load.steal is not None and load.steal > STEAL_LIMIT:
        return f"{load.steal:.0%} of the CPU time went to other machines of the same host"
    for name, clock, usual in (("CPU", load.cpu_mhz, cpu_mhz), ("GPU", load.gpu_mhz, gpu_mhz)):
        if clock is not None and usual is not None and clock < CLOCK_LIMIT * usual:
            return f"the {name} ran at {clock:.0f} MHz, in the launch's median pass at {usual:.0f}"
    return None


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
