"""A study with tracking on: MLflow has what the study has, and its absence stops nothing."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from tests.flow.study import candidates, desk, draft

pytestmark = pytest.mark.timeout(300)  # the first start compiles what it imports


def test_every_launch_and_trial_is_in_mlflow(tmp_path: Path) -> None:
    """The default store is a file of the studies folder; no run is left open, nothing is in cwd."""
    file = candidates(
        draft("bad"),
        search={"num_speculative_tokens": 1, "max_blocks": 2},
        tracking={"mlflow": True},
    )
    study = desk(tmp_path, file)
    done = study.run()
    assert done.code == 3, done.text
    with contextlib.closing(sqlite3.connect(tmp_path / "studies" / "mlflow.db")) as store:
        statuses = [row[0] for row in store.execute("select status from runs")]
        (experiment,) = store.execute("select name from experiments where name = 's'").fetchall()
    assert len(statuses) >= len(study.launches) == 2
    assert set(statuses) == {"FINISHED"}
    assert experiment == ("s",)
    assert not (tmp_path / "mlruns").exists()
