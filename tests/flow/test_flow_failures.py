"""A study with everything wrong in it, and one that the machine stops, over the command line."""

import json
import re
from pathlib import Path

import pytest
import yaml

from autotune.core.causes import CAUSES
from autotune.core.trial import Cause
from tests.flow.study import BEST_K, GOOD, Desk, Done, candidates, desk, draft, fault, world

pytestmark = pytest.mark.timeout(300)  # the first start compiles what it imports

WRONG = {
    "vocabulary": ("other_vocabulary", Cause.VOCABULARY_MISMATCH, 1),
    "shapes": ("other_weights", Cause.WEIGHTS_MISMATCH, 1),
    "missing": ("no_weights", Cause.MISSING_WEIGHTS, 1),
    "package": ("no_package", Cause.MISSING_PACKAGE, 1),
    "cache": ("compiled_for_another_k", Cause.COMPILE_CACHE, 2),
    "network": ("network_down", Cause.TRANSIENT, 2),
}
"""Draft -> its fault, the cause that must be told, and the launches that it may cost."""
ONE_K = {"num_speculative_tokens": [BEST_K], "max_blocks": 2}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """One draft that pays among six that cannot start; the cache is healed by one of its own."""
    file = candidates(*map(draft, WRONG), draft("good"), search=ONE_K)
    faults = [fault(what, model=name) for name, (what, _, _) in WRONG.items()]
    drafts = {"good": GOOD, "cache": {"acceptance": [0.02], "t_draft": 0.02}}
    return desk(tmp_path_factory.mktemp("wrong"), file, world(drafts=drafts, faults=faults))


@pytest.fixture(scope="module")
def done(study: Desk) -> Done:
    """The study after its one run."""
    return study.run()


def test_the_pick_is_that_of_the_study_without_them(
    study: Desk, done: Done, tmp_path: Path
) -> None:
    """Exit 0, the same candidate at the same K."""
    alone = desk(tmp_path, candidates(draft("good"), search=ONE_K), world(drafts={"good": GOOD}))
    picks = []
    for each, ended in ((study, done), (alone, alone.run())):
        assert ended.code == 0, ended.text
        evidence = yaml.safe_load(each.report("best-config.yaml"))["evidence"]
        picks.append((evidence["candidate"], evidence["num_speculative_tokens"]))
    assert picks == [("good", BEST_K)] * 2


@pytest.mark.parametrize("name", WRONG)
def test_each_ends_as_a_cause_and_a_remedy(study: Desk, done: Done, name: str) -> None:
    """On the terminal and in the report, at the price of its policy, and never as a stack trace."""
    _, cause, launches = WRONG[name]
    told = re.sub(r"\s+", " ", done.text)
    assert f"{cause.value}: " in told
    assert f"remedy: {CAUSES[cause].remedy}" in told
    assert cause.value in study.report("report.md")
    assert "Traceback" not in done.text
    made = [json.loads((f / "launch.json").read_text())["launch"] for f in study.launches]
    mine = [x for x in made if x["candidate"] and x["candidate"]["name"] == name]
    assert len(mine) == launches


def test_a_full_disk_stops_the_study_and_nothing_is_lost(tmp_path: Path) -> None:
    """Exit 5 after one launch of the draft; with space again the run goes on where it was."""
    file = candidates(draft("good"), search=ONE_K)
    full = fault("disk_full_at_start", model="good")
    study = desk(tmp_path, file, world(faults=[full]))
    done = study.run()
    assert done.code == 5, done.text
    assert "the study stops: disk_full: OSError: [Errno 28]" in done.text
    assert "go on with `autotune run candidates.yaml`" in done.text
    assert "Traceback" not in done.text
    assert len(study.launches) == 2
    study.write(file, world())
    again = study.run()
    assert again.code == 0, again.text
    assert "resumed with 1 trial known already" in again.text
