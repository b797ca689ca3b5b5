"""The other ends of a study: do not speculate, a baseline that cannot run, no time."""

import re
from pathlib import Path

import pytest
import yaml

from tests.flow.study import candidates, desk, draft, fault, world

pytestmark = pytest.mark.timeout(300)  # the first start compiles what it imports

ONE_K = {"num_speculative_tokens": 1, "max_blocks": 2}


def test_a_draft_that_never_pays(tmp_path: Path) -> None:
    """Exit 3, and what is exported is plain decoding; the draft is not even confirmed.

    On the way a port is taken: a transient cause costs one launch more, and nothing else.
    """
    settings = world(faults=[fault("port_collision_once")])
    study = desk(tmp_path, candidates(draft("bad"), search=ONE_K), settings)
    done = study.run()
    assert done.code == 3, done.text
    assert "port_taken" in done.text
    assert "Do not speculate" in done.text
    assert "speculative-config" not in study.report("vllm.yaml")
    assert yaml.safe_load(study.report("best-config.yaml"))["verdict"] == "do_not_speculate"
    assert len(study.launches) == 3


def test_a_baseline_that_cannot_start(tmp_path: Path) -> None:
    """Exit 5 with the cause and a remedy after one launch; no draft is tried."""
    settings = world(faults=[fault("oom_at_start", method="none")])
    study = desk(tmp_path, candidates(search=ONE_K), settings)
    done = study.run()
    assert done.code == 5, done.text
    assert "the baseline cannot run: out_of_memory_start: torch.OutOfMemoryError" in done.text
    assert "remedy: lower search.gpu_memory_utilization" in done.text
    assert len(study.launches) == 1


def test_drafts_that_crash_in_every_launch_are_given_up(tmp_path: Path) -> None:
    """A crash after the first answer, or under load at live K = 0, is a failure with its cause."""
    faults = [
        fault({"crash_after_requests": 1}, model="early"),
        fault({"crash_after_requests": 5}, model="late"),
    ]
    file = candidates(draft("early"), draft("late"), search=ONE_K)
    study = desk(tmp_path, file, world(faults=faults))
    done = study.run()
    assert done.code == 5, done.text
    assert "crashed_runtime" in study.report("report.md")
    shown = study.autotune("show", "s").text
    for name in ("early", "late"):
        assert re.search(rf"{name} at K = .*: crashed_.*illegal memory access", shown), shown
    assert len(study.launches) <= 6


def test_a_budget_too_small_for_one_launch(tmp_path: Path) -> None:
    """Exit 6, nothing is launched, and the way to go on is told."""
    study = desk(tmp_path)
    done = study.run("--budget", "1s")
    assert done.code == 6, done.text
    assert not study.launches
    assert "go on with `autotune run candidates.yaml`" in done.text


def test_a_mended_study_goes_on(tmp_path: Path) -> None:
    """A baseline that failed is tried by the next `run`, a draft on demand: `--retry-failed`."""
    file = candidates(search=ONE_K)
    baseline, drafts = fault("crash_at_start", method="none"), fault("oom_at_start", model="good")
    study = desk(tmp_path, file, world(faults=[baseline, drafts]))
    assert study.run().code == 5
    study.write(file, world(faults=[drafts]))
    assert study.run().code == 5
    study.write(file, world())
    done = study.run("--retry-failed")
    assert done.code == 0, done.text
