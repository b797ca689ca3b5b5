"""Whether a schedule is worth a launch, and whether what it did may be offered."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from autotune.core.finalists import finalists
from autotune.core.plan import next_launch, pending
from autotune.core.recommendation import recommend
from autotune.core.schedule import SCHEDULE_DISABLED
from autotune.core.schedule_offer import ScheduleAnswer, answer_of, proposed
from autotune.core.study import Constraint, Objective, StudySpec
from autotune.core.trial import BASELINE, TRIES, Cause, Failure, Measurement, Pass, Record, Stage
from autotune.core.workload import Level
from tests.builders import GMU, make_failure, make_record
from tests.builders_schedule import (
    IGNORED,
    IN_FORCE,
    RANGES,
    SPEC,
    SPEEDUPS,
    WITH,
    cold,
    confirmed,
    counted,
    searched,
)


def answer(records: list[Record], spec: StudySpec = SPEC) -> ScheduleAnswer:
    """What is said of the schedule."""
    return answer_of(spec, records, finalists(spec, records)[0])


def test_it_is_made_of_the_knees_and_of_plain_decoding() -> None:
    """K = 3 is best for one stream, nothing pays at four."""
    records = searched()
    assert proposed(SPEC, records, finalists(SPEC, records)[0]) == RANGES


def test_a_level_keeps_the_static_k_unless_another_promises_more_than_the_tolerance() -> None:
    """A knee of 2 that is 1 % better at four streams is no reason."""
    close = {1: SPEEDUPS[1], 4: {1: 1.1, 2: 1.212, 3: 1.2, 5: 1.0}}
    records = searched(close)
    refused = proposed(SPEC, records, finalists(SPEC, records)[0])
    assert refused == "no other K is sure to give 2% more than K = 3 at any concurrency"
    better = {1: SPEEDUPS[1], 4: {1: 1.1, 2: 1.3, 3: 1.2, 5: 1.0}}
    records = searched(better)
    found = proposed(SPEC, records, finalists(SPEC, records)[0])
    assert found == ((1, 1, 3), (2, 4, 2))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("rate", "requests come at a rate"),
        ("level", "one concurrency"),
        ("ranks", "cannot change while the engine runs"),
        ("not in force", "cannot change while the engine runs"),
    ],
)
def test_where_no_schedule_is_made(change: str, reason: str) -> None:
    """Unknown batch sizes, a single level, a method or an engine that keeps its K."""
    spec, records = SPEC, searched()
    first = finalists(spec, records)[0]
    if change == "rate":
        levels = (Level(concurrency=1), Level(concurrency=4, request_rate=2.0))
        spec = replace(spec, workload=replace(spec.workload, levels=levels))
    elif change == "level":
        spec = replace(spec, workload=replace(spec.workload, levels=spec.workload.levels[:1]))
    elif change == "ranks":
        target = replace(spec.target, engine_args={"data_parallel_size": 2})
        spec = replace(spec, target=target)
    else:
        failure = replace(make_failure(), cause=Cause.LIVE_K_NOT_IN_FORCE)
        records.append(make_record("eagle", 0, Stage.SCREEN, outcome=failure, launch_id="002"))
    found = proposed(spec, records, first)
    assert isinstance(found, str)
    assert reason in found


def test_it_is_the_third_arm_of_each_round() -> None:
    """Baseline, static K, schedule, in turn; its launch has the largest K and the same memory."""
    records = searched()
    ahead = list(pending(SPEC, records))
    assert [(x.stage.value, x.name, x.k_max) for x in ahead] == 2 * [
        ("confirm", BASELINE, 0),
        ("confirm", "eagle", 3),
        ("schedule", "eagle(K=3, 0 from 2)", 3),
    ]
    assert {x.gpu_memory_utilization for x in ahead} == {ahead[0].gpu_memory_utilization}
    assert "K = 3 up to a batch of 1, 0 beyond" in ahead[2].why


def test_a_schedule_is_the_first_to_be_left_out_when_time_is_short() -> None:
    """With time for the second round of baseline and static K, and not for schedules besides."""
    records = searched()
    records.append(cold(BASELINE, 0, {1: 1.0, 4: 1.0}, 0, 0))
    records.append(counted(cold("eagle", 3, {1: 1.6, 4: 0.8}, 0, 1), IGNORED))
    ahead = list(pending(SPEC, records))
    assert [x.stage for x in ahead].count(Stage.SCHEDULE) == 2
    found = {left: next_launch(SPEC, records, remaining_s=left) for left in (3600.0, 200.0)}
    assert found[3600.0]
    assert found[3600.0].stage is Stage.SCHEDULE
    assert found[200.0]
    assert (found[200.0].stage, found[200.0].name) == (Stage.CONFIRM, BASELINE)
    # What is left out gets no share of the time.
    assert found[200.0].measure_s == pytest.approx((200.0 - 2 * (35.0 + 10.0)) / 2)
    done = [*records, *(cold(x, k, {1: 1.6 if k else 1.0, 4: 0.9}, 1, 3) for x, k in LAST)]
    assert next_launch(SPEC, done, remaining_s=50.0) is None


LAST = ((BASELINE, 0), ("eagle", 3))


def test_a_schedule_that_cannot_start_stops_neither_the_confirmation_nor_the_answer() -> None:
    """It is tried no more, and told."""
    records = searched()
    records.append(cold(BASELINE, 0, {1: 1.0, 4: 1.0}, 0, 0))
    records.append(counted(cold("eagle", 3, {1: 1.6, 4: 0.8}, 0, 1), IGNORED))
    refusal = Failure(cause=Cause.ENGINE_REFUSED, detail="Unexpected keyword argument")
    trial = cold(WITH.name, 3, {1: 1.0, 4: 1.0}, 0, 2)
    records.append(replace(trial, outcome=refusal))
    assert [x.name for x in pending(SPEC, records)] == [BASELINE, "eagle"]
    assert answer(records).refused == "its launch failed: Unexpected keyword argument"
    result = recommend(SPEC, records)
    assert result.speculates
    assert result.schedule is not None
    assert not result.schedule.offered


@pytest.mark.parametrize("cause", [Cause.KV_CACHE_TOO_SMALL, Cause.OUT_OF_MEMORY_START])
def test_one_that_does_not_fit_is_not_launched_for_ever(cause: Cause) -> None:
    """Another utilization would be another confirmation: the static K's decides."""
    search = replace(SPEC.search, gpu_memory_utilization=(0.3, GMU, 0.5))
    spec = replace(SPEC, search=search)
    records = [replace(r, trial=replace(r.trial, gpu_memory_utilization=0.5)) for r in searched()]
    made = 0
    while (launch := next_launch(spec, records)) is not None:
        made += launch.stage is Stage.SCHEDULE
        assert made <= TRIES
        gains = {BASELINE: {1: 1.0, 4: 1.0}}.get(launch.name, {1: 1.6, 4: 0.8})
        done = cold(launch.name, launch.k_max, gains, launch.repeat, len(records))
        share = launch.gpu_memory_utilization
        done = replace(done, trial=replace(done.trial, gpu_memory_utilization=share))
        failed = launch.stage is Stage.SCHEDULE
        records.append(replace(done, outcome=make_failure(cause)) if failed else done)
    assert made >= 1


def test_nothing_is_left_when_every_arm_has_its_rounds() -> None:
    """The records of a study with a schedule are whole."""
    assert next_launch(SPEC, confirmed({1: 1.6, 4: 1.0})) is None


def test_one_in_force_and_better_is_offered() -> None:
    """The static K has 0.8 at four streams, plain decoding 1.0: a ratio of 1.25."""
    found = answer(confirmed({1: 1.6, 4: 1.0}))
    assert found.offered, found.refused
    one, four = found.levels
    assert one.over_static is not None
    assert four.over_static is not None
    assert one.over_static.mean == pytest.approx(1.0, abs=0.01)
    assert four.over_static.mean == pytest.approx(1.25, rel=0.01)
    assert one.drafted_share == pytest.approx(1.0)
    assert one.draft_length == 3.0
    assert four.drafted_share == pytest.approx(0.1, abs=0.01)
    assert found.ranges == RANGES


@pytest.mark.parametrize(
    ("gains", "drafts", "reason"),
    [
        ({1: 1.6, 4: 1.0}, IGNORED, "not in force at concurrency 4, where K = 0 was planned"),
        ({1: 1.6, 4: 1.0}, {1: (0.0, 3), 4: (0.0, 3)}, "not in force at concurrency 1"),
        ({1: 1.6, 4: 1.0}, {1: (1.0, 2), 4: (0.1, 3)}, "2.00 tokens per draft were counted"),
        ({1: 1.4, 4: 1.0}, IN_FORCE, "at concurrency 1 it has 0.8"),
        ({1: 1.6, 4: 0.8}, IN_FORCE, "at no concurrency it is faster"),
    ],
)
def test_what_is_not_offered(
    gains: Mapping[int, float], drafts: Mapping[int, tuple[float, int]], reason: str
) -> None:
    """Ignored, switched off, another K, slower somewhere, faster nowhere: each with its reason."""
    found = answer(confirmed(gains, drafts))
    assert not found.offered
    assert reason in found.refused


@pytest.mark.parametrize(("factor", "offered"), [(1.0, True), (2.0, False)])
def test_a_constraint_counts_for_the_schedule_too(factor: float, *, offered: bool) -> None:
    """It is not offered where it breaks what the static K keeps."""
    bound = Objective(constraints=(Constraint(metric="p99_tpot_ms", upper=60.0),))
    records = [_slower(r, factor) for r in confirmed({1: 1.6, 4: 1.0})]
    found = answer(records, replace(SPEC, objective=bound))
    assert found.offered is offered
    assert offered or found.refused.startswith("at concurrency 4: p99_tpot_ms is ")


def _slower(record: Record, factor: float) -> Record:
    """The record of a schedule with longer times per token."""
    if record.trial.stage is not Stage.SCHEDULE or record.measurement is None:
        return record
    passes = tuple(_with_times(p, factor) for p in record.measurement.passes)
    return replace(record, outcome=Measurement(passes=passes))


def _with_times(measured: Pass, factor: float) -> Pass:
    assert measured.times
    tpot = tuple(factor * t for t in measured.times.tpot_ms if t is not None)
    return replace(measured, times=replace(measured.times, tpot_ms=tpot))


def test_one_that_the_engine_says_it_switched_off_is_not_offered() -> None:
    """Whatever the counters say."""
    records = confirmed({1: 1.6, 4: 1.0})
    last = records[-1]
    assert last.facts
    told = {SCHEDULE_DISABLED: "to static num_speculative_tokens=3."}
    records[-1] = replace(last, facts=replace(last.facts, resolved=told))
    refused = answer(records).refused
    assert refused.startswith("the engine switched it off and fell back to static")


def test_a_schedule_moves_neither_curves_nor_knees_nor_the_answer() -> None:
    """All but the schedule is the same with its records and without."""
    records = confirmed({1: 1.6, 4: 1.0})
    without = [r for r in records if r.trial.stage is not Stage.SCHEDULE]
    one, other = recommend(SPEC, records), recommend(SPEC, without)
    assert one.search == other.search
    assert one.finalist == other.finalist
    assert [c.points for c in one.confirmation] != []
    assert {c.candidate for c in one.confirmation} == {"eagle"}
    assert one.verdict == other.verdict
    assert any("is offered beside the static K" in reason for reason in one.reasons)
