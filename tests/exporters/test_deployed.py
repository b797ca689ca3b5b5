"""best-config.yaml read back: the configuration that was confirmed, and nothing guessed."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from autotune.core.jsontype import JSON
from autotune.core.recommendation import recommend
from autotune.core.study import Constraint, Objective, StudySpec
from autotune.core.verification import changes
from autotune.core.workload import Level, Slo
from autotune.errors import UserError
from autotune.exporters.best_config import PLUGIN, prompts_sha256
from autotune.exporters.deployed import Deployed, read_deployed
from autotune.exporters.vllm_yaml import PLUGIN as VLLM_YAML
from tests.builders import GMU, make_spec
from tests.builders_study import make_study_records

ABOUT: dict[str, JSON] = {
    "study": "demo",
    "engine_version": "0.32.0",
    "device": "one",
    "engine_env": {"VLLM_X": "1"},
    "models": {"target": "aa", "draft": "bb"},
}


def export(folder: Path, spec: StudySpec | None = None, *, scale: float = 1.0) -> Deployed:
    """Both files of a finished study, read back."""
    spec = spec or make_spec()
    result = recommend(spec, make_study_records(scale=scale))
    for exporter in (PLUGIN, VLLM_YAML):
        text = exporter.render(spec, result, ABOUT)
        (folder / exporter.filename).write_text(text, encoding="utf-8")
    return read_deployed(folder / PLUGIN.filename)


def test_the_study_that_verifies_it_launches_what_was_confirmed(tmp_path: Path) -> None:
    """Target, candidate, K, workload and what was asked for come back as they were."""
    limit = Constraint(metric="p99_ttft_ms", upper=9000.0)
    objective = Objective(metric="tpot", tolerance=0.03, min_gain=0.05, constraints=(limit,))
    asked = make_spec(objective=objective)
    asked = replace(asked, workload=replace(asked.workload, slo=Slo(ttft_ms=300.0)))
    deployed = export(tmp_path, asked)
    spec = deployed.spec(asked.workload.confirmation, tmp_path, None)
    (candidate,) = spec.candidates
    confirmed = asked.candidate("eagle")
    assert replace(candidate, num_speculative_tokens=()) == confirmed
    assert spec.ks(candidate) == (2,)
    assert spec.target.model == asked.target.model
    assert spec.target.engine_args == asked.target.engine_args
    assert spec.search.gpu_memory_utilization == (GMU,)
    assert replace(spec.workload, search=asked.workload.search) == asked.workload
    assert spec.objective == objective
    assert deployed.prompts_sha256 == prompts_sha256(asked.workload.confirmation)


def test_plain_decoding_has_no_candidate(tmp_path: Path) -> None:
    """A study that found that speculation does not pay has deployed the baseline."""
    deployed = export(tmp_path, scale=0.6)
    assert not deployed.speculates
    assert deployed.spec(make_spec().workload.search, tmp_path, None).candidates == ()


def test_a_request_rate_is_kept(tmp_path: Path) -> None:
    """An open loop is verified as one."""
    deployed = export(tmp_path)
    document = yaml.safe_load(deployed.file.read_text(encoding="utf-8"))
    document["evidence"]["levels"][1]["request_rate"] = 2.5
    deployed.file.write_text(yaml.safe_dump(document), encoding="utf-8")
    spec = read_deployed(deployed.file).spec(make_spec().workload.search, tmp_path, None)
    assert spec.workload.levels[1] == Level(concurrency=4, request_rate=2.5)


def test_an_edited_vllm_yaml_is_noticed(tmp_path: Path) -> None:
    """The document has the hash of the file that was confirmed."""
    deployed = export(tmp_path)
    assert deployed.as_measured
    with deployed.vllm_yaml.open("a", encoding="utf-8") as file:
        file.write("# edited\n")
    assert not deployed.as_measured
    deployed.vllm_yaml.unlink()
    assert not deployed.as_measured


def test_what_changed_since_is_found_by_its_path(tmp_path: Path) -> None:
    """Engine, device, models and prompts as they are now, against the document's own list."""
    deployed = export(tmp_path)
    same = deployed.spec(make_spec().workload.confirmation, tmp_path, None)
    same = replace(same, candidates=(replace(same.candidates[0], weights="bb"),))
    assert changes(deployed.document, deployed.now(ABOUT, same), deployed.stale_paths) == ()
    others = same.workload.search[:32]
    other = replace(same, workload=replace(same.workload, confirmation=others))
    other = replace(other, candidates=(replace(other.candidates[0], weights="cc"),))
    about = ABOUT | {"engine_version": "0.33.0", "device": "two", "models": {"target": "aa"}}
    found = changes(deployed.document, deployed.now(about, other), deployed.stale_paths)
    assert {change.path: (change.old, change.new) for change in found} == {
        "device": ("one", "two"),
        "engine.version": ("0.32.0", "0.33.0"),
        "models.draft": ("bb", "cc"),
        "evidence.workload.prompts_sha256": (deployed.prompts_sha256, prompts_sha256(others)),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "cannot be read"),
        ("- 1", "no schema_version"),
        ("model: x", "no schema_version"),
        ("schema_version: 99", "this autotune knows 1"),
        ("schema_version: 1", "verdict: Field required"),
    ],
)
def test_another_file_is_refused_in_one_message(tmp_path: Path, text: str, message: str) -> None:
    """With the file's name and what is missing."""
    file = tmp_path / "best-config.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message) as caught:
        read_deployed(file)
    assert str(file) in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """Says where one would be."""
    with pytest.raises(UserError, match="reports/<study>/"):
        read_deployed(tmp_path / "best-config.yaml")


def test_a_model_in_a_relative_folder_is_found_below_the_root(tmp_path: Path) -> None:
    """Recorded results name no machine; a name that is no folder there stays."""
    deployed = export(tmp_path)
    document = yaml.safe_load(deployed.file.read_text(encoding="utf-8"))
    document["engine"]["args"]["model"] = "models/target"
    document["engine"]["speculative_config"]["model"] = "org/head"
    deployed.file.write_text(yaml.safe_dump(document), encoding="utf-8")
    (tmp_path / "models" / "target").mkdir(parents=True)
    spec = read_deployed(deployed.file).spec(make_spec().workload.search, tmp_path, None)
    assert spec.target.model == str(tmp_path / "models" / "target")
    assert spec.candidates[0].model == "org/head"
