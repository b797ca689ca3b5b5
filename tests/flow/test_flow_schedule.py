"""A schedule of K per batch size over the real command line: where it pays, where it is ignored.

The draft pays for one stream and costs at four, where a step verifies four times as many tokens.
"""

import json
from hashlib import sha256
from pathlib import Path

import pytest
import yaml

from tests.flow.study import BEST_K, GOOD, Desk, candidates, desk, draft, fault, world

pytestmark = pytest.mark.timeout(300)  # the first start compiles what it imports

DEAR = {"t_base": 0.02, "t_seq": 0.0003, "t_verify_token": 0.01}
"""At K = 4 a step takes 64 ms for one stream, 185 ms for four, and gives each about 4.8 tokens;
without speculation 20 and 21 ms for one."""
CHEAP = {**GOOD, "t_draft": 0.001}
RANGES = [[1, 1, BEST_K], [2, 4, 0]]


def study(folder: Path, **changes: object) -> Desk:
    """One draft at concurrency 1, which counts most, and 4."""
    levels = [{"level": 1, "weight": 9}, {"level": 4, "weight": 1}]
    file = candidates(draft("good"), workload={"concurrency": levels})
    return desk(folder, file, world(step=DEAR, drafts={"good": CHEAP}, **changes), prompts=32)


def stages(laid: Desk) -> list[str]:
    """Why each launch was made, in order."""
    files = [folder / "launch.json" for folder in laid.launches]
    return [json.loads(file.read_text(encoding="utf-8"))["launch"]["stage"] for file in files]


def test_a_schedule_that_pays_is_launched_and_offered(tmp_path: Path) -> None:
    """It is launched in the confirmation's rounds, in force, faster at four streams, and exported
    beside the static K as the file that was launched."""
    laid = study(tmp_path)
    done = laid.run()
    assert done.code == 0, done.text
    assert stages(laid)[-3:] == ["confirm", "confirm", "schedule"]
    assert "a schedule of K per batch size is offered" in done.text
    config = yaml.safe_load(laid.report("best-config.yaml"))
    assert config["engine"]["speculative_config"]["num_speculative_tokens"] == BEST_K
    offered = config["schedule"]
    assert offered["num_speculative_tokens_per_batch_size"] == RANGES
    text = laid.report("vllm-schedule.yaml")
    assert text == (laid.launches[-1] / "vllm.yaml").read_text(encoding="utf-8")
    assert offered["sha256"] == sha256(text.encode()).hexdigest()
    one, four = offered["levels"]
    assert (one["num_speculative_tokens"], four["num_speculative_tokens"]) == (BEST_K, 0)
    assert one["draft_length"] == BEST_K
    assert four["drafted_share"] < 0.25 < four["static_drafted_share"]
    assert four["speed_over_static"]["low"] > 1.1
    assert "## Schedule" in laid.report("report.md")
    again = laid.run()
    assert (again.code, len(laid.launches)) == (0, len(stages(laid)))
    exported = laid.autotune("export", "s", "--format", "vllm-schedule")
    assert exported.text == text


def test_a_schedule_that_the_engine_ignores_is_not_offered(tmp_path: Path) -> None:
    """The counters contradict it: the report and the terminal say so, and nothing is exported."""
    laid = study(tmp_path, faults=[fault("schedule_ignored")])
    done = laid.run()
    assert done.code == 0, done.text
    refused = "not in force at concurrency 4, where K = 0 was planned"
    assert refused in done.text
    assert f"**Not offered**: {refused}" in laid.report("report.md")
    assert "schedule" not in yaml.safe_load(laid.report("best-config.yaml"))
    assert not (tmp_path / "reports" / "s" / "vllm-schedule.yaml").exists()
    exported = laid.autotune("export", "s", "--format", "vllm-schedule")
    assert (exported.code, "vllm-schedule.yaml" in exported.text) == (2, True)
