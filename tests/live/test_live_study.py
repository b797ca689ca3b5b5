"""A whole small study on a real vLLM, through the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import yaml

from tests.live.real import MEMORY, MODELS, NEEDS, ROOT

pytestmark = NEEDS

FILE = {
    "study": "live",
    "target": {
        "model": str(MODELS / "target"),
        "engine_args": {
            "max_model_len": 1024,
            "max_num_seqs": 4,
            "dtype": os.environ.get("AUTOTUNE_DEMO_DTYPE", "bfloat16"),  # as make chooses
            "enforce_eager": True,
        },
    },
    "workload": {
        "prompts": str(ROOT / "studies" / "smollm2-135m" / "prompts.jsonl"),
        "concurrency": 1,
        "max_tokens": 16,
        "sampling": {"temperature": 0},
    },
    "candidates": [
        {"method": "ngram", "name": "ngram", "prompt_lookup_min": 1, "prompt_lookup_max": 3},
        {"method": "draft_model", "name": "draft-2l", "model": str(MODELS / "draft-2l")},
    ],
    "search": {
        "num_speculative_tokens": [1, 2],
        "gpu_memory_utilization": MEMORY,
        "budget": "20m",  # a bound for a busy machine: blocks end the study long before
        "min_blocks": 2,
        "max_blocks": 2,
        "confirm_rounds": 1,
    },
    "tracking": {"mlflow": False},
}


def test_a_study_from_file_to_answer(tmp_path: Path) -> None:
    """A verdict, all that a study leaves, one live launch per candidate, no process left."""
    (tmp_path / "candidates.yaml").write_text(yaml.safe_dump(FILE, sort_keys=False))
    argv = [sys.executable, "-m", "autotune", "run", "candidates.yaml"]
    done = subprocess.run(
        argv, cwd=tmp_path, env=os.environ, capture_output=True, text=True, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode in {0, 3, 4}, said
    report, study = tmp_path / "reports" / "live", tmp_path / "studies" / "live"
    for file in ("report.md", "best-config.yaml", "vllm.yaml", "curves.csv"):
        assert (report / file).stat().st_size > 0, said
    assert (study / "study.db").exists()
    launches = [json.loads(f.read_text())["launch"] for f in study.glob("launches/*/launch.json")]
    live = [x for x in launches if x["live"]]
    assert sorted(x["candidate"]["name"] for x in live) == ["draft-2l", "ngram"], said
    assert "failed" not in _shown(tmp_path)
    facts = [json.loads(f.read_text()) for f in study.glob("launches/*/facts.json")]
    assert len(facts) == len(launches)
    assert all(one["kv_cache_tokens"] > 0 for one in facts)


def _shown(folder: Path) -> str:
    argv = [sys.executable, "-m", "autotune", "show", "live"]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_the_wheel_is_told_apart_from_its_absence(tmp_path: Path) -> None:
    """`--version` names the engine that is installed, for a bug report."""
    argv = [sys.executable, "-m", "autotune", "--version"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.count("\nvllm 0.") == 1
