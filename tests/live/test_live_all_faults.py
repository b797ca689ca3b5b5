"""Everything that goes wrong, in one study on a real vLLM: it ends with the pick of the others.

Twenty minutes or so: two whole studies, and every fault is a start of the engine.
"""

import json
import re
import shutil
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from autotune.core.causes import CAUSES
from autotune.core.trial import Cause
from tests.live.desk import NGRAM, Desk, Ended, desk, draft, ended, study
from tests.live.real import MEMORY, MODELS, NEEDS, untrained

pytestmark = [*NEEDS, pytest.mark.long, pytest.mark.timeout(3600)]

TOO_SMALL, TOO_LARGE = 0.01, (0.998, 0.999)
SEARCH = {"num_speculative_tokens": [1, 3], "max_blocks": 3, "budget": "50m"}
TOLD = {
    "vocabulary": Cause.VOCABULARY_MISMATCH,
    "weights": Cause.MISSING_WEIGHTS,
    "killed": Cause.CRASHED_RUNTIME,
}
"""Candidates that the engine refuses or dies of, and the cause that must be told."""
REFUSED = {"vocabulary-known": "vocabulary_sizes", "weights-known": "draft_files"}
"""Candidates that `check` refuses, and the rule."""


def widen(draft: Path) -> None:
    """Give a draft another vocabulary than the target's."""
    config = json.loads((draft / "config.json").read_text())
    config["vocab_size"] += 128
    (draft / "config.json").write_text(json.dumps(config))


def unload(draft: Path) -> None:
    """Take a draft's weights away."""
    (draft / "model.safetensors").unlink()


def pick(of: Ended) -> tuple[object, object, object]:
    """Verdict, candidate and K."""
    best = of.desk.best_config()
    evidence = best["evidence"]
    return best["verdict"], evidence["candidate"], evidence["num_speculative_tokens"]


def interval(of: Ended) -> tuple[float, float]:
    """Of the speedup of the pick."""
    speedup = of.desk.best_config()["evidence"]["speedup"]
    return speedup["low"], speedup["high"]


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """One draft that works among faulty ones, between memory shares that do not."""
    folder = tmp_path_factory.mktemp("faulty")
    late, known = folder / "late", folder / "known"
    shutil.copytree(MODELS / "draft-4l", late / "vocabulary")
    untrained(late / "weights", layers=1)
    shutil.copytree(MODELS / "draft-2l", known / "vocabulary")
    widen(known / "vocabulary")
    shutil.copytree(MODELS / "draft-2l", known / "weights")
    unload(known / "weights")
    laid = desk(
        folder,
        study(
            "faulty",
            NGRAM,
            draft("vocabulary-known", known / "vocabulary"),
            draft("weights-known", known / "weights"),
            draft("vocabulary", late / "vocabulary"),
            draft("weights", late / "weights"),
            draft("untrained", untrained(folder / "untrained", layers=2)),
            {**draft("killed", MODELS / "eagle", "eagle"), "num_speculative_tokens": 1},
            gpu_memory_utilization=[TOO_SMALL, MEMORY, *TOO_LARGE],
            **SEARCH,
        ),
    )
    with laid.started("run", "candidates.yaml") as process:
        wait_for_launch(laid, process)
        # Only now, or `check` would refuse them, too.
        widen(late / "vocabulary")
        unload(late / "weights")
        kill_engine(laid, process, "killed")
        process.wait()
    return Ended(desk=laid, code=process.returncode, said=laid.said)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """The same study without what is faulty."""
    laid = desk(tmp_path_factory.mktemp("sound"), study("sound", NGRAM, **SEARCH))
    return ended(laid, "run", "candidates.yaml")


def wait_for_launch(laid: Desk, process: "subprocess.Popen[bytes]") -> None:
    """Return when the first one has begun, or the command has ended."""
    while not laid.launches and process.poll() is None:
        time.sleep(0.1)


def kill_engine(laid: Desk, process: "subprocess.Popen[bytes]", name: str) -> None:
    """Once a candidate is being measured, kill what holds its models, as a full machine would."""
    while process.poll() is None:
        time.sleep(0.1)
        for folder in laid.launches:
            passes, note = folder / "passes.jsonl", folder / "process.json"
            if not passes.exists() or not passes.stat().st_size or not note.exists():
                continue
            if (laid.launch(folder)["candidate"] or {}).get("name") == name:
                server = psutil.Process(json.loads(note.read_text())["pid"])
                tree = [server, *server.children(recursive=True)]
                max(tree, key=lambda one: one.memory_info().rss).kill()
                return


def test_it_ends_with_an_answer(faulty: Ended) -> None:
    """No stack trace, and no process is left."""
    assert faulty.code in {0, 3, 4}, faulty.said
    assert "Traceback" not in faulty.said
    assert faulty.desk.living() == []


def test_the_pick_is_that_of_the_study_without_them(faulty: Ended, sound: Ended) -> None:
    """Or a statistical tie with it."""
    assert sound.code in {0, 3, 4}, sound.said
    (low, high), (other_low, other_high) = interval(faulty), interval(sound)
    tie = max(low, other_low) <= min(high, other_high)
    assert pick(faulty) == pick(sound) or tie, (pick(faulty), pick(sound))


@pytest.mark.parametrize("name", TOLD)
def test_a_broken_draft_ends_as_a_cause_and_a_remedy(faulty: Ended, name: str) -> None:
    """On the terminal and in the report."""
    cause, said = TOLD[name], re.sub(r"\s+", " ", faulty.said)
    assert f"{cause.value}: " in said
    assert f"remedy: {CAUSES[cause].remedy}" in said
    rows = [r for r in faulty.desk.report("report.md").read_text().splitlines() if name in r]
    assert any(cause.value in row for row in rows), rows


def test_memory_that_does_not_do_is_a_bound(faulty: Ended) -> None:
    """Each share that was launched in vain is named with its cause; the answer lies between."""
    made = [faulty.desk.launch(folder) for folder in faulty.desk.launches]
    plain = [x["gpu_memory_utilization"] for x in made if not x["candidate"]]
    assert {TOO_SMALL, MEMORY, TOO_LARGE[-1]} <= set(plain), faulty.said
    report = faulty.desk.report("report.md").read_text()
    assert Cause.KV_CACHE_TOO_SMALL.value in report
    assert Cause.UTILIZATION_TOO_HIGH.value in report or Cause.MEMORY_OCCUPIED.value in report
    assert faulty.desk.best_config()["engine"]["args"]["gpu_memory_utilization"] == MEMORY


@pytest.mark.parametrize("name", REFUSED)
def test_what_check_refuses_costs_no_launch(faulty: Ended, name: str) -> None:
    """The report has the reason."""
    assert f"candidate refused {name} ({REFUSED[name]})" in faulty.said
    assert f"{name} was left out before any launch" in faulty.desk.report("report.md").read_text()
    made = [faulty.desk.launch(folder)["candidate"] for folder in faulty.desk.launches]
    assert name not in [candidate["name"] for candidate in made if candidate]


def test_an_untrained_draft_is_measured_and_never_picked(faulty: Ended) -> None:
    """It starts like any other and is beaten; how little is accepted is told, or what to do."""
    report = faulty.desk.report("report.md").read_text()
    assert pick(faulty)[1] != "untrained"
    assert re.search(r"\| untrained \|.*stopped early at K", report), report
    assert re.search(r"(?i)untrained.*(another draft|accepted: insufficient)", report), report
