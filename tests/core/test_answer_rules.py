"""Rules of the answer that need little data, or the confirmation, to show."""

from dataclasses import replace

import pytest

from autotune.core.finalists import finalists
from autotune.core.plan import next_launch
from autotune.core.recommendation import recommend
from autotune.core.stages.points import live_possible
from autotune.core.study import Candidate, Constraint, Objective
from autotune.core.trial import BASELINE, Cause, Failure, Measurement, Record, Stage
from autotune.core.workload import Workload
from tests.builders import make_record, make_spec, make_workload
from tests.builders_study import make_study_records

SPEC = make_spec()


def slower(record: Record, factor: float) -> Record:
    """The same record with every TTFT times a factor."""
    assert isinstance(record.outcome, Measurement)
    passes = []
    for p in record.outcome.passes:
        assert p.times
        worse = replace(p.times, ttft_ms=tuple(factor * t for t in p.times.ttft_ms))
        passes.append(replace(p, times=worse))
    return replace(record, outcome=replace(record.outcome, passes=tuple(passes)))


def test_a_winner_that_breaks_a_constraint_when_deployed_is_not_exported() -> None:
    """The next finalist takes its place, and the reason names the figure."""
    records = make_study_records(confirmed=True)
    best = finalists(SPEC, records)[0]
    key = (best.candidate, Stage.CONFIRM)
    limit = 10 * max(
        p.latencies.p99_ttft_ms
        for r in records
        if r.measurement
        for p in r.measurement.passes
        if p.latencies
    )
    objective = Objective(constraints=(Constraint(metric="p99_ttft_ms", upper=limit),))
    spec = replace(SPEC, objective=objective)
    assert recommend(spec, records).finalist == best
    worse = [slower(r, 100) if (r.trial.candidate, r.trial.stage) == key else r for r in records]
    result = recommend(spec, worse)
    assert result.finalist
    assert result.finalist.candidate != best.candidate
    assert any("p99_ttft_ms" in reason and best.candidate in reason for reason in result.reasons)


def test_a_measurement_supersedes_an_older_failure() -> None:
    """After a retry that worked, the winner is no longer counted as failed."""
    records = make_study_records(confirmed=True)
    best = finalists(SPEC, records)[0]
    cold = next(
        r for r in records if r.trial.candidate == best.candidate and r.trial.stage is Stage.CONFIRM
    )
    failed = replace(
        cold, outcome=Failure(cause=Cause.CRASHED_START, detail="boom"), launch_id="000"
    )
    assert finalists(SPEC, [failed, *records])[0] == best
    assert finalists(SPEC, [*records, failed])[0] != best


def test_two_noisy_blocks_are_no_tie() -> None:
    """K = 1 at 1.1x is not the knee because K = 2 at 1.3x was hardly measured."""
    spec = replace(SPEC, workload=make_workload(concurrencies={1: 1.0}))
    head = spec.candidates[0].name
    base = 30.0
    records = [make_record(BASELINE, 0, Stage.BASELINE, tput={1: base}, blocks=2)]
    for k, speedup in ((1, 1.1), (2, 1.3)):
        record = make_record(head, k, tput={1: base * speedup}, blocks=2)
        assert isinstance(record.outcome, Measurement)
        first, second = record.outcome.passes
        noise = 1.1 if k == 2 else 1 / 1.1
        passes = (first, replace(second, duration_s=second.duration_s * noise))
        records.append(replace(record, outcome=replace(record.outcome, passes=passes)))
    assert finalists(spec, records)[0].num_speculative_tokens == 2


def test_a_level_needs_two_blocks_in_each_split() -> None:
    """One block has no spread, so nothing could ever be concluded from it."""
    workload = make_workload(concurrencies={4: 1.0}, prompts=32)
    with pytest.raises(ValueError, match="needs 32 prompts in each split"):
        Workload(
            search=workload.search,
            confirmation=workload.confirmation[:31],
            levels=workload.levels,
            max_tokens=16,
            sampling=workload.sampling,
        )


def test_a_draft_of_fixed_blocks_gets_one_launch_per_k() -> None:
    """Parallel drafting trains the draft for its block, whatever the method's row says."""
    plain = Candidate(name="head", method="eagle", model="a/head")
    fixed = replace(plain, settings={"parallel_drafting": True})
    assert live_possible(SPEC, [], plain)
    assert not live_possible(SPEC, [], fixed)


def test_a_start_cut_short_by_the_budget_is_no_try() -> None:
    """The same launch is planned again; its start gets what is left of the budget."""
    out_of_time = Failure(cause=Cause.NO_TIME, detail="the budget ended")
    records = [
        replace(make_record(BASELINE, 0, Stage.BASELINE, launch_id=f"{i}"), outcome=out_of_time)
        for i in range(3)
    ]
    launch = next_launch(SPEC, records, 500.0)
    assert launch
    assert launch.stage is Stage.BASELINE
    assert launch.start_timeout_s
    assert launch.start_timeout_s < 500.0
