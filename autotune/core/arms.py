"""Arms: the launches that measured one point, and what two arms say of each other.

Rules: two arms are compared block by block, and only on blocks that both ran; several launches of
one arm are averaged first; an invalid pass does not exist here.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from autotune.core.statistics import Estimate, LaunchEffect, launch_effect, mean_of
from autotune.core.study import Level
from autotune.core.trial import Record

Blocks = Mapping[int, float]
"""Block index to log speed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """All launches of one point (candidate and K) on one split of the prompts."""

    records: tuple[Record, ...]

    def blocks(self, concurrency: int) -> Blocks:
        """Mean log speed of each block over the launches that ran it."""
        return _mean_blocks([blocks_of(r, concurrency) for r in self.records])

    def throughput(self, concurrency: int, blocks: Collection[int]) -> float:
        """Output tokens per second, geometric mean over the launches and these blocks."""
        found = [r.measurement.at(concurrency) for r in self.records if r.measurement]
        logs = _mean_blocks([{p.block: p.log_throughput for p in passes} for passes in found])
        return math.exp(fmean(logs[block] for block in blocks))

    def launches(self, concurrency: int) -> int:
        """How many launches measured this level."""
        return sum(1 for r in self.records if blocks_of(r, concurrency))


def blocks_of(record: Record, concurrency: int) -> Blocks:
    """Log speed of each valid block of a record; empty for a failure."""
    if record.measurement is None:
        return {}
    return {p.block: p.log_speed for p in record.measurement.at(concurrency)}


def arms(records: Iterable[Record]) -> dict[tuple[str, int], Arm]:
    """Group the measured records by (candidate, K); pass records of one split only."""
    groups: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for record in records:
        if record.measurement is not None:
            key = (record.trial.candidate, record.trial.num_speculative_tokens)
            groups[key].append(record)
    return {key: Arm(records=tuple(group)) for key, group in groups.items()}


def compare(arm: Arm, other: Arm, concurrency: int) -> Estimate | None:
    """Mean of the per-block log ratios arm / other; None without a block in common."""
    ours, theirs = arm.blocks(concurrency), other.blocks(concurrency)
    shared = sorted(set(ours) & set(theirs))
    return mean_of([ours[b] - theirs[b] for b in shared]) if shared else None


def effect_of(records: Sequence[Record], levels: Sequence[Level]) -> LaunchEffect:
    """The launch effect from every group of equal launches in the records, all splits.

    Equal means: same point, same prompts, both live or both static. The levels of one launch share
    its effect: their mean is one observation, not several.
    """
    groups: dict[tuple[str, bool, str, int], list[Record]] = defaultdict(list)
    for r in records:
        if r.measurement is not None:
            trial = r.trial
            key = (trial.candidate, trial.live, trial.stage.prompts, trial.num_speculative_tokens)
            groups[key].append(r)
    return launch_effect([_launch_means(group, levels) for group in groups.values()])


def _mean_blocks(parts: Sequence[Blocks]) -> Blocks:
    values: dict[int, list[float]] = defaultdict(list)
    for part in parts:
        for block, value in part.items():
            values[block].append(value)
    return {block: sum(v) / len(v) for block, v in values.items()}


def _launch_means(records: Sequence[Record], levels: Sequence[Level]) -> list[float]:
    """Each launch's mean log throughput over the blocks and levels that all of them ran."""
    per_level = []
    for level in levels:
        parts = [blocks_of(r, level.concurrency) for r in records]
        shared = set.intersection(*(set(p) for p in parts))
        if shared:
            per_level.append([sum(p[b] for b in shared) / len(shared) for p in parts])
    return [sum(means) / len(means) for means in zip(*per_level, strict=True)]
