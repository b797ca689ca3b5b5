"""What a tracker is given: legal names, finite values, honest cuts."""

import math
from dataclasses import replace

import pytest

from autotune.core.diagnosis import explain
from autotune.core.noise import LaunchEffect
from autotune.core.recommendation import recommend
from autotune.core.replychecks import NO_CHECKS, check_replies
from autotune.core.trial import Record, Stage
from autotune.core.workload import Slo
from autotune.trackers._facts import (
    Value,
    cut,
    diagnosis_tags,
    finite,
    metrics,
    params,
    reply_metrics,
    result_metrics,
    run_key,
    safe_name,
    schedule_tag,
    tags,
)
from autotune.trackers._store import artifact_location, resolve, without_password
from tests.builders import make_failure, make_record, make_spec
from tests.builders_demo import DEMO, demo_study
from tests.builders_replies import make_reply
from tests.builders_schedule import IGNORED, confirmed
from tests.builders_schedule import SPEC as SCHEDULED
from tests.builders_study import make_open_records, make_open_spec, make_study_records

SPEC = make_spec()
EAGLE = ("eagle", 1)


def key(record: Record) -> int:
    """The K of a record."""
    return record.trial.num_speculative_tokens


def test_what_is_not_finite_is_left_out() -> None:
    """MLflow would store infinity as 1.8e308 without a word."""
    values = [Value("a", 1.0), Value("b", math.nan), Value("c", math.inf)]
    assert finite(values) == [Value("a", 1.0)]


@pytest.mark.parametrize("name", ["acc%", "acc[0]", "a=b", "a:b", "../a", "a b", "ü" * 300])
def test_names_are_made_legal(name: str) -> None:
    """For every MLflow, also the older ones."""
    made = safe_name(name)
    assert set(made) <= set("abcdefghijklmnopqrstuvwxyz0123456789_.-")
    assert len(made) <= 250


def test_a_long_text_says_how_long_it_was() -> None:
    """A reader sees that something is missing."""
    assert cut("short") == "short"
    assert len(cut("x" * 9000)) == 500
    assert cut("x" * 9000).endswith("(9000 characters)")


def test_the_id_tells_attempts_apart() -> None:
    """Another launch of one point is another run, and so is its failure."""
    record = make_record("eagle", 2, launch_id="007")
    others = [
        replace(record, launch_id="008"),
        replace(record, outcome=make_failure()),
        make_record("eagle", 3, launch_id="007"),
    ]
    assert len({run_key(r) for r in (record, *others)}) == 4


def test_speedups_need_a_baseline_of_the_same_prompts() -> None:
    """A ratio over other prompts is no speedup."""
    records = make_study_records()
    winner = records[-1]
    searched, confirmed = records[0], records[-2]
    assert not [v for v in metrics(SPEC, winner, [searched]) if v.name.startswith("speedup")]
    assert [v for v in metrics(SPEC, winner, [confirmed]) if v.name.startswith("speedup")]


def test_a_searched_record_has_the_speedup_over_the_baseline_of_the_search() -> None:
    """Screen and baseline run the same prompts, at another stage; the value is the curve's."""
    records = make_study_records(confirmed=False)
    known = [records[0]]
    (searched,) = (r for r in records if (r.trial.candidate, key(r)) == ("eagle", 2))
    found = {v.name: v.value for v in metrics(SPEC, searched, known)}
    curve = next(
        c for c in recommend(SPEC, records).search if (c.candidate, c.concurrency) == EAGLE
    )
    wanted = curve.at(2).speedup
    assert (found["speedup.c1"], found["speedup.c1.low"], found["speedup.c1.high"]) == (
        pytest.approx((wanted.mean, wanted.low, wanted.high))
    )
    assert found["speedup.c4"] == pytest.approx(1.19, abs=0.02)


def test_the_interval_carries_the_launch_effect_of_all_that_is_known() -> None:
    """As the report's does: equal launches that differ make every interval wider."""
    records = make_study_records()
    winner, others = records[-1], records[:-1]
    one, again = (make_record("ngram", 2, Stage.CONFIRM, launch_id=i) for i in ("a", "b"))
    other = make_record("ngram", 2, Stage.CONFIRM, launch_id="b", tput={1: 60.0, 4: 200.0})
    near, apart = (one, again), (one, other)
    widths = []
    for pair in (near, apart):
        found = {v.name: v.value for v in metrics(SPEC, winner, [*others, *pair])}
        widths.append(found["speedup.c1.high"] - found["speedup.c1.low"])
    assert widths[1] > 2 * widths[0]


def test_the_baseline_has_no_speedup() -> None:
    """It is the denominator."""
    baseline = make_record()
    assert not [v for v in metrics(SPEC, baseline, [baseline]) if "speedup" in v.name]


def test_a_failure_has_no_measurement() -> None:
    """A crash never becomes a number."""
    record = make_record("eagle", 2, outcome=make_failure())
    assert metrics(SPEC, record, []) == []
    assert tags(record, "here")["cause"] == "out_of_memory_start"


def test_a_record_of_a_removed_candidate_is_shown() -> None:
    """candidates.yaml may have changed since."""
    assert params(SPEC, make_record("old", 2))["method"] == "unknown"


def test_settings_are_params() -> None:
    """What differs between two trials can be compared."""
    record = make_record("ngram", 2)
    trial = replace(record.trial, settings={"prompt_lookup_max": 3})
    assert params(SPEC, replace(record, trial=trial))["settings.prompt_lookup_max"] == "3"


def test_the_result_of_nothing_is_nothing() -> None:
    """No curve, no metric."""
    assert result_metrics(recommend(SPEC, [])) == []


def test_replies_are_rates_and_ratios_with_k_as_the_step() -> None:
    """One of two matches, one parts after a word; the long prompt runs twice as fast."""
    replies = [
        make_reply(
            text, name, k, prompt=prompt, prompt_tokens=length, launch=str(k), seconds=seconds
        )
        for name, k, prompt, length, text, seconds in (
            ("baseline", 0, "a", 10, "one two", 1.0),
            ("baseline", 0, "b", 300, "one two", 1.0),
            ("eagle", 3, "a", 10, "one two", 1.0),
            ("eagle", 3, "b", 300, "one other", 0.5),
        )
    ]
    effect = LaunchEffect(sd=0.02, dof=4.0, launches=0)
    found = reply_metrics(check_replies(replies, 0.0, effect))
    assert {v.step for v in found} == {3}
    values = {v.name: v.value for v in found}
    assert values["match_rate.search.eagle.overall"] == 0.5
    assert values["words_before_difference.search.eagle.c1"] == 1.0
    assert values["speedup_by_length.search.eagle.c1.from_256_tokens"] == pytest.approx(2.0)
    warm = {v.name for v in reply_metrics(check_replies(replies, 0.7, effect))}
    assert "reply_length_ratio.search.eagle" in warm
    assert not [name for name in warm if name.startswith("match")]
    assert reply_metrics(NO_CHECKS) == []


def test_a_relative_database_is_made_absolute(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Started from another directory it is still the same store."""
    home = tmp_path_factory.mktemp("home").resolve()
    monkeypatch.chdir(home)
    assert resolve("sqlite:///studies/mlflow.db") == f"sqlite:///{home}/studies/mlflow.db"
    assert resolve("sqlite:////abs/mlflow.db") == "sqlite:////abs/mlflow.db"
    assert resolve("http://host:5000") == "http://host:5000"


def test_only_a_local_database_has_artifacts_beside_it() -> None:
    """A server decides for itself."""
    assert artifact_location("sqlite:////a/b/mlflow.db") == "/a/b/mlartifacts"
    assert artifact_location("http://host:5000") is None


def test_passwords_are_taken_out_of_urls() -> None:
    """A warning is copied into issues."""
    assert without_password("http://me:pw@host/x: refused") == "http://host/x: refused"


def test_a_rate_stands_in_the_names() -> None:
    """A speedup of E2E latency is not called the same as one of throughput."""
    spec = make_open_spec(slo=Slo(ttft_ms=100.0))
    records = make_open_records()
    eagle = next(r for r in records if (r.trial.candidate, key(r)) == ("eagle", 2))
    shown = {v.name: v.value for v in metrics(spec, eagle, records)}
    assert {"speedup.c1", "e2e_speedup.c4", "mean_e2e_ms.c4", "goodput.c4"} <= shown.keys()
    assert not {"speedup.c4", "mean_e2e_ms.c1"} & shown.keys()
    assert shown["good_share.c4.low"] < shown["good_share.c4"] < shown["good_share.c4.high"]
    assert eagle.measurement
    mean = [p.mean_e2e_ms for p in eagle.measurement.at(4) if p.mean_e2e_ms]
    assert min(mean) < shown["mean_e2e_ms.c4"] < max(mean)
    assert params(spec, eagle)["request_rate.c4"] == "2.5"
    names = {v.name for v in result_metrics(recommend(spec, records))}
    assert {"e2e_speedup.eagle.c4", "confirmed_e2e_speedup.eagle.c4"} <= names
    assert not {"speedup.eagle.c4", "e2e_speedup.eagle.overall"} & names


def test_diagnoses_are_tags_by_candidate_and_none_is_said() -> None:
    """A tag of an earlier end of the study is overwritten, and the next change stands beside."""
    records = demo_study()
    shown = diagnosis_tags(explain(DEMO, records, recommend(DEMO, records)))
    assert shown["diagnosis.eagle"].startswith("draft_not_aligned, draft_too_slow at concurrency 4")
    assert shown["diagnosis.study"] == "small_target at concurrency 1"
    assert shown["next_change"].startswith("num_speculative_tokens_per_batch_size of ngram")
    assert all(len(text) <= 500 for text in shown.values())
    nothing = diagnosis_tags(explain(DEMO, [], recommend(DEMO, [])))
    assert nothing["diagnosis.eagle"] == "none"


def test_an_offered_schedule_is_a_tag() -> None:
    """As vLLM takes it; `none` where it is refused, or where none was made."""
    offered = recommend(SCHEDULED, confirmed({1: 1.6, 4: 1.0}))
    assert schedule_tag(offered) == "[[1, 1, 3], [2, 4, 0]]"
    refused = recommend(SCHEDULED, confirmed({1: 1.6, 4: 1.0}, IGNORED))
    assert schedule_tag(refused) == schedule_tag(recommend(make_spec(), [])) == "none"
