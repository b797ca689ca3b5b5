"""What is said before anything is launched: plan, dry run, faults of the file."""

from pathlib import Path

import pytest

from tests.flow.study import Desk, candidates, desk, draft

pytestmark = pytest.mark.timeout(300)  # the first start compiles what it imports


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """A study that is never run."""
    return desk(tmp_path_factory.mktemp("before"))


def test_a_dry_run_prints_every_argv_and_starts_nothing(study: Desk) -> None:
    """Each launch with its argv and engine arguments; no file is written."""
    done = study.run("--dry-run")
    assert done.code == 0
    assert done.text.count("-m autotune.engines.simulated_server --config vllm.yaml") == 4
    assert done.text.count("--scheduler-cls autotune_live_k.scheduler") == 1
    assert "num_speculative_tokens: 8" in done.text
    assert not (study.folder / "studies").exists()


def test_a_plan_tells_launches_and_minutes(study: Desk) -> None:
    """`plan` has the launches with their reasons and a total, and no argv."""
    done = study.autotune("plan", "candidates.yaml", "--budget", "30m")
    assert done.code == 0
    assert "the denominator of every speedup" in done.text
    assert "4 launches, about" in done.text
    assert "held to the budget of 30" in done.text
    assert "--config" not in done.text
    assert not (study.folder / "studies").exists()


def test_a_plan_tells_what_will_mislead(tmp_path: Path) -> None:
    """Warnings come before the launches, not only when they have been paid for."""
    study = desk(tmp_path, candidates(workload={"ignore_eos": True}))
    done = study.autotune("plan", "candidates.yaml")
    assert done.code == 0
    assert "warning: not checked whether the prompts fit into the context" in done.text
    assert "warning: ignore_eos goes on after the end of the reply" in done.text


def test_faults_of_the_file_are_told_with_their_line(tmp_path: Path) -> None:
    """Exit 2, all faults at once, each as file:line, and no traceback."""
    file = candidates(draft("good"), {"name": "x", "method": "ngramm"}, serach={"seed": 1})
    study = desk(tmp_path, file)
    done = study.run()
    lines = (tmp_path / "candidates.yaml").read_text().splitlines()
    assert done.code == 2
    for word in ("method: ngramm", "serach:"):
        number = next(i for i, line in enumerate(lines, 1) if word in line)
        assert f"candidates.yaml:{number}: " in done.text
    assert "Traceback" not in done.text


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("run", "nowhere.yaml"), "no such file"),
        (("plan", "candidates.yaml", "--budget", "soon"), "soon"),
        (("run",), "CANDIDATES.yaml"),
    ],
)
def test_wrong_arguments_are_the_users(study: Desk, words: tuple[str, ...], told: str) -> None:
    """Exit 2 and a message that names the fault; a traceback is for bugs."""
    done = study.autotune(*words)
    assert done.code == 2, done.text
    assert told in done.text
    assert "Traceback" not in done.text


def test_sampling_unlike_the_models_own_is_told_before_the_first_launch(tmp_path: Path) -> None:
    """Whoever leaves the temperature to the model will not get what was tuned."""
    study = desk(tmp_path)
    config = '{"temperature": 0.6, "top_k": 20}'
    (tmp_path / "target" / "generation_config.json").write_text(config)
    told = study.run("--budget", "1s").text
    assert "warning: the workload samples with temperature 0.0 (the model's: 0.6)" in told
