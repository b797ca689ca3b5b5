"""gpu_memory_utilization over the real command line: what is enough is confirmed and exported.

The world leaves 1.5 GiB for KV cache at 0.5, 3.5 at 0.7, 5.5 at 0.9: 129, 303 and 476 tokens with
the draft at K = 4. Two streams of 65 to 100 tokens want up to 200, and a quarter to spare. Most of
them is prompt, so that every reading of the gauge is near the peak.
"""

import json
from typing import Any

import pytest
import yaml

from tests.flow.study import Desk, Done, candidates, desk, fault, world

pytestmark = pytest.mark.timeout(300)  # the first start compiles what it imports

MEMORY = {"total_gib": 10.0, "free_gib": 9.6, "kv_gib_per_1k_tokens": 10.5}
SEARCH = {"num_speculative_tokens": [1, 4, 8], "gpu_memory_utilization": [0.5, 0.7, 0.9, 0.95]}
WORKLOAD = {"concurrency": 2}
TARGET = {"engine_args": {"max_model_len": 128}}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """Four utilizations, the largest of which is out of memory."""
    file = candidates(search=SEARCH, workload=WORKLOAD, target=TARGET)
    gone = fault("oom_at_start", min_gpu_memory_utilization=0.95)
    settings = world(memory=MEMORY, faults=[gone], device="cpu")
    laid = desk(tmp_path_factory.mktemp("memory"), file, settings)
    with (laid.folder / "prompts.jsonl").open("w", encoding="utf-8") as lines:
        for i in range(32):
            message = {"role": "user", "content": " ".join(f"word-{i}-{j}" for j in range(60))}
            split = ("search", "confirmation")[i % 2]
            row = {"id": f"{split}-{i}", "split": split, "messages": [message]}
            lines.write(json.dumps(row) + "\n")
    return laid


@pytest.fixture(scope="module")
def done(study: Desk) -> Done:
    """The study after its one run."""
    return study.run()


def shares(study: Desk) -> list[float]:
    """The utilization of each launch, in order, as its server was given it."""
    files = [yaml.safe_load((folder / "vllm.yaml").read_text()) for folder in study.launches]
    return [file["gpu-memory-utilization"] for file in files]


def config(study: Desk) -> dict[str, Any]:
    """What was exported."""
    found: dict[str, Any] = yaml.safe_load(study.report("best-config.yaml"))
    return found


def test_the_smallest_that_is_enough_is_confirmed_and_exported(study: Desk, done: Done) -> None:
    """The search at 0.9, once 0.95 has failed; both arms of the confirmation at 0.7.

    How many launches the search takes is the noise's affair: it repeats what it cannot tell apart.
    """
    assert done.code == 0, done.text
    first, *searched = shares(study)[:-2]
    assert (first, set(searched)) == (0.95, {0.9})
    assert shares(study)[-2:] == [0.7, 0.7]
    assert config(study)["engine"]["args"]["gpu_memory_utilization"] == 0.7
    assert study.report("vllm.yaml") == (study.launches[-1] / "vllm.yaml").read_text()


def test_it_says_why(study: Desk, done: Done) -> None:
    """On the terminal and in the report: shares of the RAM, the bound, peak and headroom."""
    for text in (done.text, study.report("report.md")):
        assert "0.7 is the smallest of 0.5, 0.7, 0.9 and 0.95 (shares of the RAM)" in text
        assert "0.95 is out: out_of_memory_start" in text
    memory = config(study)["evidence"]["memory"]
    assert 129 / 1.25 < memory["kv_cache_need_tokens"] <= 303 / 1.25
    assert memory["kv_cache_headroom"] >= 0.25
    assert 0 < memory["confirmed_kv_cache_peak"] <= 1
    assert "## Memory" in study.report("report.md")


def test_each_pass_keeps_its_peak(study: Desk, done: Done) -> None:
    """And `show --passes` has it."""
    assert "KV peak" in study.autotune("show", "s", "--passes").text
