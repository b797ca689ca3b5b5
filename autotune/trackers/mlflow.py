"""Shows a study in MLflow: a parent run, and a child run for each record.

Rules: client calls with explicit run ids only, no active run; nothing of MLflow's ever reaches the
study, the first trouble is logged once, then the channel is off and remembers what it missed;
showing a record twice changes nothing, so whatever was missed is sent by the same calls again, in
the order of the study: the speedups of a record stand on the records shown before it.

Tried with 3.17.2: an experiment keeps its artefact root for ever and the default is `mlruns` under
the directory of its first use, so SQLite stores get theirs named: `mlartifacts` beside the
database. A plain path or `file:` as tracking URI is refused. mlflow is imported when a tracker is
made.
"""

import logging
import os
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from autotune.core.diagnosis import explain
from autotune.core.recommendation import Recommendation
from autotune.core.redaction import without_quotes
from autotune.core.replychecks import NO_CHECKS, ReplyChecks
from autotune.core.study import StudySpec
from autotune.core.trial import Failure, Record
from autotune.core.wording import headline
from autotune.trackers import _facts
from autotune.trackers._store import (
    artifact_location,
    check_sqlite,
    quiet,
    resolve,
    troubles,
    without_password,
)

log = logging.getLogger(__name__)

PARENT = "mlflow.parentRunId"
STUDY, RECORD, ARTIFACTS = "autotune.study_id", "autotune.record_id", "autotune.artifacts"
LOG_TAIL = 64 * 1024
LAUNCH_FILES = ("launch.argv.json", "vllm.yaml")
BATCH = {"metrics": 1000, "params": 100, "tags": 100}
QUICK = {
    # MLflow's own defaults make a study wait minutes for a tracking server that is down.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


class MlflowTracker:
    """A Tracker; `study_id` tells apart studies of one name, and defaults to the name."""

    def __init__(self, uri: str, experiment: str, study: StudySpec, study_id: str = "") -> None:
        self.uri = resolve(uri)
        self._experiment = experiment
        self._study = study
        self._study_id = _facts.safe_name(study_id or study.name)
        self._host = platform.node()
        self._client: Any = None
        self._experiment_id = self._parent = ""
        self._known: dict[str, Any] = {}
        self._told: dict[str, Record] = {}
        self._off: dict[str, str] = {}
        self._missing: list[str] = []
        self._attempt("runs", "study", self._open)

    @property
    def off(self) -> bool:
        """Whether something went wrong and at least one channel sends nothing any more."""
        return bool(self._off)

    @property
    def missing(self) -> tuple[str, ...]:
        """What was not sent: keys of records, with `artifacts` where only those are missing."""
        return tuple(self._missing)

    def record(self, record: Record, folder: Path) -> None:
        """Show one record, with the end of the engine's log from the launch's folder.

        Lines that quote what was said are left out of it.
        """
        name = _facts.run_key(record)
        self._attempt("runs", name, lambda: self._show(record))
        self._told[name] = record
        if name in self._known and ARTIFACTS not in self._known[name].data.tags:
            run_id = self._known[name].info.run_id
            self._attempt(
                "artifacts", f"{name} artifacts", lambda: self._send_launch(run_id, record, folder)
            )

    def finish(
        self,
        spec: StudySpec,
        result: Recommendation,
        files: Sequence[Path],
        checks: ReplyChecks = NO_CHECKS,
    ) -> None:
        """Show the answer and its files on the study's run, and end that run."""
        self._attempt("runs", "result", lambda: self._show_result(spec, result, checks))
        if self._parent:
            self._attempt("artifacts", "result artifacts", lambda: self._send_files(files))
            self._attempt(
                "runs",
                "end of study",
                lambda: self._client.set_terminated(self._parent, "FINISHED"),
            )

    def _attempt(self, channel: str, what: str, action: Callable[[], object]) -> None:
        """The one place where MLflow may fail."""
        if channel in self._off or (channel == "artifacts" and "runs" in self._off):
            self._missing.append(what)
            return
        try:
            with quiet():
                action()
        except troubles() as error:
            self._missing.append(what)
            self._off[channel] = without_password(f"{type(error).__name__}: {error}")
            log.warning(
                "MLflow (%s): no more %s are sent, the study goes on; the next `autotune run` "
                "sends what is missing: %s",
                without_password(self.uri),
                channel,
                _facts.cut(self._off[channel].splitlines()[0]),
            )

    def _open(self) -> None:
        for name, value in QUICK.items():
            os.environ.setdefault(name, value)
        check_sqlite(self.uri)
        from mlflow.tracking import MlflowClient  # noqa: PLC0415 - seconds, and telemetry is off now

        with quiet():  # importing mlflow has set its loggers anew
            self._client = MlflowClient(tracking_uri=self.uri)
        self._experiment_id = self._find_experiment()
        self._parent = self._find_parent()
        ours = self._search(f"tags.`{PARENT}` = '{self._parent}'")
        self._known = {run.data.tags[RECORD]: run for run in ours if RECORD in run.data.tags}

    def _find_experiment(self) -> str:
        from mlflow.exceptions import MlflowException  # noqa: PLC0415

        found = self._client.get_experiment_by_name(self._experiment)
        if found is None:
            place = artifact_location(self.uri)
            return str(self._client.create_experiment(self._experiment, artifact_location=place))
        if found.lifecycle_stage != "active":
            raise MlflowException(
                f"experiment {self._experiment!r} was deleted: restore it (`mlflow experiments "
                f"restore -x {found.experiment_id}`) or name another"
            )
        return str(found.experiment_id)

    def _find_parent(self) -> str:
        found = self._search(f"tags.`{STUDY}` = '{self._study_id}'")
        if found:
            run_id = str(found[0].info.run_id)
            self._client.update_run(run_id, status="RUNNING")
            return run_id
        tags = {STUDY: self._study_id, "host": self._host, "mlflow.source.name": "autotune"}
        run = self._client.create_run(self._experiment_id, run_name=self._study.name, tags=tags)
        return str(run.info.run_id)

    def _search(self, filter_string: str) -> list[Any]:
        runs: list[Any] = []
        token: str | None = None
        while True:
            page = self._client.search_runs(
                [self._experiment_id], filter_string, order_by=["start_time"], page_token=token
            )
            runs += page
            token = page.token
            if not token:
                return runs

    def _show(self, record: Record) -> None:
        name = _facts.run_key(record)
        others = [told for key, told in self._told.items() if key != name]
        known = self._known.pop(name, None)
        if known is not None and known.info.status != "RUNNING":
            self._known[name] = known
            return
        if known is not None:  # a process died half-way through; metrics cannot be amended
            self._client.delete_run(known.info.run_id)
        now = time.time()
        run = self._client.create_run(
            self._experiment_id,
            start_time=int(1000 * (now - _seconds(record))),
            run_name=_facts.run_name(record),
            tags={PARENT: self._parent, **_facts.tags(record, self._host)},
        )
        run_id = run.info.run_id
        self._send(
            run_id,
            params=_facts.params(self._study, record),
            metrics=_facts.metrics(self._study, record, others),
            timestamp=int(1000 * now),
        )
        failed = isinstance(record.outcome, Failure)
        self._client.set_terminated(run_id, "FAILED" if failed else "FINISHED")
        self._known[name] = self._client.get_run(run_id)

    def _show_result(self, spec: StudySpec, result: Recommendation, checks: ReplyChecks) -> None:
        tags = {
            "verdict": result.verdict.value,
            "basis": result.basis.value,
            "schedule": _facts.schedule_tag(result),
            "mlflow.note.content": _facts.cut(headline(spec, result)),
            **_facts.diagnosis_tags(explain(spec, list(self._told.values()), result, checks)),
        }
        news = self._news([*_facts.result_metrics(result), *_facts.reply_metrics(checks)])
        self._send(self._parent, metrics=news, tags=tags, timestamp=int(1000 * time.time()))

    def _news(self, values: Sequence[_facts.Value]) -> list[_facts.Value]:
        """The points that the study's run does not show yet: metrics cannot be amended."""
        shown: dict[tuple[str, int], float] = {}
        for name in self._client.get_run(self._parent).data.metrics:
            history = self._client.get_metric_history(self._parent, name)
            for point in sorted(history, key=lambda m: m.timestamp):
                shown[name, point.step] = point.value
        return [v for v in values if shown.get((v.name, v.step)) != v.value]

    def _send(
        self,
        run_id: str,
        *,
        timestamp: int,
        params: dict[str, str] | None = None,
        metrics: Iterable[_facts.Value] = (),
        tags: dict[str, str] | None = None,
    ) -> None:
        from mlflow.entities import Metric, Param, RunTag  # noqa: PLC0415

        entities: dict[str, list[Any]] = {
            "params": [Param(k, v) for k, v in (params or {}).items()],
            "metrics": [Metric(m.name, m.value, timestamp, m.step) for m in metrics],
            "tags": [RunTag(k, v) for k, v in (tags or {}).items()],
        }
        for kind, items in entities.items():
            for start in range(0, len(items), BATCH[kind]):
                part = {kind: items[start : start + BATCH[kind]]}
                self._client.log_batch(run_id, synchronous=True, **part)

    def _send_launch(self, run_id: str, record: Record, folder: Path) -> None:
        if isinstance(record.outcome, Failure):
            self._client.log_text(run_id, record.outcome.detail, "failure.txt")
        engine_log = folder / "engine.log"
        if engine_log.is_file():
            shown = without_quotes(tail(engine_log, LOG_TAIL))
            self._client.log_text(run_id, shown, "engine.log")
        for name in LAUNCH_FILES:
            if (folder / name).is_file():
                self._client.log_artifact(run_id, str(folder / name))
        self._client.set_tag(run_id, ARTIFACTS, "sent")

    def _send_files(self, files: Sequence[Path]) -> None:
        for path in files:
            self._client.log_artifact(self._parent, str(path))


def tail(path: Path, size: int) -> str:
    """The end of a text file, from the start of a line."""
    with path.open("rb") as file:
        length = file.seek(0, os.SEEK_END)
        file.seek(max(0, length - size))
        text = file.read().decode(errors="replace")
    return text if length <= size else text.partition("\n")[2]


def _seconds(record: Record) -> float:
    boot = record.facts.boot_s if record.facts else 0.0
    passes = record.measurement.passes if record.measurement else ()
    return boot + sum(p.duration_s for p in passes)
