"""The MLflow tracker: a study in a real SQLite store, shown twice, and every way to fail."""

import logging
import shutil
import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from autotune.core.recommendation import recommend
from autotune.core.redaction import WITHHELD
from autotune.core.replychecks import check_replies
from autotune.core.trial import Record
from autotune.trackers.mlflow import MlflowTracker, tail
from tests.builders import make_failure, make_record, make_spec
from tests.builders_replies import make_reply
from tests.builders_study import make_study_records

SPEC = make_spec()
RECORDS = make_study_records()
RESULT = recommend(SPEC, RECORDS)
GRAMMAR = (
    "(EngineCore pid=17) ERROR 11-30 04:10:05 [backend_xgrammar.py:201] Failed to advance FSM for "
    "request chatcmpl-1 for tokens 31337. Please file an issue."
)


@dataclass(frozen=True, slots=True)
class Shown:
    """A study that was shown twice, and a client to look at it."""

    client: Any
    runs: list[Any]
    """The runs after the second time."""
    first: int
    """How many runs there were after the first time."""
    home: Path

    @property
    def parent(self) -> Any:  # noqa: ANN401 - mlflow has no types
        """The run of the study."""
        return next(run for run in self.runs if "autotune.study_id" in run.data.tags)

    def child(self, record_id: str) -> Any:  # noqa: ANN401
        """The run of one record."""
        return next(r for r in self.runs if r.data.tags.get("autotune.record_id") == record_id)

    def history(self, run: Any, metric: str) -> list[tuple[int, float]]:  # noqa: ANN401
        """Step and value of one metric."""
        found = self.client.get_metric_history(run.info.run_id, metric)
        return sorted((m.step, m.value) for m in found)


def show(
    uri: str,
    launch: Path,
    records: list[Record],
    *,
    files: tuple[Path, ...] = (),
    experiment: str = "autotune",
) -> MlflowTracker:
    """Show a whole study."""
    tracker = MlflowTracker(uri, experiment, SPEC)
    for record in records:
        tracker.record(record, launch)
    tracker.finish(SPEC, RESULT, files)
    return tracker


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """The demo study in a store of its own, shown and then shown again as a resume would."""
    home = tmp_path_factory.mktemp("mlflow store")
    launch = home / "launch"
    launch.mkdir()
    (launch / "engine.log").write_text(f"{'x' * 70_000}\n{GRAMMAR}\nlast line\n", encoding="utf-8")
    (home / "report.md").write_text("the report", encoding="utf-8")
    uri = f"sqlite:///{home / 'mlflow.db'}"
    counts = []
    for _ in range(2):
        tracker = show(uri, launch, RECORDS, files=(home / "report.md",))
        assert not tracker.off
        assert not tracker.missing
        client = tracker._client
        runs = list(client.search_runs([tracker._experiment_id]))
        counts.append(len(runs))
    yield Shown(client=client, runs=runs, first=counts[0], home=home)
    client._tracking_client.store.engine.dispose()


class TestShown:
    """What is there afterwards."""

    def test_each_record_has_one_run_however_often_it_is_shown(self, shown: Shown) -> None:
        """A resume shows every record again and changes nothing."""
        assert shown.first == len(shown.runs) == len(RECORDS) + 1

    def test_the_parent_is_the_study(self, shown: Shown) -> None:
        """All others are nested below it, and it ended."""
        parent = shown.parent
        assert parent.info.status == "FINISHED"
        others = [r for r in shown.runs if r is not parent]
        assert {r.data.tags["mlflow.parentRunId"] for r in others} == {parent.info.run_id}

    def test_the_curve_has_k_as_its_step(self, shown: Shown) -> None:
        """The UI draws speedup over K from this one metric, each point once."""
        curve = shown.history(shown.parent, "speedup.eagle.c1")
        assert [k for k, _ in curve] == [1, 2, 3, 5]
        assert max(curve, key=lambda point: point[1])[0] == 2

    def test_the_verdict_is_on_the_parent(self, shown: Shown) -> None:
        """As tags to filter by, and as the note that the UI shows."""
        tags = shown.parent.data.tags
        assert tags["verdict"] == "speculate"
        assert tags["mlflow.note.content"].startswith("Speculate with eagle")

    def test_params_say_what_was_tried(self, shown: Shown) -> None:
        """In the words of candidates.yaml."""
        params = shown.child("006/eagle/k2/measurement").data.params
        assert params["candidate"] == params["method"] == "eagle"
        assert params["num_speculative_tokens"] == "2"
        assert params["gpu_memory_utilization"] == "0.4"
        assert params["stage"] == "confirm"

    def test_metrics_say_what_was_measured(self, shown: Shown) -> None:
        """Per level, with the interval of every speedup."""
        metrics = shown.child("006/eagle/k2/measurement").data.metrics
        assert metrics["output_throughput.c1"] == pytest.approx(44, rel=0.05)
        assert metrics["speedup.c4.low"] < metrics["speedup.c4"] < metrics["speedup.c4.high"]
        assert metrics["median_ttft_ms.c4"] > metrics["median_ttft_ms.c1"]
        assert metrics["acceptance_length"] == pytest.approx(2.18, abs=0.02)

    def test_a_searched_record_has_its_speedup(self, shown: Shown) -> None:
        """Over the baseline of the search, with its interval."""
        metrics = shown.child("002/eagle/k2/measurement").data.metrics
        assert metrics["speedup.c1"] == pytest.approx(1.34, abs=0.02)
        assert metrics["speedup.c1.low"] < metrics["speedup.c1"] < metrics["speedup.c1.high"]

    def test_acceptance_has_the_position_as_its_step(self, shown: Shown) -> None:
        """From position 1."""
        run = shown.child("002/eagle/k3/measurement")
        shares = shown.history(run, "acceptance_per_position")
        assert [position for position, _ in shares] == [1, 2, 3]
        assert shares[0][1] == pytest.approx(0.7, abs=0.01)

    def test_a_failure_is_a_failed_run_with_its_cause(self, shown: Shown) -> None:
        """Never a number."""
        run = shown.child("001/ngram/k5/failure")
        assert run.info.status == "FAILED"
        assert run.data.tags["cause"] == "port_taken"
        assert not run.data.metrics

    def test_the_end_of_the_engine_log_is_kept(self, shown: Shown) -> None:
        """Whole lines, no more than fit into a glance."""
        folder = Path(shown.child("006/eagle/k2/measurement").info.artifact_uri)
        assert (folder / "engine.log").read_text(encoding="utf-8").endswith("]\nlast line\n")

    def test_no_token_of_a_reply_reaches_an_artefact(self, shown: Shown) -> None:
        """The line that quotes it only says that there was one."""
        texts = [
            path.read_text(encoding="utf-8", errors="replace")
            for path in (shown.home / "mlartifacts").rglob("*")
            if path.is_file()
        ]
        assert [text for text in texts if WITHHELD in text]
        assert not [text for text in texts if "31337" in text]

    def test_artifacts_lie_beside_the_database(self, shown: Shown) -> None:
        """Not under whatever directory autotune was started in."""
        folder = Path(shown.parent.info.artifact_uri)
        assert folder.is_relative_to(shown.home / "mlartifacts")
        assert (folder / "report.md").read_text(encoding="utf-8") == "the report"


def test_a_run_that_a_killed_process_left_open_is_made_anew(shown: Shown) -> None:
    """Half of a record's metrics is worse than none."""
    tracker = MlflowTracker(f"sqlite:///{shown.home / 'mlflow.db'}", "autotune", SPEC, "other")
    tracker._client.create_run(
        tracker._experiment_id,
        tags={
            "mlflow.parentRunId": tracker._parent,
            "autotune.record_id": "000/baseline/k0/measurement",
        },
    )
    again = MlflowTracker(tracker.uri, "autotune", SPEC, "other")
    again.record(RECORDS[0], shown.home)
    runs = again._search(f"tags.`mlflow.parentRunId` = '{tracker._parent}'")
    assert [run.info.status for run in runs] == ["FINISHED"]


def test_a_resumed_study_has_the_speedups_of_an_uninterrupted_one(shown: Shown) -> None:
    """A new tracker is shown what is known, changes nothing of it, and stands on its baselines."""
    uri = f"sqlite:///{shown.home / 'mlflow.db'}"
    before, after = RECORDS[:4], RECORDS[4:]
    first = MlflowTracker(uri, "autotune", SPEC, "resumed")
    for record in before:
        first.record(record, shown.home)
    second = MlflowTracker(uri, "autotune", SPEC, "resumed")
    for record in (*before, *after):
        second.record(record, shown.home)
    runs = second._search(f"tags.`mlflow.parentRunId` = '{second._parent}'")
    found = {r.data.tags["autotune.record_id"]: r.data.metrics for r in runs}
    assert len(found) == len(runs) == len(RECORDS)
    whole = shown.child("002/eagle/k2/measurement").data.metrics
    assert found["002/eagle/k2/measurement"] == pytest.approx(whole)


def test_a_changed_curve_shows_its_newest_value(shown: Shown) -> None:
    """Metrics cannot be amended; the last one told must win, also when it is smaller."""
    tracker = MlflowTracker(f"sqlite:///{shown.home / 'mlflow.db'}", "autotune", SPEC, "changing")
    for scale in (1.0, 0.9):
        tracker.finish(SPEC, recommend(SPEC, make_study_records(scale=scale)), [])
    assert not tracker.off
    metrics = tracker._client.get_run(tracker._parent).data.metrics
    assert metrics["best.speedup"] == pytest.approx(1.29 * 0.9, abs=0.02)


def test_what_the_replies_tell_is_on_the_parent(shown: Shown) -> None:
    """The rate of matching replies beside the curve, with the same step."""
    tracker = MlflowTracker(f"sqlite:///{shown.home / 'mlflow.db'}", "autotune", SPEC, "replies")
    replies = [make_reply("a b"), make_reply("a c", "eagle", 2, launch="001")]
    tracker.finish(SPEC, RESULT, [], check_replies(replies, 0.0, RESULT.noise.launch))
    assert not tracker.off
    parent = tracker._client.get_run(tracker._parent)
    assert shown.history(parent, "match_rate.search.eagle.c1") == [(2, 0.0)]


def test_artifacts_that_cannot_be_stored_do_not_stop_the_metrics(
    shown: Shown, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning for all of them, and they are remembered."""
    shutil.copy(shown.home / "mlflow.db", tmp_path)
    (tmp_path / "mlartifacts").write_text("in the way", encoding="utf-8")
    (tmp_path / "engine.log").write_text("x", encoding="utf-8")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    tracker = show(uri, tmp_path, RECORDS[:3], experiment="new")
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1
    assert tracker.off
    assert len(tracker.missing) == 4
    assert all(what.endswith("artifacts") for what in tracker.missing)
    runs = tracker._client.search_runs([tracker._experiment_id])
    assert len(runs) == 4
    (tmp_path / "mlartifacts").unlink()
    assert not show(uri, tmp_path, RECORDS[:3], experiment="new").missing
    sent = Path(runs[0].info.artifact_uri).parent.parent
    assert len(list(sent.glob("*/artifacts/engine.log"))) == 3
    tracker._client._tracking_client.store.engine.dispose()


def closed_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.mark.parametrize("store", ["server", "plain path", "file", "no database", "in the way"])
def test_a_store_that_does_not_work_is_told_once(
    store: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The study goes on, and the tracker knows what it missed."""
    (tmp_path / "text").write_text("not a database", encoding="utf-8")
    uri = {
        "server": f"http://me:pw@127.0.0.1:{closed_port()}",
        "plain path": str(tmp_path / "mlruns"),
        "file": f"file:{tmp_path / 'mlruns'}",
        "no database": f"sqlite:///{tmp_path / 'text'}",
        "in the way": f"sqlite:///{tmp_path / 'text' / 'mlflow.db'}",
    }[store]
    tracker = show(uri, tmp_path, RECORDS[:2])
    warnings = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert "the study goes on" in warnings[0]
    assert "pw@" not in warnings[0]
    assert tracker.off
    assert tracker.missing == (
        "study",
        "000/baseline/k0/measurement",
        "001/ngram/k5/failure",
        "result",
    )


def test_a_deleted_experiment_is_explained(
    shown: Shown, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Restore it or take another name: MLflow alone says neither."""
    uri = f"sqlite:///{shown.home / 'mlflow.db'}"
    tracker = MlflowTracker(uri, "gone", SPEC)
    tracker._client.delete_experiment(tracker._experiment_id)
    assert MlflowTracker(uri, "gone", SPEC).off
    assert "mlflow experiments restore" in caplog.text


def test_awkward_names_are_taken(shown: Shown, tmp_path: Path) -> None:
    """Whatever a candidate is called and however long its error is."""
    tracker = MlflowTracker(f"sqlite:///{shown.home / 'mlflow.db'}", "autotune", SPEC, "it's 100%")
    candidate = replace(SPEC.candidates[0], name="../a b=[0]%:")
    spec = make_spec(candidates=[candidate])
    records = [RECORDS[0], make_record(candidate.name, 2, launch_id="1")]
    failure = replace(make_failure(), detail="x" * 20_000)
    for record in (*records, make_record(candidate.name, 3, outcome=failure)):
        tracker.record(record, tmp_path)
    tracker.finish(spec, recommend(spec, records), [])
    assert not tracker.off
    assert not tracker.missing


def test_the_tail_of_a_short_file_is_the_file(tmp_path: Path) -> None:
    """Nothing is cut off that fits."""
    path = tmp_path / "log"
    path.write_text("one\ntwo\n", encoding="utf-8")
    assert tail(path, 100) == "one\ntwo\n"
    assert tail(path, 5) == "two\n"
