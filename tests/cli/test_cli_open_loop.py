"""What the command line tells of a level at a request rate: latency, its rate, goodput."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from autotune.cli import showing
from autotune.cli.progress import level_figure, screen
from autotune.core.trial import Launch, Measurement, Stage
from autotune.core.workload import Slo
from autotune.tuning.events import LaunchEnded, LaunchStarted, PassDone
from autotune.tuning.ledger import Ledger
from autotune.tuning.paths import StudyPaths
from autotune.tuning.saved import SavedStudy, save
from tests.builders import make_pass
from tests.builders_study import make_open_records, make_open_spec

SPEC = make_open_spec(slo=Slo(ttft_ms=100.0))
LAUNCH = Launch(
    stage=Stage.BASELINE,
    candidate=None,
    num_speculative_tokens=(0,),
    gpu_memory_utilization=0.4,
    max_blocks=3,
    why="a test",
)


def test_the_screen_says_what_is_compared() -> None:
    """Milliseconds at the rate, tokens per second in the closed loop; also of an invalid pass."""
    text = io.StringIO()
    console = Console(file=text, soft_wrap=True, highlight=False)
    with screen(console, SPEC, budget_s=None) as view:
        view.on(LaunchStarted(launch=LAUNCH, folder=Path()))
        closed = make_pass(k=0, concurrency=1)
        at = replace(make_pass(k=0, concurrency=4, tput=124.0), request_rate=2.5)
        for measured in (closed, at, replace(at, block=1, invalid="a test")):
            view.on(PassDone(launch=LAUNCH, measured=measured))
        view.on(LaunchEnded(launch=LAUNCH, failure=None))
        view.recorded(make_open_records(confirmed=False))
    lines = text.getvalue().splitlines()
    figures = next(line for line in lines if "K = 0 " in line and "(1 block)" in line)
    assert "tok/s at c = 1 (1 block)" in figures
    assert f"{at.mean_e2e_ms:.1f} ms E2E at 2.5 req/s (1 block)" in figures
    assert any(
        "invalid pass K = 0, 2.5 requests/s (at most 4 under way): a test" in x for x in lines
    )
    assert "mean E2E latency at 2.5 requests/s (at most 4 under way)" in lines[-1]


def test_a_latency_is_the_geometric_mean_over_blocks() -> None:
    """As the report has it: the ratio of two is the speedup."""
    passes = [replace(make_pass(k=0, concurrency=4, block=b), request_rate=2.5) for b in (0, 1)]
    one, two = (p.mean_e2e_ms or 0.0 for p in passes)
    measured, (closed, level) = Measurement(passes=tuple(passes)), SPEC.workload.levels
    assert float(level_figure(SPEC, measured, level)) == pytest.approx((one * two) ** 0.5, abs=0.1)
    assert level_figure(SPEC, measured, closed) == ""


def test_show_has_latency_and_goodput(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The column of a rate is in milliseconds, and each level ends with its goodput."""
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
    drafts = {c.name: c for c in SPEC.candidates}
    for record in make_open_records():
        now, trial = drafts.get(record.trial.candidate), record.trial
        if now:
            trial = replace(trial, method=now.method, model=now.model, settings=now.settings)
        ledger.tell(replace(record, trial=trial), 1.0)
    showing.show(SPEC.name, tmp_path, passes=True)
    text = capsys.readouterr().out
    assert "ms E2E 2.5 req/s" in text
    assert "tok/s c=1" in text
    assert "tok/s c=4" not in text
    assert text.count("goodput ") == 2
