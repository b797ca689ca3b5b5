"""What the screen draws of events, and that foreign text is never taken for markup."""

import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from autotune.cli.progress import Screen, screen
from autotune.cli.results import exit_code
from autotune.core.recommendation import recommend
from autotune.core.trial import BASELINE, Cause, Failure, Launch, Stage
from autotune.tuning.events import LaunchEnded, LaunchStarted, PassDone, ServerReady
from tests.builders import make_pass, make_record, make_spec
from tests.builders_study import make_study_records

LAUNCH = Launch(
    stage=Stage.BASELINE,
    candidate=None,
    num_speculative_tokens=(0,),
    gpu_memory_utilization=0.4,
    max_blocks=3,
    why="the denominator [/of] every speedup",
)
BRACKETS = "OSError: [/models/x] at [enforce fail at alloc_cpu.cpp:124] (see [a])"


@pytest.fixture
def drawn() -> Iterator[tuple[Screen, io.StringIO]]:
    """A screen on a file, as in CI."""
    text = io.StringIO()
    console = Console(file=text, soft_wrap=True, highlight=False)
    with screen(console, make_spec(), budget_s=None) as view:
        yield view, text


def test_a_failure_is_shown_to_the_letter(drawn: tuple[Screen, io.StringIO]) -> None:
    """Brackets in an engine's message are text: none is swallowed, none ends the study."""
    view, text = drawn
    failure = Failure(cause=Cause.CRASHED_START, detail=BRACKETS, remedy="look at [/tmp]")
    view.on(LaunchStarted(launch=LAUNCH, folder=Path()))
    view.on(LaunchEnded(launch=LAUNCH, failure=failure))
    assert f"crashed_start: {BRACKETS}" in text.getvalue()
    assert "remedy: look at [/tmp]" in text.getvalue()
    assert "the denominator [/of] every speedup" in text.getvalue()


def test_an_invalid_pass_is_shown_to_the_letter(drawn: tuple[Screen, io.StringIO]) -> None:
    """The reason of an invalid pass may quote the server."""
    view, text = drawn
    view.on(LaunchStarted(launch=LAUNCH, folder=Path()))
    view.on(ServerReady(launch=LAUNCH, boot_s=12.3))
    view.on(PassDone(launch=LAUNCH, measured=make_pass(k=0, concurrency=1, invalid=BRACKETS)))
    assert "ready after 12 s" in text.getvalue()
    assert BRACKETS in text.getvalue()


def test_a_launch_ends_with_its_figures(drawn: tuple[Screen, io.StringIO]) -> None:
    """One line for each K, all concurrency levels in it, the acceptance length at its end."""
    view, text = drawn
    view.on(LaunchStarted(launch=LAUNCH, folder=Path()))
    for concurrency in (1, 4):
        measured = make_pass(k=0, concurrency=concurrency, tput=30.0 * concurrency)
        view.on(PassDone(launch=LAUNCH, measured=measured))
    view.on(LaunchEnded(launch=LAUNCH, failure=None))
    line = next(x for x in text.getvalue().splitlines() if "K = 0" in x)
    assert line.count("tok/s at c =") == 2


def test_the_best_so_far_has_its_interval(drawn: tuple[Screen, io.StringIO]) -> None:
    """After each launch: elapsed, time left, and the best with interval and conditions."""
    view, text = drawn
    view.recorded(make_study_records(confirmed=False))
    assert "best so far eagle at K = " in text.getvalue()
    assert re.search(
        r"x \[\d.\d\d, \d.\d\d\] weighted over concurrency 1 and 4, temperature 0, seed 0\n",
        text.getvalue(),
    )


def test_exit_codes_follow_the_answer() -> None:
    """0 confirmed, 4 undecided, 5 nothing could be measured, 6 something is left to do."""
    spec = make_spec()
    confirmed = recommend(spec, make_study_records())
    searched = recommend(spec, make_study_records(confirmed=False))
    slower = recommend(spec, make_study_records(scale=0.5))
    nothing = recommend(spec, [make_record(BASELINE, 0, Stage.BASELINE)])
    codes = [exit_code(result, complete=True) for result in (confirmed, searched, slower, nothing)]
    assert codes == [0, 4, 3, 5]
    assert [exit_code(r, complete=False) for r in (confirmed, nothing)] == [6, 6]
