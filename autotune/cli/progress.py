"""What the user sees while a study runs: launches, passes, elapsed, time left, the best so far.

Rules: on a terminal one line at the bottom moves and the rest scrolls; elsewhere (CI, a log file)
plain lines only; a throughput is the report's, the geometric mean over blocks. Nothing here decides
anything.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from autotune.core.counting import counted
from autotune.core.estimate import estimate
from autotune.core.finalists import finalists
from autotune.core.objective import compared_at, typical
from autotune.core.plan import pending
from autotune.core.space import with_variants
from autotune.core.study import StudySpec
from autotune.core.trial import Failure, Launch, Measurement, Pass, Record
from autotune.core.wording import conditions, level_words
from autotune.core.workload import Level
from autotune.tuning.events import (
    CandidateBeaten,
    Event,
    KStopped,
    LaunchEnded,
    LaunchStarted,
    PassDone,
    ServerReady,
)


def level_figure(spec: StudySpec, measured: Measurement, level: Level) -> str:
    """What is compared at a level, without its unit; empty without a valid block."""
    passes = measured.at(level.concurrency)
    found = typical(compared_at(spec, level), spec.workload.slo, passes)
    return f"{found:.1f}" if found is not None else ""


@dataclass(slots=True)
class Screen:
    """Draws the events of a study."""

    console: Console
    spec: StudySpec
    progress: Progress
    budget_s: float | None
    started: float = field(default_factory=time.monotonic)
    launches: int = 0
    passes: list[Pass] = field(default_factory=list)

    def on(self, event: Event) -> None:
        """Draw one event."""
        match event:
            case LaunchStarted(launch=launch):
                self.launches += 1
                self.passes = []
                self._say(f"[bold]launch {self.launches}[/] {launch.name}: {escape(launch.why)}")
                self._status(f"starting {launch.name}")
            case ServerReady(launch=launch, boot_s=boot_s):
                self._say(f"  ready after {boot_s:.0f} s")
                self._status(f"warming up {launch.name}")
            case PassDone(launch=launch, measured=measured):
                self._passed(launch, measured)
            case KStopped(stopped=stopped):
                self._say(
                    f"  K = {stopped.num_speculative_tokens} stops at concurrency "
                    f"{stopped.concurrency}: {escape(stopped.why)}"
                )
            case CandidateBeaten(launch=launch, why=why):
                self._say(f"  {launch.name} stops: {escape(why)}")
            case LaunchEnded(launch=launch, failure=failure):
                self._ended(launch, failure)

    def recorded(self, records: Sequence[Record]) -> None:
        """Show the best so far and the time left."""
        ranked = finalists(with_variants(self.spec, records), records)
        best = ranked[0] if ranked else None
        left = self._left(records)
        text = f"elapsed {_clock(time.monotonic() - self.started)}, about {_clock(left)} left"
        if best:
            text += (
                f"; best so far {best.candidate} at K = {best.num_speculative_tokens}: "
                f"{best.speedup.show()} {conditions(self.spec)}"
            )
        self._say(f"  [dim]{text}[/]")

    def _left(self, records: Sequence[Record]) -> float:
        launches = list(pending(self.spec, records))
        ahead = estimate(self.spec, records, launches).total_s
        if self.budget_s is None:
            return ahead
        return max(min(ahead, self.budget_s - (time.monotonic() - self.started)), 0.0)

    def _passed(self, launch: Launch, measured: Pass) -> None:
        self.passes.append(measured)
        self._status(
            f"{launch.name} K = {measured.num_speculative_tokens}, {level_words(measured)}, "
            f"block {measured.block + 1}: {_figure(self.spec, measured)}"
        )
        if measured.invalid:
            self._say(
                f"  [yellow]invalid pass[/] K = {measured.num_speculative_tokens}, "
                f"{level_words(measured)}: {escape(measured.invalid)}"
            )

    def _ended(self, launch: Launch, failure: Failure | None) -> None:
        for line in _table(self.spec, launch, self.passes):
            self._say(f"  {line}")
        if failure:
            self._say(f"  [red]{failure.cause.value}[/]: {escape(failure.detail)}")
            self._say(f"  remedy: {escape(failure.remedy)}")

    def _say(self, text: str) -> None:
        self.console.print(text)

    def _status(self, text: str) -> None:
        for task in self.progress.task_ids:
            self.progress.update(task, description=text)


@contextmanager
def screen(console: Console, spec: StudySpec, budget_s: float | None) -> Iterator[Screen]:
    """A screen for one study; its moving line is gone when the block ends."""
    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with progress:
        progress.add_task("preparing", total=None)
        yield Screen(console, spec, progress, budget_s)


def _figure(spec: StudySpec, measured: Pass) -> str:
    figure = compared_at(spec, spec.workload.level(measured.concurrency))
    found = typical(figure, spec.workload.slo, [measured])
    return "no reply" if found is None else figure.shown(found)


def _table(spec: StudySpec, launch: Launch, passes: Sequence[Pass]) -> Iterator[str]:
    levels = spec.workload.levels
    for k in launch.num_speculative_tokens:
        mine = Measurement(passes=tuple(p for p in passes if p.num_speculative_tokens == k))
        cells = [
            f"{found:>7} {_unit(spec, level)} ({counted(len(mine.at(level.concurrency)), 'block')})"
            for level in sorted(levels, key=lambda level: level.concurrency)
            if (found := level_figure(spec, mine, level))
        ]
        if cells:
            yield f"K = {k:<2} {'  '.join(cells)}{_acceptance(mine)}"


def _unit(spec: StudySpec, level: Level) -> str:
    unit = compared_at(spec, level).unit
    if level.request_rate is None:
        return f"{unit} at c = {level.concurrency}"
    return f"{unit} at {level.request_rate:g} req/s"


def _acceptance(measured: Measurement) -> str:
    if measured.spec is None:
        return ""
    profile = measured.spec.profile
    return f"  acceptance length {profile.length:.2f}" if profile else "  nothing drafted"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
