"""Refused candidates cost a run no launch; the others are measured, and the report says so."""

import json
from pathlib import Path

import pytest

from tests.flow.study import Desk, candidates, desk, draft

pytestmark = pytest.mark.timeout(300)


def misfit(folder: Path, *others: str) -> Desk:
    """A study with a draft of another vocabulary, and perhaps a sound one."""
    study = desk(folder, candidates(*map(draft, others), draft("other")))
    for model, size in (("target", 100), ("other", 90)):
        (folder / model / "config.json").write_text(json.dumps({"vocab_size": size}))
    return study


def test_a_refused_candidate_is_left_out_and_told(tmp_path: Path) -> None:
    """No launch for it, and its reason in report, export and what `show` prints."""
    study = misfit(tmp_path, "good")
    done = study.run()
    assert done.code == 0, done.text
    assert "candidate refused other (vocabulary_sizes)" in done.text
    told = "other was left out before any launch: vocab_size is 90"
    assert told in done.text
    assert "left out before any launch" in study.report("report.md")
    assert "left out before any launch" in study.autotune("show", "s").text
    configs = [(folder / "vllm.yaml").read_text() for folder in study.launches]
    assert configs
    assert not any("/other" in text for text in configs)


def test_a_study_with_nothing_left_is_refused_before_any_launch(tmp_path: Path) -> None:
    """Exit 2 with the reasons, and nothing on disk."""
    done = misfit(tmp_path).run()
    assert done.code == 2
    assert "nothing can be launched" in done.text
    assert "other (vocabulary_sizes): vocab_size is 90" in done.text
    assert not (tmp_path / "studies").exists()


def test_a_plan_knows_it_too(tmp_path: Path) -> None:
    """The launches ahead are those of the candidates that are left."""
    done = misfit(tmp_path, "good").autotune("plan", "candidates.yaml")
    assert done.code == 0
    assert "candidate refused other" in done.text
    assert "screens other" not in done.text
    assert "screens good" in done.text
