"""A range of a setting, and other objectives over what it measured, on a real vLLM."""

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from tests.live.desk import NGRAM, Ended, desk, ended, study
from tests.live.real import NEEDS

pytestmark = [*NEEDS, pytest.mark.long]

WINDOWS = {2, 4}
COLD = {"confirm", "schedule"}


def file(metric: str = "output_throughput") -> dict[str, Any]:
    """A study of one lookup with two windows, judged by this objective."""
    searched = {**NGRAM, "prompt_lookup_max": sorted(WINDOWS), "num_speculative_tokens": [2, 4]}
    made = study("ranges", searched)
    made["workload"]["slo"] = {"e2e": "2 s"}
    return made | {"objective": {"metric": metric}}


@pytest.fixture(scope="module")
def ranges(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """The study after its run."""
    return ended(desk(tmp_path_factory.mktemp("ranges"), file()), "run", "candidates.yaml")


def test_every_value_is_launched_and_one_is_named(ranges: Ended) -> None:
    """As the engine was given it; the answer names its value."""
    assert ranges.code in {0, 3, 4}, ranges.said
    given = [yaml.safe_load((x / "vllm.yaml").read_text()) for x in ranges.desk.launches]
    speculating = [g["speculative-config"] for g in given if "speculative-config" in g]
    windows = {one["prompt_lookup_max"] for one in speculating}
    assert windows == WINDOWS, ranges.said
    assert "failed" not in ended(ranges.desk, "show", "ranges").said
    best = ranges.desk.best_config()["evidence"]["candidate"]
    assert best in {f"ngram(prompt_lookup_max={window})" for window in WINDOWS}


@pytest.mark.parametrize(
    ("objective", "gain"),
    [("tpot", "mean TPOT"), ("e2e", "mean E2E latency"), ("goodput", "goodput")],
)
def test_another_objective_judges_the_same_launches(
    ranges: Ended, objective: str, gain: str
) -> None:
    """Nothing of the search is launched again: at most K that this objective makes worth a look,
    and a finalist that it made one."""
    before = len(ranges.desk.launches)
    (ranges.desk.folder / "candidates.yaml").write_text(yaml.safe_dump(file(objective)))
    done = ended(ranges.desk, "run", "candidates.yaml")
    assert done.code in {0, 3, 4}, done.said
    assert "judged anew" in done.said
    launches = [ranges.desk.launch(x) for x in ranges.desk.launches]
    for number, launch in enumerate(launches[before:], start=before):
        if launch["stage"] not in COLD:
            earlier = set().union(*map(points, launches[:number]))
            assert points(launch) - earlier, done.said
    assert gain in ranges.desk.report("report.md").read_text()


def points(launch: Mapping[str, Any]) -> set[tuple[str, int]]:
    """What a launch of the search measures."""
    if launch["stage"] in COLD:
        return set()
    name = (launch["candidate"] or {}).get("name", "baseline")
    return {(name, k) for k in launch["num_speculative_tokens"]}
