"""The Optuna study as the ledger: told once, kept for good, whatever happens around it."""

import math
import sqlite3
import threading
import time
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from optuna.trial import TrialState

from autotune.core.axes import Axis, Choices, FloatRange, IntRange
from autotune.core.jsontype import JSON
from autotune.core.schedule import ranges_of
from autotune.core.space import variant
from autotune.core.study import Candidate, Constraint, Objective, StudySpec
from autotune.core.trial import Cause, Failure, Record, Stage
from autotune.core.workload import Level, Slo
from autotune.errors import UserError
from autotune.tuning.attributes import record_id
from autotune.tuning.ledger import OBJECTIVE, Ledger, read_records
from tests.builders import (
    make_candidates,
    make_facts,
    make_failure,
    make_record,
    make_spec,
    make_workload,
)
from tests.builders_schedule import RANGES, confirmed
from tests.builders_schedule import SPEC as SCHEDULED
from tests.builders_study import SPEEDUPS, make_study_records

SPEC = make_spec()
GROWN = make_spec(candidates=(*make_candidates(), Candidate(name="suffix", method="suffix")))


@pytest.fixture
def url(tmp_path: Path) -> str:
    """SQLite on disk, as by default."""
    return f"sqlite:///{tmp_path}/study.db"


def trials_of(url: str, name: str = SPEC.name) -> list[optuna.trial.FrozenTrial]:
    """The study as Optuna and its dashboard see it."""
    return optuna.load_study(study_name=name, storage=url).get_trials()


def filled(url: str) -> Ledger:
    """A ledger with a whole study in it."""
    ledger = Ledger(url, SPEC)
    for record in make_study_records():
        ledger.tell(record, None if isinstance(record.outcome, Failure) else 1.25)
    return ledger


def test_records_come_back_exactly(url: str) -> None:
    """What was told is read back equal and in order, also after reopening."""
    told = make_study_records()
    ledger = filled(url)
    assert ledger.records() == told
    assert Ledger(url, SPEC).records() == told


def test_told_twice_changes_nothing(url: str) -> None:
    """Telling all records again, in the same process or a later one, adds nothing."""
    ledger = filled(url)
    count = len(trials_of(url))
    for again in (ledger, Ledger(url, SPEC)):
        for record in make_study_records():
            again.tell(record, 7.0)
        assert len(trials_of(url)) == count
        assert all(t.value in (None, 1.25) for t in trials_of(url))


def test_values_and_failures_are_optunas_own(url: str) -> None:
    """A measurement is COMPLETE with its speedup, a failure FAIL with its cause, and no value."""
    ledger = Ledger(url, SPEC)
    measured = make_record("eagle", 2, launch_id="001", why="the curve of eagle")
    failed = make_record("eagle", 5, outcome=make_failure(Cause.ENGINE_STALLED), launch_id="002")
    ledger.tell(measured, 1.31)
    ledger.tell(failed, None)
    good, bad = trials_of(url)
    assert (good.state, good.value) == (TrialState.COMPLETE, 1.31)
    assert good.params == {
        "candidate": "eagle",
        "num_speculative_tokens": 2,
        "gpu_memory_utilization": 0.4,
        "stage": "screen",
    }
    assert good.user_attrs["why"] == "the curve of eagle"
    assert good.user_attrs["acceptance_length"] == pytest.approx(2.18, abs=0.01)
    assert (bad.state, bad.values) == (TrialState.FAIL, None)
    assert bad.user_attrs["cause"] == "engine_stalled"
    assert "Available memory" in bad.user_attrs["detail"]


def test_constraints_are_told_and_the_best_trial_keeps_them(url: str) -> None:
    """Milliseconds above the bound at each level, in Optuna's own place; also in a copied study."""
    bound = Constraint(metric="median_tpot_ms", upper=25.0)
    for spec in (
        make_spec(objective=Objective(constraints=(bound,))),
        replace(GROWN, objective=Objective(constraints=(bound,))),
    ):
        ledger = Ledger(url, spec)
        # A stream alone has a TPOT of 1000 / 33 and 1000 / 66 ms.
        ledger.tell(make_record("eagle", 1, tput={1: 33.0, 4: 400.0}, launch_id="001"), 1.9)
        ledger.tell(make_record("eagle", 2, tput={1: 66.0, 4: 400.0}, launch_id="002"), 1.2)
    study = optuna.load_study(study_name=f"{SPEC.name}~2", storage=url)
    slow, fast = study.get_trials()
    assert slow.constraints.keys() == {"median_tpot_ms.c1", "median_tpot_ms.c4"}
    assert slow.constraints["median_tpot_ms.c1"] > 0
    assert max(fast.constraints.values()) <= 0
    assert study.best_trial.user_attrs["launch"] == "002"


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, None])
def test_what_is_no_number_is_no_value(url: str, value: float | None) -> None:
    """Optuna would take infinity for the best of all; here it is a trial without a value."""
    ledger = Ledger(url, SPEC)
    ledger.tell(make_record("eagle", 2), value)
    ledger.tell(make_record("eagle", 3), 1.1)
    assert [t.state for t in trials_of(url)] == [TrialState.FAIL, TrialState.COMPLETE]
    assert ledger.records() == [make_record("eagle", 2), make_record("eagle", 3)]
    assert optuna.load_study(study_name=SPEC.name, storage=url).best_value == 1.1


numbers = st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | numbers | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def one_ledger() -> Ledger:
    """One ledger for many examples."""
    return Ledger("sqlite:///:memory:", SPEC)


@settings(max_examples=15, phases=[Phase.generate])
@given(detail=st.text(), why=st.text(), resolved=st.dictionaries(st.text(), values, max_size=3))
def test_any_text_round_trips(
    one_ledger: Ledger, detail: str, why: str, resolved: dict[str, JSON]
) -> None:
    """Whatever an engine says of itself or prints, in any script, comes back letter by letter."""
    number = len(one_ledger.records())
    failure = Failure(cause=Cause.CRASHED_START, detail=detail, remedy=why)
    failed = make_record("ngram", 1, outcome=failure, launch_id=f"{number}", why=why)
    measured = make_record("ngram", 2, launch_id=f"{number}", why=detail)
    measured = replace(measured, facts=replace(make_facts(), resolved=resolved))
    for record in (failed, measured):
        one_ledger.tell(record, None)
    assert one_ledger.records()[-2:] == [failed, measured]


def test_a_new_candidate_extends_the_choices(url: str) -> None:
    """Optuna fixes the choices of a study; the ledger grows them and keeps every record."""
    told = filled(url).records()
    values_before = [t.value for t in trials_of(url)]
    grown = Ledger(url, GROWN)
    assert grown.records() == told
    grown.tell(make_record("suffix", 1, launch_id="100"), 1.5)
    assert len(grown.records()) == len(told) + 1
    assert [t.value for t in trials_of(url, grown.study_name)] == [*values_before, 1.5]
    assert optuna.get_all_study_names(url) == [grown.study_name]
    # And again, told or taken away: nothing is lost.
    assert Ledger(url, GROWN).records() == grown.records()
    assert Ledger(url, SPEC).records() == grown.records()


def test_killed_while_extending_loses_nothing(url: str) -> None:
    """A copy that was cut short is thrown away; the study it came from is still whole."""
    told = filled(url).records()
    optuna.create_study(study_name=f"{SPEC.name}~2", storage=url, direction="maximize")
    assert Ledger(url, SPEC).records() == told
    assert Ledger(url, GROWN).records() == told
    assert optuna.get_all_study_names(url) == [f"{SPEC.name}~2"]


def test_killed_while_creating(url: str) -> None:
    """A study without its particulars and without trials is made anew."""
    optuna.create_study(study_name=SPEC.name, storage=url)
    ledger = Ledger(url, SPEC)
    ledger.tell(make_record("eagle", 2), 1.2)
    study = optuna.load_study(study_name=SPEC.name, storage=url)
    assert study.direction is optuna.study.StudyDirection.MAXIMIZE
    assert study.best_value == 1.2


def test_other_weights_judge_what_was_measured_anew(url: str) -> None:
    """Values of two objectives never stand in one study, and no measurement is lost for it."""
    filled(url)
    levels = (Level(concurrency=1, weight=3), Level(concurrency=4))
    spec = replace(SPEC, workload=replace(SPEC.workload, levels=levels))
    ledger = Ledger(url, spec)
    assert ledger.judged_anew
    assert ledger.records() == make_study_records()
    assert optuna.get_all_study_names(url) == [f"{SPEC.name}~2"]
    found = {
        (t.params["candidate"], t.params["num_speculative_tokens"]): t.value
        for t in trials_of(url, f"{SPEC.name}~2")
        if t.params["stage"] == "screen" and t.state is TrialState.COMPLETE
    }
    weighted = math.exp((3 * math.log(SPEEDUPS["eagle"][1][2]) + math.log(1.19)) / 4)
    assert found["eagle", 2] == pytest.approx(weighted, rel=0.01)
    assert not Ledger(url, spec).judged_anew


@pytest.mark.parametrize(
    "other",
    [
        make_spec(objective=Objective(metric="tpot")),
        make_spec(objective=Objective(constraints=(Constraint(metric="p99_ttft_ms", upper=300),))),
        make_spec(workload=replace(make_workload(), slo=Slo(ttft_ms=300))),
    ],
    ids=["metric", "constraint", "slo"],
)
def test_another_objective_judges_once(url: str, other: StudySpec) -> None:
    """A failure stays one with its cause; what is not measured for it has no value."""
    filled(url)
    assert Ledger(url, other).judged_anew
    assert not Ledger(url, other).judged_anew
    assert Ledger(url, other).records() == make_study_records()
    causes = [t.user_attrs.get("cause") for t in trials_of(url, f"{SPEC.name}~2")]
    told = [getattr(r.outcome, "cause", None) for r in make_study_records()]
    assert causes == told
    assert Ledger(url, SPEC).judged_anew  # and back again


def test_studies_share_a_storage(url: str) -> None:
    """Another study, even one whose name begins alike, is another study."""
    filled(url)
    optuna.create_study(study_name="demo~draft", storage=url)
    other = Ledger(url, make_spec(name="demo-2"))
    assert other.records() == []
    assert len(Ledger(url, SPEC).records()) == len(make_study_records())
    assert "demo~draft" in optuna.get_all_study_names(url)


def test_trials_of_others_are_left_alone(url: str) -> None:
    """A trial that a dashboard or a script put into the study is no record and no obstacle."""
    filled(url)
    study = optuna.load_study(study_name=SPEC.name, storage=url)
    study.enqueue_trial({"candidate": "eagle"})
    study.ask()
    assert Ledger(url, SPEC).records() == make_study_records()
    assert study.user_attrs[OBJECTIVE]["metric"] == "output_throughput"


def test_a_lock_held_elsewhere_is_waited_for(url: str, tmp_path: Path) -> None:
    """A dashboard that holds SQLite's lock for a while delays a record, it does not lose it."""
    ledger = Ledger(url, SPEC)
    other = sqlite3.connect(tmp_path / "study.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    release = threading.Timer(0.5, other.rollback)
    release.start()
    started = time.monotonic()
    ledger.tell(make_record("eagle", 2), 1.2)
    assert time.monotonic() - started > 0.4
    release.join()
    other.close()
    assert Ledger(url, SPEC).records() == [make_record("eagle", 2)]
    with ledger._storage.engine.connect() as connection:
        # Optuna's own patience, five seconds, is less than a dashboard may take.
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 120_000


def test_a_record_is_its_launch_and_k() -> None:
    """Two K of a launch, or one K of two launches, are different records."""
    records: list[Record] = make_study_records()
    assert len({record_id(r) for r in records}) == len(records)
    assert record_id(make_record("eagle", 2, Stage.SCREEN, launch_id="002")) == "002:2"


LOOKUP = Candidate(
    name="lookup", method="ngram", space={"prompt_lookup_max": IntRange(low=2, high=6)}
)
RANGED = make_spec(candidates=(*make_candidates(), LOOKUP))


def of_variant(candidate: Candidate, largest: int, number: int = 0) -> Record:
    """A measurement of one variant of the lookup."""
    made = variant(candidate, {"prompt_lookup_max": largest})
    record = make_record("ngram", 2, launch_id=f"{100 + number}")
    trial = replace(
        record.trial,
        candidate=made.name,
        variant_of=made.variant_of,
        method=made.method,
        settings=made.settings,
    )
    return replace(record, trial=trial)


def test_a_setting_that_is_searched_is_a_parameter_of_its_candidate_alone(url: str) -> None:
    """The dashboard shows the family and the value, not one candidate for each variant."""
    ledger = Ledger(url, RANGED)
    record = of_variant(LOOKUP, 4)
    ledger.tell(record, 1.3)
    ledger.tell(make_record("eagle", 2, launch_id="002"), 1.2)
    searched, other = trials_of(url)
    assert (searched.params["candidate"], searched.params["lookup.prompt_lookup_max"]) == (
        "lookup",
        4,
    )
    assert "lookup.prompt_lookup_max" not in other.params
    assert ledger.records()[0] == record


@pytest.mark.parametrize(
    ("axis", "kept"),
    [
        (IntRange(low=4, high=9), {2, 5}),
        (IntRange(low=4, high=64, log=True), {2, 5}),
        (Choices(values=(8, 2, 4)), {2}),
        (FloatRange(low=1.0, high=3.0), {2}),
    ],
)
def test_another_range_keeps_every_record(url: str, axis: Axis, kept: set[int]) -> None:
    """Wider, narrower or of another kind: values that the parameter has no more are left out."""
    ledger = Ledger(url, RANGED)
    for number, largest in enumerate((2, 5)):
        ledger.tell(of_variant(LOOKUP, largest, number), 1.3)
    told = ledger.records()
    changed = replace(LOOKUP, space={"prompt_lookup_max": axis})
    again = Ledger(url, make_spec(candidates=(*make_candidates(), changed)))
    assert again.records() == told
    values = [t.params.get("lookup.prompt_lookup_max") for t in trials_of(url, again.study_name)]
    assert {v for v in values if v is not None} == kept
    assert Ledger(url, RANGED).records() == told


def test_optuna_tells_which_parameter_matters(url: str) -> None:
    """What a dashboard shows: importance of K, candidate and the searched setting."""
    ledger = Ledger(url, RANGED)
    for number in range(30):
        largest, k = 2 + number % 5, 1 + number % 3
        record = of_variant(LOOKUP, largest, number)
        record = replace(record, trial=replace(record.trial, num_speculative_tokens=k))
        ledger.tell(record, 1.0 + 0.1 * largest + 0.001 * k)
        ledger.tell(make_record("eagle", k, launch_id=f"{200 + number}"), 1.25 + 0.001 * k)
    study = optuna.load_study(study_name=SPEC.name, storage=url)
    found = optuna.importance.get_param_importances(study)
    assert set(found) >= {"candidate", "num_speculative_tokens", "lookup.prompt_lookup_max"}
    assert found["lookup.prompt_lookup_max"] > found["num_speculative_tokens"]
    assert study.best_params["lookup.prompt_lookup_max"] == 6


def test_a_long_record_fits_into_any_database(url: str, tmp_path: Path) -> None:
    """MySQL ends a text at 65,535 bytes; a record grows with every request of its passes."""
    record = make_record("eagle", 2, blocks=40, why='größer ❤ than "any" text' * 50)
    ledger = Ledger(url, SPEC)
    ledger.tell(record, 1.2)
    with sqlite3.connect(tmp_path / "study.db") as connection:
        texts = connection.execute("SELECT value_json FROM trial_user_attributes").fetchall()
    assert max(len(text.encode()) for (text,) in texts) < 65_535
    assert sum(len(text) for (text,) in texts) > 70_000
    assert Ledger(url, SPEC).records() == [record]
    assert read_records(url, SPEC.name) == [record]


def test_a_study_may_be_kept_elsewhere(url: str, tmp_path: Path) -> None:
    """Two storages know nothing of each other; one that cannot be opened says so."""
    filled(url)
    elsewhere = f"sqlite:///{tmp_path}/other.db"
    assert Ledger(elsewhere, SPEC).records() == []
    assert read_records(elsewhere, "no such study") == []
    for wrong in ("sqlite:///no/such/folder/study.db", "mysql+nothing://x/y", "what is this"):
        with pytest.raises(UserError, match="cannot be opened"):
            Ledger(wrong, SPEC)


def test_a_schedule_comes_back_with_its_ranges(url: str) -> None:
    """Its records are read back equal, and its trials are told under the candidate of the file."""
    ledger, told = Ledger(url, SCHEDULED), confirmed({1: 1.6, 4: 1.0})
    for record in told:
        ledger.tell(record, 1.25)
    assert Ledger(url, SCHEDULED).records() == told
    last = trials_of(url)[-1]
    assert (last.params["stage"], last.params["candidate"]) == ("schedule", "eagle")
    assert ranges_of(read_records(url, SCHEDULED.name)[-1].trial.settings) == RANGES
