"""What a study leaves and how it ends: exports before pictures, exit codes, one vllm.yaml."""

import hashlib
import logging
from pathlib import Path

import pytest
import yaml

from autotune.cli.exits import Exit
from autotune.cli.preparing import Prepared
from autotune.cli.results import exit_code, write_results
from autotune.cli.running import config_writer
from autotune.config import LoadedFile
from autotune.core.recommendation import Basis, recommend
from autotune.core.study import Constraint, Objective
from autotune.core.trial import Launch, Stage
from autotune.core.wording import headline
from autotune.ports import find
from autotune.tuning.paths import StudyPaths
from tests.builders import GMU, make_failure, make_record, make_spec
from tests.builders_study import make_study_records

SPEC = make_spec()
RECORDS = make_study_records()


def prepared(root: Path) -> Prepared:
    """A study of which everything is known."""
    file = root / "candidates.yaml"
    loaded = LoadedFile(spec=SPEC, tracking=None, path=file, root=root, prompts_sha256="0" * 64)
    return Prepared(
        loaded=loaded,
        engine=find("engines", "simulated"),
        probe={"device": "cpu"},
        paths=StudyPaths(root=root, name=SPEC.name),
        fingerprint="f0f0f0f0",
        budget_s=None,
        storage="sqlite://",
    )


def test_the_confirmed_file_is_exported_to_the_byte_and_not_before(tmp_path: Path) -> None:
    """A launch writes into its own folder; the export has the same hash, and says so."""
    ready = prepared(tmp_path)
    launch = Launch(
        stage=Stage.CONFIRM,
        candidate=SPEC.candidate("eagle"),
        num_speculative_tokens=(2,),
        gpu_memory_utilization=GMU,
        max_blocks=3,
        why="eagle at K = 2 exactly as it would be deployed",
    )
    launched = config_writer(ready)(launch, tmp_path / "006")
    assert launched == tmp_path / "006" / "vllm.yaml"
    assert not (tmp_path / "reports").exists()
    write_results(SPEC, ready.paths, RECORDS, recommend(SPEC, RECORDS), {})
    exported = ready.paths.report / "vllm.yaml"
    digest = hashlib.sha256(launched.read_bytes()).hexdigest()
    assert hashlib.sha256(exported.read_bytes()).hexdigest() == digest
    best = yaml.safe_load((ready.paths.report / "best-config.yaml").read_text(encoding="utf-8"))
    assert best["vllm_yaml_sha256"] == digest


def test_a_picture_that_fails_costs_only_the_picture(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """best-config.yaml is there, the report is there without it, and the log says why."""
    paths = StudyPaths(root=tmp_path, name=SPEC.name)
    (paths.report / "curves.png").mkdir(parents=True)
    files = write_results(SPEC, paths, RECORDS, recommend(SPEC, RECORDS), {}).files
    assert {f.name for f in files} == {"best-config.yaml", "vllm.yaml", "curves.csv", "report.md"}
    text = (paths.report / "report.md").read_text(encoding="utf-8")
    assert ".png" not in text
    assert "The figures could not be drawn." in text
    assert "### Each candidate at its knee" in text
    (warning,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert "the report has no figures" in warning.getMessage()


def test_exports_are_written_before_the_report(tmp_path: Path) -> None:
    """Even a report that cannot be written leaves what is deployed."""
    paths = StudyPaths(root=tmp_path, name=SPEC.name)
    (paths.report / "report.md").mkdir(parents=True)
    with pytest.raises(OSError, match=r"report\.md"):
        write_results(SPEC, paths, RECORDS, recommend(SPEC, RECORDS), {})
    assert (paths.report / "best-config.yaml").is_file()
    assert (paths.report / "vllm.yaml").is_file()


def test_candidates_that_ran_and_broke_a_constraint_are_no_failure_to_run() -> None:
    """Exit 4 with the reason: 5 is for a study that measured no candidate."""
    limit = Constraint(metric="p99_tpot_ms", upper=1.0)
    spec = make_spec(objective=Objective(constraints=(limit,)))
    result = recommend(spec, make_study_records(confirmed=False))
    assert result.basis is Basis.NOTHING
    assert exit_code(result, complete=True) is Exit.UNDECIDED
    assert "keeps every constraint" in headline(spec, result)
    assert any("p99_tpot_ms" in reason for reason in result.reasons)


def test_no_candidate_that_ran_is_exit_5() -> None:
    """A baseline alone, or candidates that failed only, have measured nothing to decide by."""
    failed = make_record("eagle", 2, outcome=make_failure())
    result = recommend(SPEC, [make_record(), failed])
    assert exit_code(result, complete=True) is Exit.CANNOT_RUN
    assert exit_code(result, complete=False) is Exit.BUDGET
