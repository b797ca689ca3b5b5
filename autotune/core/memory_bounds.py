"""Which gpu_memory_utilization is known to be too little or too much, and where launches run.

Rules: a failure for memory bounds the range for its own K and every larger one, one of plain
decoding for every candidate; it is an end only where no utilization on the other side is left.
"""

from collections import defaultdict
from collections.abc import Sequence

from autotune.core.causes import CAUSES, Direction, retried
from autotune.core.study import StudySpec
from autotune.core.trial import BASELINE, TRIES, Cause, Failure, Record

TOO_SMALL = frozenset(c for c, row in CAUSES.items() if row.direction is Direction.FROM_BELOW)
TOO_LARGE = frozenset(c for c, row in CAUSES.items() if row.direction is Direction.FROM_ABOVE)


def bounds(records: Sequence[Record], name: str, k: int) -> tuple[float | None, float | None]:
    """The largest utilization that failed for too little memory, the smallest for too much."""
    failed = failed_at(records, name, k)
    small = [u for u, failures in failed.items() if _final(failures, TOO_SMALL)]
    large = [u for u, failures in failed.items() if _final(failures, TOO_LARGE)]
    return max(small, default=None), min(large, default=None)


def within(utilization: float, below: float | None, above: float | None) -> bool:
    """Whether a utilization lies between the bounds, which are out themselves."""
    return (below is None or utilization > below) and (above is None or utilization < above)


def failed_at(records: Sequence[Record], name: str, k: int) -> dict[float, list[Failure]]:
    """Failures for memory by utilization: of this point, of a smaller K, of plain decoding."""
    found: dict[float, list[Failure]] = defaultdict(list)
    for r in records:
        mine = r.trial.candidate == name and r.trial.num_speculative_tokens <= k
        if not (mine or r.trial.candidate == BASELINE) or not isinstance(r.outcome, Failure):
            continue
        if r.outcome.cause in TOO_SMALL | TOO_LARGE:
            found[r.trial.gpu_memory_utilization].append(r.outcome)
    return found


def search_utilization(spec: StudySpec, records: Sequence[Record], name: str, k: int) -> float:
    """Where a launch of the search runs: the largest allowed that has not been too much.

    After a failure it is the next one below, after further ones the steps double: a K that fits
    nowhere is not to cost a launch for every utilization. A step that went too far down goes back
    up, above what was too small.
    """
    below, above = bounds(records, name, k)
    left = [u for u in spec.search.gpu_memory_utilization if within(u, below, above)]
    if not left:
        return spec.search.gpu_memory_utilization[0]
    failed = failed_at(records, name, k).values()
    refusals = sum(_final(failures, TOO_LARGE) for failures in failed)
    return left[-min(1 << max(refusals - 1, 0), len(left))]


def escaped(spec: StudySpec, records: Sequence[Record], record: Record) -> bool:
    """Whether another utilization is left that may answer this failure for memory."""
    outcome, trial = record.outcome, record.trial
    if not isinstance(outcome, Failure) or outcome.cause not in TOO_SMALL | TOO_LARGE:
        return False
    below, above = bounds(records, trial.candidate, trial.num_speculative_tokens)
    if within(trial.gpu_memory_utilization, below, above):
        return False
    return any(within(u, below, above) for u in spec.search.gpu_memory_utilization)


def in_force(spec: StudySpec, records: Sequence[Record]) -> list[Record]:
    """The records without the failures that another utilization may answer."""
    return [r for r in records if not escaped(spec, records, r)]


def at_utilization(records: Sequence[Record], utilization: float) -> list[Record]:
    """The records of launches at one utilization."""
    return [r for r in records if r.trial.gpu_memory_utilization == utilization]


def _final(failures: Sequence[Failure], causes: frozenset[Cause]) -> bool:
    """Whether it is sure: not transient, or seen as often as anything is tried."""
    mine = [f for f in failures if f.cause in causes]
    return len(mine) >= TRIES or any(not retried(f) for f in mine)
