"""What a doubt does: invalid points leave the curves with their cause, all others are told."""

from dataclasses import replace

from autotune.core.parity import ROWS, doubts, fair, remarks, ruled_out
from autotune.core.plan import next_launch
from autotune.core.recommendation import recommend
from autotune.core.speedup import overall_ratio
from autotune.core.study import Search
from autotune.core.trial import BASELINE, Stage
from autotune.core.verdict import Verdict
from tests.builders import GMU, make_candidates, make_record, make_spec
from tests.builders_arms import SPEC, arm, baseline, changed, resolved
from tests.builders_study import make_study_records


def test_an_unfair_point_is_kept_out_of_the_curves() -> None:
    """The fastest arm loops: another one is recommended, and the cause is in the reasons."""
    records = [
        baseline(),
        changed(arm("eagle", 3, gain=2.5), looping=4),
        arm("draft-4l", 1, gain=1.3),
    ]
    result = recommend(SPEC, records)
    assert [curve.candidate for curve in result.search if curve.concurrency is None] == ["draft-4l"]
    assert result.finalist
    assert result.finalist.candidate == "draft-4l"
    [told] = [reason for reason in result.reasons if "eagle" in reason]
    assert told.startswith("left out, eagle at K = 3, concurrency 1, 4: 100% of the replies are")
    assert overall_ratio(SPEC, records, "eagle", 3) is None
    assert overall_ratio(SPEC, records, "draft-4l", 1) is not None


def test_an_unfair_level_costs_the_other_levels_nothing() -> None:
    """Above K + 1 at concurrency 1; the passes at 4 stay as they are."""
    unfair = arm("eagle", 1, gain=2.5)
    [plain, judged] = fair(SPEC, [baseline(), unfair])
    assert judged.measurement
    assert {bool(p.invalid) for p in judged.measurement.passes if p.concurrency == 1} == {True}
    assert {p.invalid for p in judged.measurement.passes if p.concurrency == 4} == {None}
    assert all(p.remedy for p in judged.measurement.passes if p.invalid)
    assert plain == baseline()


def test_what_was_invalid_before_keeps_its_own_cause() -> None:
    """The first cause is the cause."""
    loops = changed(arm(), looping=4)
    assert loops.measurement
    first, *others = loops.measurement.passes
    passes = (replace(first, invalid="requests failed"), *others)
    record = replace(loops, outcome=replace(loops.measurement, passes=passes))
    judged = fair(SPEC, [baseline(), record])[1]
    assert judged.measurement
    assert judged.measurement.passes[0].invalid == "requests failed"
    assert "one phrase over and over" in str(judged.measurement.passes[1].invalid)


def test_a_winner_that_is_unfair_when_launched_cold_is_out() -> None:
    """The confirmation rules it out like a failure, with the reason."""
    records = make_study_records()
    cold = [
        resolved(r, dtype="torch.float32")
        if r.trial.stage is Stage.CONFIRM and r.trial.candidate == "eagle"
        else r
        for r in records
    ]
    spec = make_spec(search=Search(gpu_memory_utilization=(GMU,)))
    assert recommend(spec, records).verdict is Verdict.SPECULATE
    result = recommend(spec, cold)
    assert (result.finalist.candidate if result.finalist else "") != "eagle"
    assert any("dtype is torch.float32, the baseline's bfloat16" in r for r in result.reasons)
    assert ruled_out(spec, cold) == {
        ("eagle", 2): "dtype is torch.float32, the baseline's bfloat16"
    }


def test_what_was_left_out_is_not_measured_over_and_over() -> None:
    """Every candidate loops: nothing more is launched, and nothing is recommended."""
    screened = [r for r in make_study_records(confirmed=False) if r.trial.candidate != "ngram"]
    records = [changed(r, looping=4) if r.trial.candidate != BASELINE else r for r in screened]
    spec = make_spec(candidates=[c for c in make_candidates() if c.name != "ngram"])
    ahead = next_launch(spec, screened)
    assert ahead
    assert ahead.stage is Stage.CONFIRM
    assert next_launch(spec, records) is None
    assert recommend(spec, records).verdict is Verdict.INCONCLUSIVE


def test_each_split_is_compared_with_its_own_baseline() -> None:
    """A confirmation that was started otherwise says nothing about the search."""
    records = [
        baseline(),
        arm(),
        resolved(make_record(stage=Stage.CONFIRM, launch_id="002"), dtype="torch.float32"),
        resolved(make_record("eagle", 2, Stage.CONFIRM, launch_id="003"), dtype="torch.float32"),
    ]
    assert doubts(SPEC, records) == ()


def test_without_a_baseline_there_is_nothing_to_doubt() -> None:
    """Nor is there about plain decoding, live or not, nor about a candidate that is gone."""
    assert doubts(SPEC, [changed(arm(), looping=4)]) == ()
    live = changed(make_record("eagle", 0, live=True), looping=4)
    gone = changed(make_record("gone", 2, spec_profile=(0.5,)), looping=4)
    assert doubts(SPEC, [baseline(), live, gone]) == ()


def test_a_doubt_about_many_points_is_one_sentence() -> None:
    """It lists the K, and says of which of them the numbers are."""
    same = [resolved(arm("ngram", k), async_scheduling="False") for k in (3, 1, 2)]
    [told] = remarks(SPEC, [resolved(baseline(), async_scheduling="True"), *same])
    assert told.startswith("ngram at K = 1, 2, 3: the engine schedules asynchronously in")
    assert told.endswith("; both run as they would be deployed")
    loops = [changed(arm("eagle", k), looping=n) for k, n in ((1, 2), (2, 4))]
    [told] = remarks(SPEC, [baseline(), *loops])
    assert "eagle at K = 1, 2, concurrency 1, 4: 50% of the replies" in told
    assert "(so at K = 1 at concurrency 1)" in told


def test_every_kind_of_doubt_has_a_name_of_its_own() -> None:
    """By it the doubts of a candidate are told together; what is invalid says what to do."""
    names = [row.what for row in ROWS]
    assert len(set(names)) == len(names)
    assert all(row.remedy for row in ROWS if row.invalid)
