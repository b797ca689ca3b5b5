"""A study that is tracked only from its second run on: MLflow gets all that is known."""

import contextlib
import hashlib
import sqlite3
from pathlib import Path

import pytest
import yaml

from tests.flow.study import BEST_K, candidates, desk

pytestmark = pytest.mark.timeout(300)  # the first start compiles what it imports

ONE_K = {"num_speculative_tokens": BEST_K, "max_blocks": 2}


def test_what_is_known_at_the_start_is_shown(tmp_path: Path) -> None:
    """Every record once, the speedups of search and confirmation with it; nothing is launched."""
    study = desk(tmp_path, candidates(search=ONE_K))
    done = study.run()
    assert done.code == 0, done.text
    launched = study.launches[-1] / "vllm.yaml"
    digest = hashlib.sha256(launched.read_bytes()).hexdigest()
    assert yaml.safe_load(study.report("best-config.yaml"))["vllm_yaml_sha256"] == digest
    study.write(candidates(search=ONE_K, tracking={"mlflow": True}), {})
    for _ in range(2):
        again = study.run()
        assert again.code == 0, again.text
    assert len(study.launches) == 4
    with contextlib.closing(sqlite3.connect(tmp_path / "studies" / "mlflow.db")) as store:
        runs = store.execute(
            "select name from runs where run_uuid in "
            "(select run_uuid from tags where key = 'autotune.record_id')"
        ).fetchall()
        speedups = store.execute(
            "select r.name, m.value from metrics m join runs r using (run_uuid) "
            "where m.key = 'speedup.c1' order by r.name"
        ).fetchall()
    # The baseline, live K = 0 and 4, and the two of the confirmation.
    assert len(runs) == 5
    assert [name for name, _ in speedups] == ["002 good K=4 screen", "004 good K=4 confirm"]
    assert all(value > 1.5 for _, value in speedups)
