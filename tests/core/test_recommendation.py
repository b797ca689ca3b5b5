"""The answer: what is recommended, on what evidence, and when it is better not to speculate."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.core.finalists import finalists, hopeless
from autotune.core.recommendation import Basis, recommend
from autotune.core.statistics import Interval
from autotune.core.study import Candidate, Constraint, Objective, Search
from autotune.core.trial import BASELINE, Cause, Record, Stage
from autotune.core.verdict import Verdict, judge
from tests.builders import BASE, GMU, make_candidates, make_failure, make_record, make_spec
from tests.builders_study import make_confirmation, make_study_records

SPEC = make_spec()
TIED = make_spec(objective=Objective(tolerance=0.1))


def gains(table: Mapping[str, Mapping[int, float]]) -> list[Record]:
    """A search with these speedups, the same at every level."""
    return [make_record(stage=Stage.BASELINE)] + [
        make_record(
            name, k, tput={c: v * gain for c, v in BASE.items()}, launch_id=f"{name}-{k}", live=True
        )
        for name, row in table.items()
        for k, gain in row.items()
    ]


def test_a_clear_gain_speculates() -> None:
    """Confirmed above one: speculate, with the confirmation's numbers at every level."""
    result = recommend(SPEC, make_study_records())
    assert (result.verdict, result.basis) == (Verdict.SPECULATE, Basis.CONFIRMED)
    assert result.speculates
    assert result.finalist
    assert (result.finalist.candidate, result.finalist.num_speculative_tokens) == ("eagle", 2)
    assert result.finalist.gpu_memory_utilization == GMU
    assert [lv.concurrency for lv in result.levels] == [1, 4]
    for level in result.levels:
        ratio = level.throughput / level.baseline_throughput
        assert ratio == pytest.approx(level.speedup.mean)
        assert level.acceptance is not None


def test_a_loss_does_not_speculate() -> None:
    """The best candidate below one: no speculation, and no cold launch is asked for."""
    result = recommend(SPEC, make_study_records(confirmed=False, scale=0.6))
    assert result.verdict is Verdict.DO_NOT_SPECULATE
    assert not result.speculates
    assert not any("unverified" in reason for reason in result.reasons)


def test_equal_within_the_tolerance_is_a_tie() -> None:
    """An interval around one and inside the tolerance is worth no draft."""
    result = recommend(TIED, gains({"eagle": {1: 1.0, 2: 0.8}}))
    assert result.verdict is Verdict.TIE
    assert "within the tolerance of 10%" in result.reasons[0]


def test_a_wide_interval_is_inconclusive() -> None:
    """An interval that covers one and more than the tolerance asks for more launches."""
    result = recommend(SPEC, gains({"eagle": {1: 1.03, 2: 0.8}}))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "more blocks or launches are needed" in result.reasons[0]


def test_no_records_no_answer() -> None:
    """With nothing measured the answer is that nothing is known."""
    for records in ([], [make_record(stage=Stage.BASELINE)], [make_record("eagle", 2)]):
        result = recommend(SPEC, records)
        assert (result.verdict, result.basis) == (Verdict.INCONCLUSIVE, Basis.NOTHING)
        assert (result.finalist, result.speedup, result.levels) == (None, None, ())
        assert result.reasons == ("no candidate could be measured",)


def test_failures_are_listed() -> None:
    """Every failure goes with the answer, beside the record it belongs to."""
    result = recommend(SPEC, make_study_records())
    assert [r.trial.candidate for r, _ in result.failures] == ["ngram"]
    crashed = [make_record("eagle", 1, outcome=make_failure())]
    assert recommend(SPEC, crashed).failures == ((crashed[0], make_failure()),)


@given(
    st.floats(0.3, 3.0),
    st.floats(0, 0.6),
    st.floats(0, 0.6),
    st.floats(0, 0.5),
    st.floats(0.01, 0.2),
)
def test_never_speculates_without_the_gain_asked_for(
    mean: float, below: float, above: float, min_gain: float, tolerance: float
) -> None:
    """Whatever the interval: its low end decides, and it must exceed 1 + min_gain."""
    interval = Interval(mean=mean, low=mean * (1 - below), high=mean * (1 + above))
    spec = make_spec(objective=Objective(min_gain=min_gain, tolerance=tolerance))
    verdict, why = judge(spec, interval)
    assert (verdict is Verdict.SPECULATE) == (interval.low > 1 + min_gain)
    if verdict is Verdict.DO_NOT_SPECULATE:
        assert interval.high <= 1 + min_gain
    assert interval.show() in why


def test_min_gain_raises_the_bar() -> None:
    """A true gain of a quarter is not enough for who asks for a half."""
    spec = make_spec(objective=Objective(min_gain=0.5))
    assert recommend(spec, make_study_records()).verdict is Verdict.DO_NOT_SPECULATE
    assert hopeless(spec, finalists(spec, make_study_records())[0])
    assert not hopeless(SPEC, finalists(SPEC, make_study_records())[0])


def test_a_tie_goes_to_the_method_without_weights() -> None:
    """Within the tolerance a lookup, which costs no memory, beats the better draft model."""
    records = gains({"eagle": {2: 1.31}, "draft-4l": {2: 1.33}, "ngram": {3: 1.31}})
    best = finalists(SPEC, records)[0]
    assert (best.candidate, best.num_speculative_tokens) == ("ngram", 3)


def test_a_tie_goes_to_the_smaller_k() -> None:
    """Of two drafts alike, the one that drafts fewer tokens, whichever comes first in the file."""
    records = gains({"eagle": {3: 1.31}, "draft-4l": {2: 1.30}})
    for candidates in (make_candidates(), make_candidates()[::-1]):
        best = finalists(make_spec(candidates=candidates), records)[0]
        assert (best.candidate, best.num_speculative_tokens) == ("draft-4l", 2)


def test_beyond_the_tolerance_speed_wins() -> None:
    """Simplicity is worth the tolerance, and no more; the rest is ranked by speed."""
    records = gains({"eagle": {2: 1.40}, "draft-4l": {2: 1.20}, "ngram": {1: 1.30}})
    assert [f.candidate for f in finalists(SPEC, records)] == ["eagle", "ngram", "draft-4l"]


def test_confirmation_wins_over_the_search() -> None:
    """Where cold launches find less, the answer is less, and the disagreement is said."""
    records = make_study_records(confirmed=False) + make_confirmation("eagle", 2, scale=0.70)
    result = recommend(SPEC, records)
    assert result.basis is Basis.CONFIRMED
    assert result.speedup
    assert result.speedup.mean == pytest.approx(1.28 * 0.70, rel=0.03)
    assert result.verdict is Verdict.DO_NOT_SPECULATE
    assert any("disagree beyond their intervals" in reason for reason in result.reasons)
    assert not any("disagree" in r for r in recommend(SPEC, make_study_records()).reasons)


def test_without_confirmation_the_answer_is_unverified() -> None:
    """Numbers of the search alone, or of half a confirmation, are said to be unverified."""
    search = make_study_records(confirmed=False)
    for records in (search, [*search, make_record(stage=Stage.CONFIRM, launch_id="005")]):
        result = recommend(SPEC, records)
        assert result.basis is Basis.SEARCH
        assert any("unverified" in reason for reason in result.reasons)


def test_confirmation_of_another_k_is_no_confirmation() -> None:
    """Cold launches count for the K that they were launched with."""
    records = make_study_records(confirmed=False) + make_confirmation("eagle", 3)
    assert recommend(SPEC, records).basis is Basis.SEARCH


def test_who_fails_cold_is_out() -> None:
    """A winner that cannot run as deployed is not recommended; the next best is."""
    crash = make_record("eagle", 2, Stage.CONFIRM, outcome=make_failure())
    search = gains({"eagle": {2: 1.4}, "draft-4l": {2: 1.3}})
    result = recommend(SPEC, [*search, crash])
    assert result.finalist
    assert (result.finalist.candidate, result.basis) == ("draft-4l", Basis.SEARCH)
    assert any(
        reason.startswith("eagle at K = 2, launched as it would be deployed: failed: Avail")
        for reason in result.reasons
    )
    alone = recommend(SPEC, [*gains({"eagle": {2: 1.4}}), crash])
    assert (alone.verdict, alone.finalist) == (Verdict.INCONCLUSIVE, None)
    assert alone.reasons[0] == "no candidate could be launched as it would be deployed"


def test_a_port_taken_once_puts_nobody_out() -> None:
    """A failure that says nothing about the configuration is tried again before it counts."""
    busy = make_record("eagle", 2, Stage.CONFIRM, outcome=make_failure(Cause.PORT_TAKEN))
    search = gains({"eagle": {2: 1.4}, "draft-4l": {2: 1.3}})
    for times, best in ((1, "eagle"), (2, "draft-4l")):
        assert finalists(SPEC, [*search, *[busy] * times])[0].candidate == best


def test_more_launches_narrow_the_interval() -> None:
    """A second round of cold launches is worth its time."""
    search = make_study_records(confirmed=False)
    widths = []
    for rounds in (1, 2):
        result = recommend(SPEC, search + make_confirmation("eagle", 2, rounds=rounds))
        assert result.speedup
        widths.append(result.speedup.half_width)
    assert widths[1] < widths[0]


def test_the_edge_of_the_range_is_mentioned() -> None:
    """If the largest K is the best, the reader hears that larger ones may be better."""
    result = recommend(SPEC, gains({"eagle": {1: 1.1, 2: 1.2, 3: 1.4}}))
    assert "the best K, 3, is the largest tried: try larger ones" in result.reasons
    single = recommend(SPEC, gains({"eagle": {3: 1.4}}))
    assert any("best known, not a knee" in reason for reason in single.reasons)


def test_a_broken_constraint_is_a_reason() -> None:
    """A K that may not win says which bound it broke, with both figures."""
    bound = Constraint(metric="p99_ttft_ms", upper=100.0)  # 93.6 at concurrency 1, 158.4 at 4
    result = recommend(make_spec(objective=Objective(constraints=(bound,))), make_study_records())
    assert result.finalist is None
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.reasons[0] == "no K could be measured at every level and keeps every constraint"
    broken = (
        "eagle: K = 2 at concurrency 4: p99_ttft_ms is 158.4 (next to the worst of 48 requests), "
        "the constraint 100"
    )
    assert broken in result.reasons


def test_records_of_unknown_candidates_do_no_harm() -> None:
    """A candidate taken out of the file leaves its records, and no trace in the answer."""
    spec = make_spec(
        candidates=[Candidate(name="ngram", method="ngram")],
        search=Search(gpu_memory_utilization=(GMU,)),
    )
    result = recommend(spec, make_study_records())
    assert {c.candidate for c in result.search} == {"ngram"}
    assert result.finalist
    assert result.finalist.candidate == "ngram"


def test_same_records_same_answer() -> None:
    """The answer hangs on the records alone, not on their order of arrival."""
    records = make_study_records()
    assert recommend(SPEC, records) == recommend(SPEC, records)
    shuffled = replace(recommend(SPEC, records[::-1]), failures=())
    plain = replace(recommend(SPEC, records), failures=())
    assert shuffled.finalist == plain.finalist
    assert shuffled.verdict is plain.verdict


def test_the_baseline_is_no_candidate() -> None:
    """However fast, plain decoding is what others are compared with, never a finalist."""
    assert all(f.candidate != BASELINE for f in finalists(SPEC, make_study_records()))


def test_the_confirmation_does_not_move_the_knee_that_it_is_for() -> None:
    """Whatever the confirmation measures, the finalist stays who it was unless it is ruled out."""
    search = make_study_records(confirmed=False)
    before = finalists(SPEC, search)[0]
    for scale in (0.7, 1.0, 1.4):
        records = [*search, *make_confirmation("eagle", 2, scale=scale, rounds=3)]
        assert finalists(SPEC, records)[0] == before
