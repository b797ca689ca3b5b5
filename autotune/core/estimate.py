"""What is ahead of a study: launches, passes, time, disk.

Rule: guesses give way to what the study has seen, launch by launch: starts, seconds per pass, how
many passes a launch of the search takes until it knows enough.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from autotune.core.stages.ranges import WINDOW, coarse
from autotune.core.study import StudySpec
from autotune.core.trial import Launch, Pass, Record, Stage

FIRST_BOOT_S = 60.0
WARM_UP_S = 10.0
FIRST_PASS_S = 8.0
LAUNCH_BYTES = 400 << 10
"""Log and metrics of a launch."""
PASS_BYTES = 4 << 10
"""Figures and counters of a pass."""
REQUEST_BYTES = 1 << 10
"""Sample of a request, before it is compacted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a study will cost from here on."""

    launches: tuple[Launch, ...]
    passes: int
    boot_s: float
    measure_s: float
    disk_bytes: int

    @property
    def total_s(self) -> float:
        """Seconds of wall clock, starts included."""
        return self.boot_s + self.measure_s


def estimate(spec: StudySpec, records: Sequence[Record], launches: Sequence[Launch]) -> Estimate:
    """What these launches will cost."""
    passes = sum(passes_of(spec, records, launch) for launch in launches)
    level_sizes = [spec.workload.block_size(lv.concurrency) for lv in spec.workload.levels]
    each = PASS_BYTES + round(fmean(level_sizes)) * REQUEST_BYTES
    return Estimate(
        launches=tuple(launches),
        passes=round(passes),
        boot_s=sum(boot_s(records, launch) + WARM_UP_S for launch in launches),
        measure_s=passes * pass_s(records),
        disk_bytes=len(launches) * LAUNCH_BYTES + round(passes) * each,
    )


def boot_s(records: Sequence[Record], launch: Launch) -> float:
    """Seconds that a start will take: as those seen of its candidate, of any, or a guess."""
    seen = {r.launch_id: (r.trial.candidate, r.facts.boot_s) for r in records if r.facts}
    mine = [seconds for name, seconds in seen.values() if name == launch.name]
    every = [seconds for _, seconds in seen.values()]
    return fmean(mine or every or [FIRST_BOOT_S])


def pass_s(records: Sequence[Record]) -> float:
    """Seconds from one pass of a launch to the next, as seen; a guess before the first."""
    launches = _passes_by_launch(records).values()
    passes = sum(len(mine) for mine in launches)
    spent = sum(max(p.started_s + p.duration_s for p in mine) for mine in launches)
    return spent / passes if passes else FIRST_PASS_S


def passes_of(spec: StudySpec, records: Sequence[Record], launch: Launch) -> float:
    """How many passes a launch will make: as those seen of the search, else as it is made for."""
    workload = spec.workload
    blocks = {
        lv.concurrency: min(
            launch.max_blocks, workload.blocks(launch.stage.prompts, lv.concurrency)
        )
        for lv in workload.levels
    }
    if launch.stage in {Stage.BASELINE, Stage.CONFIRM, Stage.SCHEDULE}:
        return sum(blocks.values())
    seen = _searches(records, live=launch.live)
    if seen and launch.stage is Stage.SCREEN:
        return fmean(seen)
    arms = len(launch.num_speculative_tokens)
    if launch.stage is Stage.SCREEN and launch.live:
        arms = min(arms, len(coarse(launch.num_speculative_tokens[1:])) + 1 + WINDOW)
    return float(arms * sum(min(spec.search.min_blocks, count) for count in blocks.values()))


def _searches(records: Sequence[Record], *, live: bool) -> list[int]:
    """Passes of every screening launch so far that was not cut short."""
    cut = {r.launch_id for r in records if not r.measurement or r.measurement.cut_short}
    mine = [
        r
        for r in records
        if r.trial.stage is Stage.SCREEN and r.trial.live is live and r.launch_id not in cut
    ]
    return [len(passes) for passes in _passes_by_launch(mine).values()]


def _passes_by_launch(records: Sequence[Record]) -> dict[str, list[Pass]]:
    found: dict[str, list[Pass]] = defaultdict(list)
    for r in records:
        if r.measurement and r.measurement.passes:
            found[r.launch_id] += r.measurement.passes
    return found
