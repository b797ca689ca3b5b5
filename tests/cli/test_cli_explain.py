"""`explain` on what is stored: finished, interrupted, failed; the whole and one candidate."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.cli import explain
from autotune.core.trial import Cause, Failure, Launch, Record, Stage
from autotune.errors import UserError
from autotune.tuning.journal import Journal
from autotune.tuning.ledger import Ledger
from autotune.tuning.paths import StudyPaths
from autotune.tuning.saved import SavedStudy, save
from tests.builders import GMU
from tests.builders_steps import (
    DRAFT,
    NGRAM,
    World,
    steps_pass,
    steps_record,
    steps_records,
    steps_spec,
)
from tests.tuning.test_journal import READ

SPEC = steps_spec(DRAFT, NGRAM)
WEAK = World(overhead=0.0005, check=0.0002, draft=0.004, profile=(0.3, 0.1, 0.04))
LOOKED_UP = World(overhead=0.0003, check=0.0002, coverage=0.5, profile=(0.6, 0.5, 0.4))


def store(root: Path, records: list[Record]) -> StudyPaths:
    """A stored study with these records."""
    paths = StudyPaths(root=root, name=SPEC.name)
    study = SavedStudy(
        spec=SPEC,
        file="candidates.yaml",
        fingerprint="f0f0f0f0",
        storage=f"sqlite:///{paths.database}",
        probe={},
    )
    save(study, paths)
    ledger = Ledger(study.storage, SPEC)
    for record in records:
        ledger.tell(as_launched(record), 1.0)
    return paths


def as_launched(record: Record) -> Record:
    """The record with what the launch of its candidate would have written into it."""
    found = [c for c in SPEC.candidates if c.name == record.trial.candidate]
    trial = record.trial
    for c in found:
        trial = replace(trial, method=c.method, model=c.model, settings=c.settings)
    return replace(record, trial=trial)


def told(root: Path, capsys: pytest.CaptureFixture[str], candidate: str | None = None) -> str:
    """What `explain` prints."""
    explain.show(SPEC.name, root, candidate)
    return capsys.readouterr().out


def test_everything_is_told_with_its_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Verdict, speeds with intervals, split, ceiling, diagnoses with remedies, the next change."""
    store(tmp_path, steps_records({"draft": WEAK, "ngram": LOOKED_UP}))
    text = told(tmp_path, capsys)
    assert re.search(r"draft \(draft_model\)", text)
    assert re.search(r"concurrency 1: 0\.\d\dx \[0\.\d\d, \d\.\d\d\] at K = 1, in the search", text)
    assert "target 10.0 ms (68%), checking drafts 0.2 ms (1%), drafting 4.0 ms (27%)" in text
    assert re.search(r"with a free draft .* allows 1\.\d\d times plain decoding", text)
    assert "misses a K left out by" in text
    assert "draft_not_aligned: 15% of the tokens" in text
    assert "draft_too_slow at concurrency 1: the draft takes 4.0 ms (40% of the target's" in text
    assert "launches left" in text
    assert text.splitlines()[-1].startswith("next: ")


def test_one_candidate_is_told_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing of the others."""
    store(tmp_path, steps_records({"draft": WEAK, "ngram": LOOKED_UP}))
    text = told(tmp_path, capsys, "ngram")
    assert "ngram (ngram)" in text
    assert "draft (draft_model)" not in text


def test_a_candidate_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    """And the nearest one."""
    store(tmp_path, steps_records({"draft": WEAK}))
    with pytest.raises(UserError, match=r"no candidate 'drift'.*did you mean 'draft'.*ngram"):
        explain.show(SPEC.name, tmp_path, "drift")


def test_a_failure_is_told_with_cause_and_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a candidate, and of the baseline, which ends the study: its remedy comes next."""
    failure = Failure(cause=Cause.ENGINE_REFUSED, detail="vocab 1, 2", remedy="another vocabulary")
    records = steps_records({"draft": WEAK})
    failed = replace(steps_record(WEAK, "ngram", 1, launch_id="9"), outcome=failure)
    store(tmp_path / "a", [*records, failed])
    line = "failed at K = 1, launch 9: engine_refused: vocab 1, 2; another vocabulary"
    assert line in told(tmp_path / "a", capsys)
    store(tmp_path / "b", [replace(records[0], outcome=failure)])
    text = told(tmp_path / "b", capsys)
    assert "the baseline cannot run: engine_refused" in text
    assert text.splitlines()[-1] == "next: another vocabulary"


def test_a_launch_under_way_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What it has measured is explained before it has a trial; nothing is changed by looking."""
    paths = store(tmp_path, [steps_record(WEAK)])
    folder = paths.next_launch(["001"])
    launch = Launch(
        stage=Stage.SCREEN,
        candidate=DRAFT,
        num_speculative_tokens=(1, 2, 3),
        gpu_memory_utilization=GMU,
        live=True,
        max_blocks=4,
        why="a test",
    )
    with Journal(folder, launch, "f0f0f0f0") as journal:
        for block in range(3):
            for k in (1, 2, 3):
                journal.add(steps_pass(WEAK, k, 1, block), READ)
    before = sorted(p.name for p in folder.iterdir())
    text = told(tmp_path, capsys)
    assert f"launch {folder.name} runs or was interrupted" in text
    assert "draft_not_aligned" in text
    assert sorted(p.name for p in folder.iterdir()) == before


def test_without_a_measurement_there_is_nothing_to_explain(tmp_path: Path) -> None:
    """The message says what to run."""
    store(tmp_path, [])
    with pytest.raises(UserError, match="no measurement yet: autotune run candidates"):
        explain.show(SPEC.name, tmp_path, None)
