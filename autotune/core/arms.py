"""Arms: the launches that measured one point, and the passes that each block has from them.

Rule: an invalid pass does not exist here.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from autotune.core.trial import Pass, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """All launches of one point (candidate and K) on one split of the prompts."""

    records: tuple[Record, ...]

    def passes(self, concurrency: int) -> Mapping[int, Sequence[Pass]]:
        """The valid passes of each block, one for each launch that ran it."""
        found: dict[int, list[Pass]] = defaultdict(list)
        for record in self.records:
            for p in record.measurement.at(concurrency) if record.measurement else ():
                found[p.block].append(p)
        return found

    def throughput(self, concurrency: int, blocks: Collection[int]) -> float:
        """Output tokens per second, geometric mean over the launches and these blocks."""
        found = self.passes(concurrency)
        return math.exp(fmean(fmean(p.log_throughput for p in found[b]) for b in blocks))

    def launches(self, concurrency: int, blocks: Collection[int]) -> float:
        """How many launches its mean over these blocks is worth.

        Blocks count alike, and in each its launches: one that ran a single block of many is worth
        next to nothing (the inverse of the sum of squared weights).
        """
        weights: dict[str, float] = defaultdict(float)
        ran = {
            r.launch_id: {p.block for p in r.measurement.at(concurrency)}
            for r in self.records
            if r.measurement
        }
        for block in blocks:
            mine = [launch for launch, has in ran.items() if block in has]
            for launch in mine:
                weights[launch] += 1 / len(mine) / len(blocks)
        return 1 / sum(weight**2 for weight in weights.values()) if weights else 0.0

    def within(self, launch_ids: Collection[str]) -> "Arm":
        """What it has of these launches."""
        return Arm(records=tuple(r for r in self.records if r.launch_id in launch_ids))

    @property
    def speculates(self) -> bool:
        """Whether its passes draft tokens."""
        return any(r.trial.num_speculative_tokens > 0 for r in self.records)

    @property
    def launch_ids(self) -> frozenset[str]:
        """The launches that it was measured in."""
        return frozenset(r.launch_id for r in self.records)


def arms(records: Iterable[Record]) -> dict[tuple[str, int], Arm]:
    """Group the measured records by (candidate, K); pass records of one split only."""
    groups: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for record in records:
        if record.measurement is not None:
            key = (record.trial.candidate, record.trial.num_speculative_tokens)
            groups[key].append(record)
    return {key: Arm(records=tuple(group)) for key, group in groups.items()}
