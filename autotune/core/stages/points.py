"""What the records say of one point: whether it is measured well enough, or was given up.

Rules: the blocks of all launches of a point add up; a failure that is not transient is final,
anything else is tried `TRIES` times; what the budget or the user cut short is no try.
"""

from collections.abc import Sequence

from autotune.core.causes import ends_candidate as of_candidate
from autotune.core.causes import retried
from autotune.core.study import Candidate, StudySpec
from autotune.core.trial import (
    TRIES,
    Cause,
    Failure,
    Measurement,
    Record,
    Stage,
)
from autotune.core.workload import MIN_BLOCKS, Level


def of_search(records: Sequence[Record]) -> list[Record]:
    """The records on the search's prompts."""
    return [r for r in records if r.trial.stage.prompts == "search"]


def of_confirmation(records: Sequence[Record]) -> list[Record]:
    """The records of cold launches at a static K, on the confirmation's prompts."""
    return [r for r in records if r.trial.stage is Stage.CONFIRM]


def of_schedule(records: Sequence[Record]) -> list[Record]:
    """The records of cold launches with a schedule, on the confirmation's prompts, too."""
    return [r for r in records if r.trial.stage is Stage.SCHEDULE]


def of_point(records: Sequence[Record], name: str, k: int) -> list[Record]:
    """The records of one candidate at one K; pass records of one split only."""
    return [r for r in records if (r.trial.candidate, r.trial.num_speculative_tokens) == (name, k)]


def enough(spec: StudySpec, mine: Sequence[Record], level: Level) -> bool:
    """Whether a point has `min_blocks` at a level, or what the time of a launch allowed."""
    if not mine:
        return False
    there = spec.workload.blocks(mine[0].trial.stage.prompts, level.concurrency)
    measured = [r.measurement for r in mine if r.measurement]
    blocks = {p.block for m in measured for p in m.at(level.concurrency)}
    if len(blocks) >= min(spec.search.min_blocks, there):
        return True
    return any(_all_that_time_allowed(m, level.concurrency) for m in measured)


def given_up(spec: StudySpec, mine: Sequence[Record]) -> bool:
    """Whether a point was tried in vain: once for good, or `TRIES` times."""
    vain = [r.outcome for r in mine if _in_vain(spec, r)]
    return len(vain) >= TRIES or any(isinstance(o, Failure) and not retried(o) for o in vain)


def stopped(mine: Sequence[Record]) -> int:
    """How many launches have stopped a point because it could not be the answer."""
    return sum(bool(r.measurement and r.measurement.pruned) for r in mine)


def ends_candidate(record: Record, name: str) -> bool:
    """Whether a failure at any K is the end of all K of a candidate."""
    outcome = record.outcome
    mine = record.trial.candidate == name and record.trial.stage.prompts == "search"
    return mine and isinstance(outcome, Failure) and of_candidate(outcome)


def not_in_force(record: Record) -> bool:
    """Whether a launch showed that the engine does not take another K while it runs."""
    outcome = record.outcome
    return isinstance(outcome, Failure) and outcome.cause is Cause.LIVE_K_NOT_IN_FORCE


def live_possible(spec: StudySpec, records: Sequence[Record], candidate: Candidate) -> bool:
    """Whether one launch may answer all K: by method, parallelism, and what was seen so far."""
    parallel = spec.target.engine_args.get("data_parallel_size", 1)
    name = candidate.name
    seen_static = any(r.trial.candidate == name and not_in_force(r) for r in records)
    # A live launch that cannot even run K = 0 would fail the same way for ever.
    broken = given_up(spec, of_point(of_search(records), name, 0))
    return candidate.live_k and parallel == 1 and not seen_static and not broken


def says_nothing(record: Record) -> bool:
    """A launch that the budget cut short is no try, nor is one that only lacked live K."""
    outcome = record.outcome
    no_time = isinstance(outcome, Failure) and outcome.cause is Cause.NO_TIME
    return no_time or not_in_force(record)


def _all_that_time_allowed(measured: Measurement, concurrency: int) -> bool:
    attempted = {p.block for p in measured.passes if p.concurrency == concurrency}
    valid = {p.block for p in measured.at(concurrency)}
    return not measured.cut_short and attempted == valid and len(valid) >= MIN_BLOCKS


def _in_vain(spec: StudySpec, record: Record) -> bool:
    """A failure, or too few valid blocks at a level that was tried."""
    if says_nothing(record):
        return False
    measured = record.measurement
    if measured is None:
        return True
    if measured.cut_short:
        return False
    levels = [
        lv
        for lv in spec.workload.levels
        if any(p.concurrency == lv.concurrency for p in measured.passes)
    ]
    return any(not enough(spec, [record], level) for level in levels)
