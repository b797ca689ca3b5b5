"""`show`, `report`, `export`, `ui`, `clean`: what works on a finished or interrupted study.

Rule: only what is stored is asked; speedups and throughputs are those of the report.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from autotune.cli.progress import level_figure
from autotune.cli.results import announce, provenance, write_results
from autotune.core.host import HostLoad
from autotune.core.objective import compared_at
from autotune.core.plan import pending
from autotune.core.proportion import CONFIDENCE
from autotune.core.recommendation import Recommendation, recommend
from autotune.core.space import with_variants
from autotune.core.statistics import Interval
from autotune.core.study import StudySpec
from autotune.core.trial import Failure, Pass, Record, Stage
from autotune.core.wording import conditions
from autotune.core.workload import Level
from autotune.errors import UserError
from autotune.ports import Exporter, find
from autotune.tuning import journal, saved
from autotune.tuning.ledger import read_records
from autotune.tuning.lock import held
from autotune.tuning.paths import StudyPaths
from autotune.tuning.search import propose
from autotune.tuning.tuner import usable

console = Console(soft_wrap=True, highlight=False, width=None if sys.stdout.isatty() else 160)
"""Into a file or a pipe tables are as wide as their rows, not as a terminal that is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A stored study with its records."""

    study: saved.SavedStudy
    paths: StudyPaths
    records: list[Record]
    told: frozenset[str]
    """Launches that have a record, usable or not."""

    @property
    def spec(self) -> StudySpec:
        """What was compared: of a candidate with ranges the variants that were launched."""
        return with_variants(self.study.spec, self.records)

    @property
    def result(self) -> Recommendation:
        """The answer that the records allow."""
        return recommend(self.spec, self.records)


def show(name: str, root: Path | None, *, passes: bool) -> None:
    """Print the trials, and the passes if asked."""
    opened = open_study(name, root)
    under_way = list(_under_way(opened)) if passes else []
    if not opened.records and not under_way:
        raise nothing_measured(opened)
    if opened.records:
        console.print(_trial_table(opened))
    if passes:
        console.print(_pass_table([*_recorded(opened), *under_way]))
        for launch_id in dict.fromkeys(row.launch_id for row in under_way):
            console.print(f"launch {launch_id} runs or was interrupted: it has no trial yet")
    if not opened.records:
        return
    for line in _failures(opened.result):
        console.print(line)
    left = list(pending(opened.study.spec, opened.records, propose))
    announce(console, opened.spec, opened.result, opened.paths, left)


def report(name: str, root: Path | None) -> None:
    """Write the report again."""
    opened = _measured(name, root)
    result = opened.result
    about = provenance(opened.study, opened.paths, opened.records, result)
    written = write_results(opened.spec, opened.paths, opened.records, result, about)
    for file in written.files:
        console.print(str(file))
    for remark in written.checks.remarks:
        console.print(f"  {escape(remark)}")


def export(name: str, root: Path | None, kind: str) -> None:
    """Print one export."""
    opened = _measured(name, root)
    exporter: Exporter = find("exporters", kind.replace("-", "_"))
    result = opened.result
    about = provenance(opened.study, opened.paths, opened.records, result)
    text = exporter.render(opened.spec, result, about)
    if not text:
        raise UserError(f"the answer of {name!r} has no {exporter.filename}: see `autotune show`")
    typer.echo(text, nl=False)


def ui(root: Path | None, port: int) -> None:
    """Run MLflow's own server on the default database."""
    base = root or saved.find_root(Path.cwd())
    uri = f"sqlite:///{base / 'studies' / 'mlflow.db'}"
    argv = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", uri]
    console.print(f"MLflow UI of {uri}: http://127.0.0.1:{port} (end with Ctrl-C)")
    done = subprocess.run([*argv, "--host", "127.0.0.1", "--port", str(port)], check=False)
    raise typer.Exit(done.returncode)


def clean(name: str, root: Path | None, *, yes: bool) -> None:
    """Delete what a study has made; what ships with it stays."""
    paths = study_paths(name, root)
    saved.load(paths)
    made = [paths.launches, paths.database, paths.folder / "spec.json", paths.reply_key]
    made += [paths.verification.folder, paths.report]
    made = [path for path in made if path.exists()]
    for path in made:
        console.print(f"{path}  ({_size(path) >> 10} KiB)")
    if not yes and not typer.confirm("delete these?"):
        raise typer.Exit(1)
    with held(paths.lock):
        for path in made:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    paths.lock.unlink(missing_ok=True)


def open_study(name: str, root: Path | None) -> Opened:
    """A stored study, with the records that may be compared with what it would measure now."""
    paths = study_paths(name, root)
    study = saved.load(paths)
    stored = read_records(study.storage, name)
    return Opened(
        study=study,
        paths=paths,
        records=usable(stored, study.fingerprint, study.spec),
        told=frozenset(record.launch_id for record in stored),
    )


def _measured(name: str, root: Path | None) -> Opened:
    opened = open_study(name, root)
    if not opened.records:
        raise nothing_measured(opened)
    return opened


def nothing_measured(opened: Opened) -> UserError:
    """The message for a study that has no record yet."""
    study = opened.study
    return UserError(f"study {study.spec.name!r} has no measurement yet: autotune run {study.file}")


def study_paths(name: str, root: Path | None) -> StudyPaths:
    """Where a study lies: below the root given, else below the nearest one upwards."""
    return StudyPaths(root=(root or saved.find_root(Path.cwd())).resolve(), name=name)


def _trial_table(opened: Opened) -> Table:
    spec = opened.study.spec
    title = f"study {spec.name}; speedups {conditions(spec)}, {CONFIDENCE:.0%} intervals"
    table = Table("launch", "stage", "candidate", "K", title=escape(title))
    for level in spec.workload.levels:
        table.add_column(_column(spec, level), justify="right")
    table.add_column("acceptance length", justify="right")
    table.add_column("overall speedup", justify="right")
    speedups = _speedups(opened.result)
    for record in opened.records:
        table.add_row(*_trial_row(opened, record, speedups))
    return table


def _column(spec: StudySpec, level: Level) -> str:
    unit = compared_at(spec, level).unit
    if level.request_rate is None:
        return f"{unit} c={level.concurrency}"
    return f"{unit} {level.request_rate:g} req/s"


def _speedups(result: Recommendation) -> dict[tuple[bool, str, int], Interval]:
    """(confirmation?, candidate, K) to the overall speedup, as the curves have it."""
    return {
        (confirm, curve.candidate, point.num_speculative_tokens): point.speedup
        for confirm, found in ((False, result.search), (True, result.confirmation))
        for curve in found
        if curve.concurrency is None
        for point in curve.points
    }


def _trial_row(
    opened: Opened, record: Record, speedups: Mapping[tuple[bool, str, int], Interval]
) -> list[str]:
    trial, levels = record.trial, opened.study.spec.workload.levels
    k = trial.num_speculative_tokens
    head = [record.launch_id, trial.stage.value, trial.candidate, str(k)]
    if isinstance(record.outcome, Failure):
        return [*head, "[red]failed[/]", *[""] * (len(levels) + 1)]
    profile = record.outcome.spec.profile if record.outcome.spec else None
    speedup = speedups.get((trial.stage is Stage.CONFIRM, trial.candidate, k))
    return [
        *head,
        *(level_figure(opened.study.spec, record.outcome, level) for level in levels),
        f"{profile.length:.2f}" if profile else "",
        (speedup.show() if speedup else "") + (" pruned" if record.outcome.pruned else ""),
    ]


def _failures(result: Recommendation) -> Iterator[str]:
    """One line for each launch that failed, with its cause and what to do about it."""
    failed: dict[str, list[tuple[Record, Failure]]] = {}
    for record, failure in result.failures:
        failed.setdefault(record.launch_id, []).append((record, failure))
    for launch_id, mine in failed.items():
        ks = ", ".join(str(record.trial.num_speculative_tokens) for record, _ in mine)
        record, failure = mine[-1]
        told = escape(f"{failure.cause.value}: {failure.detail}; {failure.remedy}")
        yield f"launch {launch_id}, {record.trial.candidate} at K = {ks}: {told}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _PassRow:
    """A pass, and the launch it belongs to."""

    launch_id: str
    candidate: str
    measured: Pass


def _recorded(opened: Opened) -> Iterator[_PassRow]:
    for r in opened.records:
        for p in r.measurement.passes if r.measurement else ():
            yield _PassRow(launch_id=r.launch_id, candidate=r.trial.candidate, measured=p)


def _under_way(opened: Opened) -> Iterator[_PassRow]:
    """The passes of launches without a record: of one that runs, or that a kill has ended."""
    for folder in sorted(opened.paths.launches.glob("[0-9]*")):
        launch = None if folder.name in opened.told else journal.launch_of(folder)
        if launch is not None and not (folder / journal.TOLD_FILE).exists():
            for p in journal.passes(folder):
                yield _PassRow(launch_id=folder.name, candidate=launch.name, measured=p)


_HOST = {
    "load, steal, MHz": (("load_1m", "{:.1f}"), ("steal", "{:.0%}"), ("cpu_mhz", "{:.0f}")),
    "GPU MHz, °C, W": (("gpu_mhz", "{:.0f}"), ("gpu_celsius", "{:.0f}"), ("gpu_watts", "{:.0f}")),
}
"""What the machine gave during a pass: columns, and the fields of HostLoad in each."""


def _pass_table(rows: Sequence[_PassRow]) -> Table:
    times = ("TTFT ms", "TPOT ms", "tokens/step", "step ms")
    names = ("launch", "candidate", "K", "c", "block", "tok/s", *times)
    host = [name for name in _HOST if any(_host_cell(row.measured.host, name) for row in rows)]
    cache = ["KV peak"] if any(row.measured.kv_cache_peak is not None for row in rows) else []
    table = Table(*names, *cache, *host, "invalid", title="passes")
    for row in rows:
        p = row.measured
        table.add_row(
            row.launch_id,
            row.candidate,
            str(p.num_speculative_tokens),
            str(p.concurrency),
            str(p.block),
            f"{p.output_throughput:.1f}",
            f"{p.latencies.median_ttft_ms:.0f}" if p.latencies else "",
            f"{p.latencies.median_tpot_ms:.1f}" if p.latencies else "",
            f"{p.steps.tokens_per_step:.2f}" if p.steps else "",
            f"{p.steps.step_s * 1e3:.1f}" if p.steps else "",
            *(_share(p.kv_cache_peak) for _ in cache),
            *(_host_cell(p.host, name) for name in host),
            escape(p.invalid or ""),
        )
    return table


def _share(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _host_cell(host: HostLoad | None, column: str) -> str:
    """`1.9, 3%, 2450`, a dash for what the machine did not tell; empty where it told nothing."""
    known = [(getattr(host, name, None), form) for name, form in _HOST[column]]
    if all(value is None for value, _ in known):
        return ""
    return ", ".join("-" if value is None else form.format(value) for value, form in known)


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
