"""What of an earlier run still counts after the file, or the machine, has changed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.core.axes import IntRange
from autotune.core.jsontype import JSON
from autotune.core.plan import next_launch
from autotune.core.study import Candidate, Search, StudySpec, Target
from autotune.core.trial import BASELINE, Cause, Failure, Record, Stage
from autotune.core.workload import Slo
from autotune.errors import UserError
from autotune.tuning.attributes import record_id
from autotune.tuning.identity import identity, served_with
from autotune.tuning.ledger import Ledger, read_records
from autotune.tuning.tuner import fingerprint, to_retry, usable
from autotune.tuning.values import value_of
from tests.builders import GMU, make_record, make_spec
from tests.builders_schedule import SPEC as SCHEDULED
from tests.builders_schedule import confirmed
from tests.builders_study import at_rate, make_open_spec

SPEC = make_spec(search=Search(gpu_memory_utilization=(GMU,)))
FIRST = SPEC.candidates[0]


def record(spec: StudySpec = SPEC) -> Record:
    """A record of the first candidate as a study of this spec would make it."""
    made = make_record(FIRST.name, 1)
    now = spec.candidates[0]
    trial = replace(made.trial, method=now.method, model=now.model, settings=now.settings)
    return replace(made, trial=trial)


def test_a_record_of_the_same_candidate_counts() -> None:
    """Nothing changed, so nothing is measured again."""
    assert usable([record()], record().fingerprint, SPEC) == [record()]


@pytest.mark.parametrize(
    "changed",
    [
        replace(FIRST, model="elsewhere/draft"),
        replace(FIRST, settings={"draft_sample_method": "probabilistic"}),
        replace(FIRST, method="eagle3", model="a/head"),
        replace(FIRST, weights="0123456789abcdef"),
    ],
)
def test_another_draft_under_the_same_name_is_measured_anew(changed: Candidate) -> None:
    """A candidate is its method, model and settings, not its name."""
    spec = replace(SPEC, candidates=(changed, *SPEC.candidates[1:]))
    assert usable([record()], record().fingerprint, spec) == []


def test_weights_retrained_in_place_are_another_draft(tmp_path: Path) -> None:
    """The identity of a folder follows its files, not its path; a copy has the same."""
    one, copy = tmp_path / "one", tmp_path / "copy"
    for folder in (one, copy):
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(b"weights")
    before = identity(str(one))
    assert before == identity(str(copy))
    (one / "model.safetensors").write_bytes(b"Weights")
    assert identity(str(one)) != before
    assert identity("some/hub-id") == ""


FILES = {
    "model/config.json": "{}",
    "model/model.safetensors": "weights",
    "model/generation_config.json": '{"top_k": 20}',
    "model/tokenizer.json": "{}",
    "model/tokenizer_config.json": "{}",
    "model/chat_template.jinja": "{{ messages }}",
    "model/additional_chat_templates/tools.jinja": "{{ tools }}",
    "sql/adapter_config.json": '{"r": 8}',
    "sql/adapter_model.safetensors": "adapter",
    "chat/adapter_model.safetensors": "adapter",
    "given.jinja": "{{ messages }}",
}


def served(root: Path) -> Target:
    """A target of local files, with two adapters and a template of its own."""
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    modules: list[JSON] = [
        f"sql={root / 'sql'}",
        json.dumps({"name": "chat", "path": str(root / "chat"), "base_model_name": "b"}),
    ]
    args: dict[str, JSON] = {"chat_template": str(root / "given.jinja"), "lora_modules": modules}
    return Target(model=str(root / "model"), engine_args=args)


@pytest.mark.parametrize("name", FILES)
def test_every_file_that_changes_what_is_served_is_in_the_fingerprint(
    tmp_path: Path, name: str
) -> None:
    """Another chat template makes other prompts, another adapter other replies."""
    spec = replace(SPEC, target=served(tmp_path))
    before = fingerprint(spec, {})
    (tmp_path / name).write_text(FILES[name])
    (tmp_path / "model/README.md").write_text("what nobody serves")
    assert fingerprint(spec, {}) == before
    (tmp_path / name).write_text(FILES[name].upper() + " ")
    assert fingerprint(spec, {}) != before


def test_files_that_the_engine_is_pointed_to_count_instead(tmp_path: Path) -> None:
    """A tokenizer or defaults of sampling from another folder."""
    target = served(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    (other / "generation_config.json").write_text("{}")
    (other / "tokenizer_config.json").write_text("{}")
    args = {"generation_config": str(other), "tokenizer": str(other)}
    pointed = replace(target, engine_args={**target.engine_args, **args})
    before = served_with(pointed)
    (tmp_path / "model/generation_config.json").write_text("{}")
    (tmp_path / "model/tokenizer_config.json").write_text('{"a": 1}')
    assert served_with(pointed) == before
    for name in ("generation_config.json", "tokenizer_config.json"):
        (other / name).write_text('{"b": 1}')
        assert served_with(pointed) != before
        before = served_with(pointed)


def test_what_lies_on_the_hub_has_no_identity() -> None:
    """Nor has a template that is written out; nothing is asked of the network."""
    args: dict[str, JSON] = {
        "chat_template": "{% for m in messages %}" * 200,
        "lora_modules": {"name": "sql", "path": "org/adapter"},
    }
    assert served_with(Target(model="org/model", engine_args=args)) == {}
    assert served_with(Target(model="org/model", engine_args={"lora_modules": ["nonsense"]})) == {}


def test_another_memory_share_is_measured_anew() -> None:
    """A record belongs to the gpu_memory_utilization it was launched with."""
    spec = replace(SPEC, search=Search(gpu_memory_utilization=(GMU / 2,)))
    assert usable([record()], record().fingerprint, spec) == []


def test_a_candidate_taken_out_of_the_file_is_left_alone() -> None:
    """Records of a name that is gone are kept in the ledger but not used."""
    spec = replace(SPEC, candidates=SPEC.candidates[1:])
    assert usable([record()], record().fingerprint, spec) == []


@pytest.mark.parametrize(
    ("cause", "again"), [(Cause.CRASHED_START, {"001:0"}), (Cause.DISK_FULL, {"001:0", "002:1"})]
)
def test_a_failure_of_the_machine_is_tried_again_by_the_next_run(
    cause: Cause, again: set[str]
) -> None:
    """And the baseline's, whatever it was; other failures stay, unless all are asked for."""
    failure = Failure(cause=cause, detail="no more")
    baseline = replace(make_record(stage=Stage.BASELINE), outcome=failure, launch_id="001")
    candidate = replace(record(), outcome=failure, launch_id="002")
    good = replace(record(), launch_id="003")
    stored = [baseline, candidate, good]
    assert to_retry(stored, everything=False) == again
    assert to_retry(stored, everything=True) == {record_id(baseline), record_id(candidate)}


def test_reading_records_changes_nothing(tmp_path: Path) -> None:
    """`show` and `plan` may look while a run with other candidates goes on."""
    storage = f"sqlite:///{tmp_path}/study.db"
    assert read_records(storage, SPEC.name) == []
    ledger = Ledger(storage, SPEC)
    ledger.tell(record(), 1.2)
    assert read_records(storage, SPEC.name) == [record()]
    assert Ledger(storage, SPEC).study_name == ledger.study_name


@pytest.mark.parametrize("url", ["nonsense", "sqlite:////no/such/folder/study.db"])
def test_a_storage_that_cannot_be_opened_is_the_users_error(url: str) -> None:
    """One message that names the storage, no traceback."""
    with pytest.raises(UserError, match="cannot be opened"):
        Ledger(url, SPEC)


@pytest.mark.parametrize("before", [None, 5.0])
def test_passes_at_another_rate_do_not_count(before: float | None) -> None:
    """What was measured at the levels that stayed is kept, and the launch is made once more."""
    spec = replace(make_open_spec(2.5), search=SPEC.search)
    old = at_rate(make_record(BASELINE), before)
    kept = [usable([old], old.fingerprint, spec) for _ in range(3)]
    (first,) = kept[0]
    assert first.measurement
    assert {p.concurrency for p in first.measurement.passes} == {1}
    again = next_launch(spec, [r for records in kept for r in records])
    assert again is not None
    assert again.stage is Stage.BASELINE
    same = at_rate(old, 2.5)
    assert usable([same], same.fingerprint, spec) == [same]
    follow = next_launch(spec, usable([same], same.fingerprint, spec))
    assert follow is not None
    assert follow.stage is not Stage.BASELINE


def test_other_objectives_of_service_need_no_other_measurement() -> None:
    """The times of each request are kept: the fingerprint knows neither rates nor objectives."""
    plain = fingerprint(make_open_spec(2.5), {})
    assert plain == fingerprint(make_open_spec(5.0, Slo(ttft_ms=100.0)), {})


def test_a_renamed_candidate_keeps_what_was_measured() -> None:
    """Under its new name: a candidate is its method, model and settings."""
    renamed = replace(SPEC, candidates=(replace(FIRST, name="head"), *SPEC.candidates[1:]))
    (found,) = usable([record()], record().fingerprint, renamed)
    assert found.trial.candidate == "head"
    assert found.measurement == record().measurement


def test_a_setting_that_becomes_a_range_keeps_what_was_measured() -> None:
    """The fixed value is one of the range's, and back again."""
    axis = IntRange(low=8, high=16)
    before = replace(SPEC, candidates=(replace(FIRST, engine_args={"max_num_seqs": 8}),))
    after = replace(SPEC, candidates=(replace(FIRST, space={"engine_args.max_num_seqs": axis}),))
    fixed = record(before)
    fixed = replace(fixed, trial=replace(fixed.trial, engine_args={"max_num_seqs": 8}))
    (ranged,) = usable([fixed], fixed.fingerprint, after)
    assert ranged.trial.candidate == "eagle(max_num_seqs=8)"
    assert ranged.trial.family == "eagle"
    assert usable([ranged], fixed.fingerprint, before) == [fixed]
    assert usable([fixed], fixed.fingerprint, SPEC) == []


def test_a_schedule_counts_while_its_candidate_is_in_the_file() -> None:
    """Also under another name; not with another draft."""
    stored = [
        replace(r, trial=replace(r.trial, method="eagle", model=SCHEDULED.candidates[0].model))
        for r in confirmed({1: 1.6, 4: 1.0})
        if r.trial.stage is Stage.SCHEDULE
    ]
    kept = stored[0].fingerprint
    assert usable(stored, kept, SCHEDULED) == stored
    renamed = replace(SCHEDULED.candidates[0], name="head")
    found = usable(stored, kept, replace(SCHEDULED, candidates=(renamed,)))
    assert {r.trial.candidate for r in found} == {"head(K=3, 0 from 2)"}
    other = replace(SCHEDULED.candidates[0], model="elsewhere/head")
    assert usable(stored, kept, replace(SCHEDULED, candidates=(other,))) == []


def test_the_value_of_a_schedule_is_its_speedup_over_the_baseline_beside_it() -> None:
    """1.6 for one stream, which counts four times, and 1.0 at four."""
    records = confirmed({1: 1.6, 4: 1.0})
    value = value_of(SCHEDULED, records, records[-1])
    assert value == pytest.approx(1.6**0.8, rel=0.01)
