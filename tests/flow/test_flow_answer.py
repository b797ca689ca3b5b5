"""A whole study over the real command line: a winner, broken drafts beside it, what is left of it.

One study serves all tests here; it is measured once.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.flow.study import BEST_K, GOOD, POOR, Desk, Done, candidates, desk, draft, fault, world

pytestmark = pytest.mark.timeout(300)  # the first start compiles what it imports

BROKEN = {
    "no-memory": ("oom_at_start", "out_of_memory_start"),
    "crasher": ("crash_at_start", "crashed_start"),
    "no-cache": ("kv_too_small", "kv_cache_too_small"),
    "other-family": ("other_vocabulary", "vocabulary_mismatch"),
}
"""Draft -> what is wrong with it, and the cause that must be told."""

FOR_ONE_K = ("out_of_memory_start", "kv_cache_too_small")
"""Causes that a smaller K may not have: the largest K is left out and the rest launched again."""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """One draft that pays, one static method, four that cannot start."""
    suffix = {"name": "suffix", "method": "suffix", "num_speculative_tokens": [1, 2]}
    file = candidates(draft("good"), suffix, *map(draft, BROKEN))
    faults = [fault(what, model=name) for name, (what, _) in BROKEN.items()]
    settings = world(drafts={"good": GOOD, "suffix": POOR}, faults=faults)
    return desk(tmp_path_factory.mktemp("answer"), file, settings)


@pytest.fixture(scope="module")
def done(study: Desk) -> Done:
    """The study after its one run."""
    return study.run()


def launches(study: Desk) -> list[dict[str, Any]]:
    """What each launch was to measure, in order."""
    files = [folder / "launch.json" for folder in study.launches]
    return [json.loads(file.read_text(encoding="utf-8"))["launch"] for file in files]


def test_the_best_candidate_and_k_are_found(study: Desk, done: Done) -> None:
    """The run ends with exit 0, the verdict in words and the winner in best-config.yaml."""
    assert done.code == 0, done.text
    assert "Speculate with good at num_speculative_tokens = 4" in done.text
    config = yaml.safe_load(study.report("best-config.yaml"))
    assert config["verdict"] == "speculate"
    deployed = config["engine"]["speculative_config"]
    assert (Path(deployed["model"]).name, deployed["num_speculative_tokens"]) == ("good", BEST_K)


def test_the_exported_file_is_the_one_that_was_launched(study: Desk, done: Done) -> None:
    """vllm.yaml equals the --config of the confirmation launch, byte for byte."""
    last = launches(study)[-1]
    assert (last["stage"], last["num_speculative_tokens"]) == ("confirm", [BEST_K])
    assert study.report("vllm.yaml") == (study.launches[-1] / "vllm.yaml").read_text()
    exported = yaml.safe_load(study.report("vllm.yaml"))
    assert exported["speculative-config"]["num_speculative_tokens"] == BEST_K


def test_the_report_tells_the_curve(study: Desk, done: Done) -> None:
    """report.md names the verdict, the winner and every candidate that failed."""
    text = study.report("report.md")
    assert "Speculate with good at num_speculative_tokens = 4" in text
    assert all(name in text for name in ("good", *BROKEN))


def test_the_replies_are_compared_with_plain_decoding(study: Desk, done: Done) -> None:
    """Once for the winner as it was confirmed, and each of its requests can be looked at."""
    text = study.report("report.md")
    assert "### Replies compared with plain decoding" in text
    assert re.search(r"^\| confirmation \| good \| 4 \| \d+ of 12 \|", text, re.MULTILINE)
    shown = study.autotune("show", "s", "--requests", "last").text
    assert len([line for line in shown.splitlines() if "confirmation-" in line]) == 12


def test_a_draft_that_cannot_start_stops_nothing(study: Desk, done: Done) -> None:
    """Each failure is shown while the run goes on, and costs one launch; one for each K where a
    smaller K might do."""
    made = [launch["candidate"]["name"] for launch in launches(study) if launch["candidate"]]
    for name, (_, cause) in BROKEN.items():
        assert cause in done.text
        assert made.count(name) == (3 if cause in FOR_ONE_K else 1)


def test_live_k_needs_one_launch_and_a_static_method_one_per_k(study: Desk, done: Done) -> None:
    """`good` was screened in one launch over all K, `suffix` in one for each K."""
    screens = [x for x in launches(study) if x["stage"] == "screen"]
    by_name = {
        name: [x["num_speculative_tokens"] for x in screens if x["candidate"]["name"] == name]
        for name in ("good", "suffix")
    }
    assert by_name == {"good": [[0, 1, 4, 8]], "suffix": [[1], [2]]}


def test_every_server_is_gone(study: Desk, done: Done) -> None:
    """No process of the study outlives it."""
    assert not study.servers()


def test_running_again_launches_nothing(study: Desk, done: Done) -> None:
    """A finished study is answered from its records, with the same exit code."""
    before = len(study.launches)
    again = study.run()
    assert (again.code, len(study.launches)) == (0, before)
    assert "trials known already" in again.text


def test_show_names_every_trial_and_cause(study: Desk, done: Done) -> None:
    """`show --passes` has the candidates, the causes and the verdict."""
    shown = study.autotune("show", "s", "--passes")
    assert shown.code == 0
    causes = [
        f"{name} at K = {'1' if cause in FOR_ONE_K else '0, 1, 4, 8'}: {cause}"
        for name, (_, cause) in BROKEN.items()
    ]
    words = ("good", "suffix", "Speculate with good", "passes", *causes)
    missing = [word for word in words if word not in shown.text]
    assert not missing, shown.text


def test_report_and_export_need_no_candidates_file(study: Desk, done: Done) -> None:
    """`report` writes the files anew, `export` prints the one asked for."""
    kept = study.report("vllm.yaml")
    (study.folder / "reports" / "s" / "vllm.yaml").unlink()
    (study.folder / "candidates.yaml").rename(study.folder / "away.yaml")
    try:
        assert study.autotune("report", "s").code == 0
        exported = study.autotune("export", "s", "--format", "vllm_yaml")
    finally:
        (study.folder / "away.yaml").rename(study.folder / "candidates.yaml")
    assert study.report("vllm.yaml") == kept == exported.text


def test_unknown_names_are_answered_with_the_known_ones(study: Desk, done: Done) -> None:
    """A study or an export format that is not there: exit 2 and what there is."""
    nothing = study.autotune("show", "other")
    assert (nothing.code, "there are: s" in nothing.text) == (2, True)
    formats = study.autotune("export", "s", "--format", "toml")
    assert (formats.code, "vllm_yaml" in formats.text) == (2, True)


def test_clean_deletes_what_the_study_made_and_nothing_else(study: Desk, done: Done) -> None:
    """Last here: measurements and report go, the candidates file and the models stay."""
    kept = study.autotune("clean", "s")
    assert (kept.code, len(study.launches) > 0) == (1, True)
    cleaned = study.autotune("clean", "s", "--yes")
    assert cleaned.code == 0, cleaned.text
    assert not study.launches
    assert not (study.folder / "studies" / "s" / "reply.key").exists()
    assert not (study.folder / "reports" / "s").exists()
    assert (study.folder / "candidates.yaml").exists()
    assert (study.folder / "target" / "config.json").exists()
