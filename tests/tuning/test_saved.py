"""What a study folder knows of itself is enough to show it later."""

import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.core.axes import Choices, FloatRange, IntRange
from autotune.core.study import Candidate, Constraint, Objective, Search
from autotune.errors import UserError
from autotune.tuning.paths import StudyPaths
from autotune.tuning.saved import SavedStudy, find_root, load, save
from tests.builders import make_spec

STUDY = SavedStudy(
    spec=make_spec(
        candidates=(
            Candidate(
                name="ngram",
                method="ngram",
                engine_args={"max_num_batched_tokens": 64},
                space={
                    "prompt_lookup_max": IntRange(low=2, high=6, log=True, default=5),
                    "prompt_lookup_min": Choices(values=(1, None, True, 1.5, "x")),
                    "x": FloatRange(low=0.0, high=1.0, step=0.5),
                },
            ),
        ),
        objective=Objective(constraints=(Constraint(metric="p99_ttft_ms", upper=300),)),
        search=Search(budget_s=2700.0, gpu_memory_utilization=(0.8, 0.9)),
    ),
    file="/somewhere/candidates.yaml",
    fingerprint="f0f0f0f0",
    storage="postgresql://me:pw@host/optuna",
    probe={"vllm": "0.32.0", "device": "two cores"},
)


def test_saved_and_loaded_is_the_same(tmp_path: Path) -> None:
    """The whole specification comes back equal, prompts, settings and all; the last one counts."""
    paths = StudyPaths(root=tmp_path, name="demo")
    save(replace(STUDY, fingerprint="older"), paths)
    save(STUDY, paths)
    assert load(paths) == STUDY
    assert [p.name for p in paths.folder.iterdir()] == ["spec.json"]


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    """It holds prompts, and the storage's URL as it can be opened, password and all."""
    paths = StudyPaths(root=tmp_path, name="demo")
    save(STUDY, paths)
    (file,) = paths.folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert load(paths).storage == "postgresql://me:pw@host/optuna"


def test_a_file_with_fields_that_nobody_reads_any_more_is_read(tmp_path: Path) -> None:
    """An older study goes on; what it kept too much is gone with the next run."""
    paths = StudyPaths(root=tmp_path, name="demo")
    save(STUDY, paths)
    file = paths.folder / "spec.json"
    old = json.loads(file.read_text(encoding="utf-8")) | {"text": "env: {HF_TOKEN: s3cret}"}
    file.write_text(json.dumps(old), encoding="utf-8")
    assert load(paths) == STUDY
    save(load(paths), paths)
    assert "s3cret" not in file.read_text(encoding="utf-8")


def test_an_unknown_study_lists_the_known_ones(tmp_path: Path) -> None:
    """Who mistypes a name sees what there is; who has run nothing, that there is nothing."""
    with pytest.raises(UserError, match=r"no study 'dmo' .*none has been run here yet"):
        load(StudyPaths(root=tmp_path, name="dmo"))
    for name in ("other", "demo"):
        save(STUDY, StudyPaths(root=tmp_path, name=name))
    with pytest.raises(UserError, match=r"no study 'dmo' .*there are: demo, other"):
        load(StudyPaths(root=tmp_path, name="dmo"))


@pytest.mark.parametrize("text", ["", "{", "{}", '{"spec": 3}'])
def test_a_file_of_another_version_says_what_to_do(tmp_path: Path, text: str) -> None:
    """A spec.json that cannot be read is an error with a remedy, not a traceback."""
    paths = StudyPaths(root=tmp_path, name="demo")
    paths.folder.mkdir(parents=True)
    (paths.folder / "spec.json").write_text(text)
    with pytest.raises(UserError, match="run the study again to renew it"):
        load(paths)


def test_root_is_found_upwards(tmp_path: Path) -> None:
    """From anywhere below the folder that holds studies/; else where one stands."""
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert find_root(below) == below
    (tmp_path / "studies").mkdir()
    assert find_root(below) == tmp_path


def test_launch_folders_are_numbered(tmp_path: Path) -> None:
    """The next number is above all that there are and all that are known, deleted ones too."""
    paths = StudyPaths(root=tmp_path, name="demo")
    assert [paths.next_launch().name for _ in range(2)] == ["001", "002"]
    (paths.launches / "notes").mkdir()
    assert paths.next_launch(["007", "odd"]).name == "008"
    assert paths.next_launch().name == "009"
