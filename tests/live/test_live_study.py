"""A whole small study on a real vLLM, through the command line."""

import json
import subprocess
import sys
from pathlib import Path

from tests.live.desk import Ended, ended
from tests.live.real import NEEDS

pytestmark = NEEDS


def test_a_study_from_file_to_answer(small: Ended) -> None:
    """A verdict, all that a study leaves, one live launch per candidate, no process left."""
    desk, said = small.desk, small.said
    assert small.code in {0, 3, 4}, said
    for file in ("report.md", "best-config.yaml", "vllm.yaml", "curves.csv"):
        assert desk.report(file).stat().st_size > 0, said
    assert (desk.folder / "studies" / "live" / "study.db").exists()
    live = [x for x in map(desk.launch, desk.launches) if x["live"]]
    assert sorted(x["candidate"]["name"] for x in live) == ["draft-2l", "ngram"], said
    assert "failed" not in ended(desk, "show", "live").said
    facts = [json.loads((folder / "facts.json").read_text()) for folder in desk.launches]
    assert all(one["kv_cache_tokens"] > 0 for one in facts)
    assert desk.living() == []


def test_the_wheel_is_told_apart_from_its_absence(tmp_path: Path) -> None:
    """`--version` names the engine that is installed, for a bug report."""
    argv = [sys.executable, "-m", "autotune", "--version"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.count("\nvllm 0.") == 1
