"""`autotune check`: all that is wrong at once, in words or as JSON, and its exit codes."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from autotune.cli.app import app
from autotune.core.jsontype import JSON
from tests.cli.test_cli_light import HEAVY, imported
from tests.flow.study import Desk, candidates, desk, draft
from tests.preflight.folders import write_model


def check(study: Desk, *options: str) -> Result:
    """`autotune check candidates.yaml`."""
    return CliRunner().invoke(app, ["check", str(study.folder / "candidates.yaml"), *options])


def config(study: Desk, model: str, **keys: JSON) -> None:
    """What a model's config.json says."""
    (study.folder / model / "config.json").write_text(json.dumps(keys))


def test_nothing_against_a_study_is_exit_0(tmp_path: Path) -> None:
    """Warnings are no reason to stop a pipeline."""
    done = check(desk(tmp_path, candidates(workload={"ignore_eos": True})))
    assert done.exit_code == 0, done.output
    assert "warning (known): ignore_eos goes on" in done.output
    assert "nothing stands against a run" in done.output


def test_a_refused_candidate_is_exit_2_with_rule_evidence_and_remedy(tmp_path: Path) -> None:
    """The others would be run, and that is said, too."""
    study = desk(tmp_path, candidates(draft("good"), draft("other")))
    config(study, "target", vocab_size=100)
    config(study, "good", vocab_size=100)
    config(study, "other", vocab_size=90)
    done = check(study)
    assert done.exit_code == 2
    assert (
        "candidate refused other (vocabulary_sizes): vocab_size is 90 in the draft" in done.output
    )
    assert "    choose another draft" in done.output
    assert "a run goes on without the refused candidates" in done.output


def test_everything_is_told_at_once(tmp_path: Path) -> None:
    """What stands against the study hides nothing of what stands against candidates."""
    study = desk(tmp_path, candidates(draft("good"), draft("other")))
    config(study, "target", vocab_size=100)
    config(study, "other", vocab_size=90, max_position_embeddings=8)
    (tmp_path / "target" / "generation_config.json").write_text('{"min_p": 0.1}')
    done = check(study)
    assert done.exit_code == 2
    assert done.output.index("study refused (default_min_p)") < done.output.index("(vocabulary_")
    assert "nothing can be launched" in done.output


def test_json_is_for_machines(tmp_path: Path) -> None:
    """Every finding with its rule, severity, candidate, K, evidence and remedy."""
    study = desk(tmp_path, candidates(draft("good"), draft("other")))
    config(study, "target", vocab_size=100)
    config(study, "other", vocab_size=90)
    done = check(study, "--json")
    told = json.loads(done.stdout)
    assert (done.exit_code, told["exit_code"], told["faults"]) == (2, 2, [])
    (found,) = [f for f in told["findings"] if f["severity"] == "reject_candidate"]
    assert (found["rule"], found["candidate"], found["ks"]) == ("vocabulary_sizes", "other", [])
    assert found["evidence"]
    assert found["remedy"]


def test_faults_of_the_file_are_findings_for_a_machine_too(tmp_path: Path) -> None:
    """With path, line and message; nothing else can be looked at then."""
    study = desk(tmp_path, candidates(draft("good"), {"name": "x", "method": "ngramm"}))
    done = check(study, "--json")
    told = json.loads(done.stdout)
    assert done.exit_code == 2
    (fault,) = told["faults"]
    assert fault["path"] == "candidates[1].method"
    assert "did you mean 'ngram'?" in fault["message"]
    assert "did you mean 'ngram'?" in check(study).output


def test_an_engine_that_is_not_there_is_a_finding(tmp_path: Path) -> None:
    """What can be known of the models is told all the same."""
    study = desk(tmp_path)
    write_model(tmp_path / "target", vocab_size=400)
    write_model(tmp_path / "good")
    file = candidates(target={"engine": "vllm", "launcher": [str(tmp_path / "python")]})
    study.write(file, {})
    told = json.loads(check(study, "--json").stdout)
    rules = {finding["rule"]: finding["severity"] for finding in told["findings"]}
    assert rules["engine"] == "reject_study"
    assert rules["vocabulary_sizes"] == "reject_candidate"


def test_a_whole_model_on_disk_is_read_without_its_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No engine, torch or tokenizer is imported to check local models."""
    study = desk(tmp_path)
    write_model(tmp_path / "target")
    write_model(tmp_path / "good", vocab_size=400)
    monkeypatch.chdir(tmp_path)
    heavy = set(HEAVY) - {"numpy", "scipy"}
    assert imported("check", str(study.folder / "candidates.yaml")) & heavy == set()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({}, "1 warning"),  # of what has no tokenizer
        ({"workload": {"ignore_eos": True}}, "2 warnings"),
        ({"search": {"min_blocks": 0}}, "1 fault in the file"),
        ({"search": {"min_blocks": 0}, "objective": {"tolerance": -1}}, "2 faults in the file"),
    ],
)
def test_the_last_line_counts(
    tmp_path: Path, wrong: dict[str, dict[str, object]], told: str
) -> None:
    """One is not several."""
    done = check(desk(tmp_path, candidates(**wrong)))
    assert f"candidates.yaml: {told}; " in done.output
