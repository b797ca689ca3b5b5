"""A whole study at a request rate over the real command line: E2E latency finds the same draft.

One study serves all tests here; it is measured once.
"""

import re
from typing import Any

import pytest
import yaml

from tests.flow.study import Desk, Done, candidates, desk, draft

pytestmark = pytest.mark.timeout(300)  # the first start compiles what it imports


def file(rate: float, slo: str = "110 ms") -> dict[str, Any]:
    """Blocks of eight requests, at most two under way; plain decoding takes 120 ms a reply."""
    level = {"level": 2, "request_rate": rate}
    return candidates(
        draft("good"),
        draft("bad"),
        workload={"concurrency": [level], "slo": {"e2e": slo}},
        search={"num_speculative_tokens": [1, 4], "min_blocks": 2, "max_blocks": 2},
    )


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """A draft that pays and one that does not."""
    return desk(tmp_path_factory.mktemp("open"), file(12.0))


@pytest.fixture(scope="module")
def done(study: Desk) -> Done:
    """The study after its one run."""
    return study.run()


def test_the_draft_that_pays_is_found_by_latency(study: Desk, done: Done) -> None:
    """The verdict names what was compared, the evidence has rate, latencies and goodput."""
    assert done.code == 0, done.text
    assert "the speed of plain decoding, in mean E2E latency at 12 requests/s" in done.text
    found = yaml.safe_load(study.report("best-config.yaml"))["evidence"]
    assert (found["candidate"], found["num_speculative_tokens"]) == ("good", 4)
    (level,) = found["levels"]
    assert level["request_rate"] == 12.0
    assert level["candidate"]["mean_e2e_ms"] < level["baseline"]["mean_e2e_ms"] / 1.2
    assert level["candidate"]["requests"] == 16
    assert level["candidate"]["good_share"]["mean"] > level["baseline"]["good_share"]["mean"]
    assert "E2E <= 110 ms" in study.report("report.md")


def test_another_rate_is_measured_anew_and_another_objective_is_not(
    study: Desk, done: Done
) -> None:
    """The plan for the same rate has no baseline left, whatever the objective; another's has."""
    assert done.code == 0, done.text
    text = (study.folder / "candidates.yaml").read_text(encoding="utf-8")
    world = (study.folder / "world.yaml").read_text(encoding="utf-8")
    plans = []
    for changed in (file(12.0), file(12.0, slo="80 ms"), file(13.0)):
        study.write(changed, yaml.safe_load(world))
        plans.append(study.autotune("plan", "candidates.yaml").text)
    (study.folder / "candidates.yaml").write_text(text, encoding="utf-8")
    launches = [len(re.findall(r"denominator of every speedup", plan)) for plan in plans]
    assert launches == [0, 0, 1], plans
