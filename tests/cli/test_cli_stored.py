"""What the verbs tell of what is stored: show, plan; and what is kept of a study."""

import itertools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from autotune.cli import running, showing
from autotune.cli.app import app
from autotune.cli.preparing import prepare
from autotune.cli.progress import level_figure
from autotune.core.host import HostLoad
from autotune.core.plan import pending
from autotune.core.recommendation import recommend
from autotune.core.trial import Measurement, Record
from autotune.tuning.ledger import Ledger
from autotune.tuning.paths import StudyPaths
from autotune.tuning.runner import serve_order
from autotune.tuning.saved import SavedStudy, save
from tests.builders import make_pass, make_record, make_spec
from tests.builders_study import make_study_records
from tests.flow.study import candidates, desk

SPEC = make_spec()


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """The root of a finished study; its one baseline of the search gave 33 tok/s."""
    paths = StudyPaths(root=tmp_path, name=SPEC.name)
    study = SavedStudy(
        spec=SPEC,
        file="candidates.yaml",
        fingerprint="f0f0f0f0",
        storage=f"sqlite:///{paths.database}",
        probe={},
    )
    save(study, paths)
    ledger = Ledger(study.storage, SPEC)
    for record in make_study_records():
        ledger.tell(as_launched(record), 1.0)
    return tmp_path


def as_launched(record: Record) -> Record:
    """The record with what the launch of its candidate would have written into it."""
    found = [c for c in SPEC.candidates if c.name == record.trial.candidate]
    trial = record.trial
    for c in found:
        trial = replace(trial, method=c.method, model=c.model, settings=c.settings)
    return replace(record, trial=trial)


def test_show_has_every_speedup_with_interval_and_conditions(
    stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No ratio stands alone, and the table says at which concurrency and sampling it holds."""
    showing.show(SPEC.name, stored, passes=False)
    text = capsys.readouterr().out
    figures = list(re.finditer(r"\d\.\d\dx", text))
    assert len(figures) > 15
    for figure in figures:
        assert re.match(r" \[\d\.\d\d, \d\.\d\d\]", text[figure.end() :]), text
    title = text.partition("┏")[0]
    assert "weighted over concurrency 1 and 4, temperature 0, seed 0, 95% intervals" in title


def test_show_has_the_figures_of_the_report(
    stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Throughput and speedup of a point measured in one launch are those of its curve."""
    showing.show(SPEC.name, stored, passes=False)
    row = next(x for x in capsys.readouterr().out.splitlines() if re.match(r"│ 002 .*│ 3 ", x))
    found = {
        c.concurrency: c.at(3)
        for c in recommend(SPEC, make_study_records()).search
        if c.candidate == "eagle"
    }
    cells = [cell.strip() for cell in row.strip("│").split("│")]
    assert cells[4:6] == [f"{found[1].throughput:.1f}", f"{found[4].throughput:.1f}"]
    assert cells[7] == found[None].speedup.show()


def shown_passes(root: Path, capsys: pytest.CaptureFixture[str], *hosts: HostLoad | None) -> str:
    """The table of passes of a baseline whose six passes had these hosts in turn."""
    paths = StudyPaths(root=root, name=SPEC.name)
    storage = f"sqlite:///{paths.database}"
    about: dict[str, Any] = {
        "file": "candidates.yaml",
        "fingerprint": "f0f0f0f0",
        "storage": storage,
    }
    save(SavedStudy(spec=SPEC, probe={}, **about), paths)
    record = make_record()
    assert record.measurement
    passes = [
        replace(p, host=host)
        for p, host in zip(record.measurement.passes, itertools.cycle(hosts), strict=False)
    ]
    outcome = replace(record.measurement, passes=tuple(passes))
    Ledger(storage, SPEC).tell(replace(record, outcome=outcome), 1.0)
    showing.show(SPEC.name, root, passes=True)
    return capsys.readouterr().out.partition("passes\n")[2].partition("└")[0]


def test_passes_show_what_the_machine_gave(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A remark on the host points here; what it did not tell is a dash, and no reading is empty."""
    readings = HostLoad(load_1m=1.94, steal=0.031, cpu_mhz=2449.6)
    text = shown_passes(tmp_path, capsys, readings, HostLoad(load_1m=2.0), None)
    head, *rows = [
        [cell.strip() for cell in re.split("[┃│]", line)[1:-1]]
        for line in text.splitlines()
        if line.startswith(("┃", "│"))
    ]
    column = head.index("load, steal, MHz")
    assert [row[column] for row in rows[:3]] == ["1.9, 3%, 2450", "2.0, -, -", ""]
    assert not any("GPU" in name for name in head)


def test_passes_on_a_gpu_show_its_clock_heat_and_power(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside the host's own readings."""
    text = shown_passes(
        tmp_path, capsys, HostLoad(steal=0.0, gpu_mhz=1980.0, gpu_celsius=61.0, gpu_watts=402.2)
    )
    assert "GPU MHz, °C, W" in text
    assert text.count(" 1980, 61, 402 ") == 6
    assert text.count(" -, 0%, - ") == 6


def test_without_readings_the_passes_stay_narrow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No empty columns."""
    text = shown_passes(tmp_path, capsys, None, HostLoad())
    assert "MHz" not in text
    assert "step ms" in text


def test_a_throughput_is_the_geometric_mean_over_blocks() -> None:
    """10 and 40 tok/s are 20; an invalid pass does not count, of a repeated block the last does."""
    passes = [
        replace(make_pass(k=0, concurrency=1, block=block), output_tokens=tokens, duration_s=10.0)
        for block, tokens in ((0, 9000), (0, 100), (1, 400), (2, 7000))
    ]
    passes[3] = replace(passes[3], invalid="a test")
    one, four = SPEC.workload.levels
    assert level_figure(SPEC, Measurement(passes=tuple(passes)), one) == "20.0"
    assert level_figure(SPEC, Measurement(passes=tuple(passes)), four) == ""


def baseline(seconds: float, fingerprint: str) -> Record:
    """A baseline of three blocks that took that long each."""
    record = make_record(tput={1: 30.0})
    assert record.measurement is not None
    passes = tuple(
        replace(p, started_s=seconds * p.order, duration_s=seconds)
        for p in record.measurement.passes
    )
    trial = replace(record.trial, gpu_memory_utilization=0.9)
    outcome = Measurement(passes=passes)
    return replace(record, trial=trial, outcome=outcome, fingerprint=fingerprint)


def told(*words: str) -> str:
    """What a verb that succeeds prints."""
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return done.output


def test_a_plan_looks_into_the_storage_it_is_given(tmp_path: Path) -> None:
    """What is known there is not planned again; minutes follow from its passes; no file is made."""
    desk(tmp_path)
    file, database = tmp_path / "candidates.yaml", tmp_path / "elsewhere.db"
    storage = f"sqlite:///{database}"
    assert "4 launches, about" in told("plan", str(file), "--storage", storage)
    assert not database.exists()
    ready = prepare(file, None, storage)
    Ledger(storage, ready.loaded.spec).tell(baseline(100.0, ready.fingerprint), 1.0)
    text = told("plan", str(file), "--storage", storage)
    # Live K = 0, 1, 4, 8 for two blocks, a baseline and a winner for three: 14 passes of 100 s.
    assert "3 launches, about 14 passes" in text
    assert "disk: about 1 MiB of logs and samples" in text
    assert "memory: each server takes 0.9 of the RAM" in text
    assert "23 of measuring" in text
    assert "3 launches, about" in told("run", str(file), "--dry-run", "--storage", storage)
    assert "4 launches, about" in told("plan", str(file))


def test_credentials_are_not_kept(tmp_path: Path) -> None:
    """Neither those of the environment nor those among the engine's arguments."""
    secret = "s3cret"  # noqa: S105 - what must not be found
    target = {"engine_args": {"hf_token": secret, "max_model_len": 64}, "env": {"API_KEY": secret}}
    desk(tmp_path, candidates(target=target))
    ready = prepare(tmp_path / "candidates.yaml", None)
    assert ready.loaded.spec.target.env["API_KEY"] == secret
    save(ready.saved, ready.paths)
    text = (ready.paths.folder / "spec.json").read_text(encoding="utf-8")
    assert secret not in text
    assert yaml.safe_load(text)["spec"]["target"]["engine_args"] == {"max_model_len": 64}


def test_a_tracking_server_is_named_without_its_password(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is printed ends in logs."""
    desk(tmp_path, candidates(tracking={"mlflow": {"uri": "http://me:s3cret@host:5000"}}))
    ready = prepare(tmp_path / "candidates.yaml", None)
    ready.paths.folder.mkdir(parents=True)
    running._greet(ready, [], others=0, judged_anew=False)
    text = capsys.readouterr().out
    assert "MLflow: http://host:5000" in text
    assert "s3cret" not in text


def test_a_dry_run_asks_for_the_served_name(tmp_path: Path) -> None:
    """The order is the runner's: of several names the first."""
    args = {"served_model_name": ["first", "second"]}
    desk(tmp_path, candidates(target={"engine_args": args}))
    ready = prepare(tmp_path / "candidates.yaml", None)
    launch = next(pending(ready.loaded.spec, []))
    order = serve_order(ready.loaded.spec, launch, Path("vllm.yaml"), tmp_path)
    assert (order.model, order.start_timeout_s) == ("first", 900.0)
