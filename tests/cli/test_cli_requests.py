"""`show --passes` and `--requests`: launches that have ended, that run, that were killed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from autotune.cli.app import app
from autotune.core.trial import Record
from autotune.tuning.saved import SavedStudy, save
from tests.builders import make_spec
from tests.tuning.fakes import (
    FINGERPRINT,
    Call,
    World,
    make_launch,
    make_ledger,
    make_rig,
    run_one,
)

SPEC = make_spec()


class KilledError(Exception):
    """Ends a launch as a kill would: nothing is told any more."""


def dies(world: World, candidate: str) -> Callable[[Call], str | None]:
    """Trouble that ends the launch of a candidate in its fourth pass."""

    def trouble(call: Call) -> str | None:
        if len([c for c in world.passes if c.candidate == candidate]) == 4:
            raise KilledError
        return None

    return trouble


def study(root: Path, killed: str) -> None:
    """A study with a baseline, and the head or the baseline killed on the way."""
    world = World()
    world.trouble = dies(world, killed)
    rig = make_rig(world, SPEC, root)
    ledger = make_ledger(rig)
    url = f"sqlite:///{rig.paths.database}"
    about: dict[str, Any] = {"file": "candidates.yaml", "fingerprint": FINGERPRINT, "storage": url}
    save(SavedStudy(spec=SPEC, probe={}, **about), rig.paths)
    for launch in (make_launch(SPEC, "baseline", (0,)), make_launch(SPEC, "eagle", (0, 2))):
        try:
            records: list[Record] = run_one(rig, launch)
        except KilledError:
            return
        for record in records:
            ledger.tell(record, None)


def told(root: Path, *words: str, code: int = 0) -> str:
    """What `show` prints."""
    done = CliRunner().invoke(app, ["show", SPEC.name, "--root", str(root), *words])
    assert done.exit_code == code, done.output
    return done.output


def rows(text: str) -> list[list[str]]:
    """The cells of the rows of a table."""
    return [
        [cell.strip() for cell in line.strip("│").split("│")]
        for line in text.splitlines()
        if line.startswith("│")
    ]


def test_passes_of_a_launch_without_records_are_shown(tmp_path: Path) -> None:
    """Six of the baseline from its record, three of the head from its folder."""
    study(tmp_path, killed="eagle")
    text = told(tmp_path, "--passes")
    found = rows(text.partition("passes\n")[2])
    assert [r[:2] for r in found] == [["001", "baseline"]] * 6 + [["002", "eagle"]] * 3
    assert "launch 002 runs or was interrupted: it has no trial yet" in text
    assert "002" not in told(tmp_path)


def test_the_first_launch_is_shown_while_it_runs(tmp_path: Path) -> None:
    """No trial and no answer yet; its passes are there."""
    study(tmp_path, killed="baseline")
    text = told(tmp_path, "--passes")
    assert [r[:2] for r in rows(text)] == [["001", "baseline"]] * 3
    assert "nconclusive" not in text


def test_lines_and_parquet_print_the_same_rows(tmp_path: Path) -> None:
    """One launch ended, one was killed: by number, in short, or as the last."""
    study(tmp_path, killed="eagle")
    ended = rows(told(tmp_path, "--requests", "1"))
    assert len(ended) == 3 * (4 + 16)
    assert ended[0] == [
        *("0", "0", "1", "0", "search-000", "10", "64", "0.000", "10.0"),
        *(ended[0][9], "length", "", ""),
    ]
    last = told(tmp_path, "--requests", "last")
    assert last == told(tmp_path, "--requests", "002")
    assert [(r[0], r[3]) for r in rows(last)][:4] == [("0", rows(last)[0][3])] * 4
    assert len(ended[0]) == len(rows(last)[0])


@pytest.mark.parametrize("launch", ["9", "x", "-1"])
def test_an_unknown_launch_is_answered_with_the_known_ones(tmp_path: Path, launch: str) -> None:
    """As unknown names are everywhere."""
    study(tmp_path, killed="eagle")
    done = CliRunner().invoke(
        app, ["show", SPEC.name, f"--requests={launch}", f"--root={tmp_path}"]
    )
    assert "there are: 001, 002" in str(done.exception)
