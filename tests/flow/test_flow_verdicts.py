"""The other ends of a study: do not speculate, a baseline that cannot run, no time."""

from pathlib import Path

import pytest
import yaml

from tests.flow.study import candidates, desk, draft, fault, world

pytestmark = pytest.mark.timeout(300)  # the first start compiles what it imports

ONE_K = {"num_speculative_tokens": 1, "max_blocks": 2}


def test_a_draft_that_never_pays(tmp_path: Path) -> None:
    """Exit 3, and what is exported is plain decoding; the draft is not even confirmed."""
    study = desk(tmp_path, candidates(draft("bad"), search=ONE_K))
    done = study.run()
    assert done.code == 3, done.text
    assert "Do not speculate" in done.text
    assert "speculative-config" not in study.report("vllm.yaml")
    assert yaml.safe_load(study.report("best-config.yaml"))["verdict"] == "do_not_speculate"
    assert len(study.launches) == 2


def test_a_baseline_that_cannot_start(tmp_path: Path) -> None:
    """Exit 5 with the cause and a remedy after one launch; no draft is tried."""
    settings = world(faults=[fault("oom_at_start", method="none")])
    study = desk(tmp_path, candidates(search=ONE_K), settings)
    done = study.run()
    assert done.code == 5, done.text
    assert "the baseline cannot run: out_of_memory_start: torch.OutOfMemoryError" in done.text
    assert "remedy: lower gpu_memory_utilization" in done.text
    assert len(study.launches) == 1


def test_no_candidate_can_start(tmp_path: Path) -> None:
    """Exit 5, and the report still says why."""
    settings = world(faults=[fault("kv_too_small", model="good")])
    study = desk(tmp_path, candidates(search=ONE_K), settings)
    done = study.run()
    assert done.code == 5, done.text
    assert "kv_cache_too_small" in study.report("report.md")


def test_a_port_that_is_taken_is_tried_again(tmp_path: Path) -> None:
    """A transient cause costs one launch more, and nothing else."""
    settings = world(faults=[fault("port_collision_once")])
    study = desk(tmp_path, candidates(draft("bad"), search=ONE_K), settings)
    done = study.run()
    assert done.code == 3, done.text
    assert "port_taken" in done.text
    assert len(study.launches) == 3


@pytest.mark.parametrize("requests", [1, 5])
def test_a_draft_that_crashes_in_every_launch_is_given_up(tmp_path: Path, requests: int) -> None:
    """A crash after the first answer, or under load at live K = 0, is a failure with its cause."""
    crash = fault({"crash_after_requests": requests}, model="bad")
    study = desk(tmp_path, candidates(draft("bad"), search=ONE_K), world(faults=[crash]))
    done = study.run()
    assert done.code == 5, done.text
    assert "crashed_" in done.text
    assert "RuntimeError: CUDA error: an illegal memory access" in done.text
    assert len(study.launches) <= 4


@pytest.mark.parametrize("budget", ["1s", "60s"])
def test_a_budget_too_small_for_one_launch(tmp_path: Path, budget: str) -> None:
    """Exit 6, nothing is launched, and the way to go on is told."""
    study = desk(tmp_path)
    done = study.run("--budget", budget)
    assert done.code == 6, done.text
    assert not study.launches
    assert "go on with `autotune run candidates.yaml`" in done.text


def test_a_repaired_baseline_is_tried_again(tmp_path: Path) -> None:
    """What ended the study is no verdict for ever: `run` goes on when the cause is gone."""
    file = candidates(draft("bad"), search=ONE_K)
    study = desk(tmp_path, file, world(faults=[fault("crash_at_start", method="none")]))
    assert study.run().code == 5
    study.write(file, world())
    done = study.run()
    assert done.code == 3, done.text


def test_failed_trials_are_tried_again_on_demand(tmp_path: Path) -> None:
    """`--retry-failed` launches a draft anew that could not start before."""
    file = candidates(search=ONE_K)
    study = desk(tmp_path, file, world(faults=[fault("disk_full_at_start", model="good")]))
    assert study.run().code == 5
    study.write(file, world())
    done = study.run("--retry-failed")
    assert done.code == 0, done.text
