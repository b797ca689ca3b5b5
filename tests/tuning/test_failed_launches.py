"""What a study does after a failure: once more, with less, without the candidate, or not at all."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy

from autotune.core.recommendation import Basis, recommend
from autotune.core.study import Search
from autotune.core.trial import Cause, Failure, Record, Stage
from autotune.errors import StudyStoppedError
from autotune.tuning.events import LaunchEnded
from autotune.tuning.ledger import Ledger
from autotune.tuning.runner import run_launch, serve_order
from autotune.tuning.tuner import to_retry, tune, usable
from tests.builders import GMU, make_facts, make_failure, make_record, make_spec, make_workload
from tests.tuning.fakes import (
    FINGERPRINT,
    Call,
    World,
    crash,
    make_launch,
    make_ledger,
    make_rig,
    run_one,
    write_config,
)

SPEC = make_spec(
    workload=make_workload(prompts=64),
    search=Search(gpu_memory_utilization=(GMU,), max_blocks=4),
)
STOPPING = [
    Cause.DISK_FULL,
    Cause.LAUNCHER_BROKEN,
    Cause.PROXY_ANSWERED,
    Cause.WEDGED,
    Cause.ENGINE_TOO_OLD,
]


def starts(world: World) -> list[str]:
    """The candidates that were launched, in order."""
    return [entry.removeprefix("start ") for entry in world.log if entry.startswith("start")]


def at_start(candidate: str, cause: Cause, times: int = 99) -> Callable[[str], None]:
    """Trouble for the first launches of a candidate."""
    seen: list[str] = []

    def trouble(name: str) -> None:
        seen.append(name)
        if name == candidate and seen.count(name) <= times:
            raise crash("no more", cause)

    return trouble


def go_on(world: World, root: Path) -> list[Record]:
    """What `autotune run` does with what it finds; gives all that is known."""
    rig = make_rig(world, SPEC, root)
    ledger = make_ledger(rig)
    forgotten = to_retry(ledger.records(), everything=False)
    for _ in tune(rig, ledger, write_config, budget_s=None, forgotten=forgotten):
        pass
    return usable(ledger.records(), FINGERPRINT, SPEC, forgotten)


@pytest.mark.parametrize("cause", [Cause.MEMORY_OCCUPIED, Cause.COMPILE_CACHE, Cause.TRANSIENT])
def test_what_says_nothing_is_tried_once_more(tmp_path: Path, cause: Cause) -> None:
    """One launch more, and the candidate is measured as ever."""
    world = World(start_trouble=at_start("eagle", cause, times=1))
    records = go_on(world, tmp_path)
    assert starts(world)[:4] == ["baseline", "ngram", "eagle", "eagle"]
    assert recommend(SPEC, records).basis is Basis.CONFIRMED


@pytest.mark.parametrize(
    "cause", [Cause.VOCABULARY_MISMATCH, Cause.WEIGHTS_MISMATCH, Cause.MISSING_WEIGHTS]
)
def test_a_candidate_that_no_k_can_save_costs_one_launch(tmp_path: Path, cause: Cause) -> None:
    """The others are measured, and the answer is theirs."""
    world = World(start_trouble=at_start("eagle", cause))
    records = go_on(world, tmp_path)
    assert starts(world).count("eagle") == 1
    answer = recommend(SPEC, records)
    assert answer.basis is Basis.CONFIRMED
    assert answer.finalist
    assert answer.finalist.candidate == "draft-4l"


def test_memory_is_asked_for_with_a_smaller_k(tmp_path: Path) -> None:
    """Graphs that do not fit at K_max leave the other K untouched."""
    world = World(start_trouble=at_start("eagle", Cause.OUT_OF_MEMORY_CAPTURE, times=1))
    records = go_on(world, tmp_path)
    screened = [r for r in records if r.trial.candidate == "eagle" and r.trial.stage == "screen"]
    failed = [r for r in screened if isinstance(r.outcome, Failure)]
    assert [r.trial.num_speculative_tokens for r in failed] == [5]
    assert {r.trial.num_speculative_tokens for r in screened if r.measurement} >= {1, 2, 3}


@pytest.mark.parametrize("cause", STOPPING)
def test_what_no_launch_escapes_stops_the_study(tmp_path: Path, cause: Cause) -> None:
    """Not one launch more; what was measured is kept, and the next run goes on from there."""
    world = World(start_trouble=at_start("draft-4l", cause))
    with pytest.raises(StudyStoppedError) as stopped:
        go_on(world, tmp_path)
    assert stopped.value.failure.cause is cause
    assert starts(world) == ["baseline", "ngram", "eagle", "draft-4l"]
    mended = World()
    records = go_on(mended, tmp_path)
    assert starts(mended)[:2] == ["draft-4l", "baseline"]
    assert recommend(SPEC, records).basis is Basis.CONFIRMED


def test_the_stop_is_one_failed_trial(tmp_path: Path) -> None:
    """Shown where trials are shown, without a word about the K that were not tried."""
    world = World(start_trouble=at_start("eagle", Cause.DISK_FULL))
    rig = make_rig(world, SPEC, tmp_path)
    ledger = make_ledger(rig)
    with pytest.raises(StudyStoppedError):
        list(tune(rig, ledger, write_config, budget_s=None))
    failed = [r for r in ledger.records() if isinstance(r.outcome, Failure)]
    assert [(r.trial.candidate, r.trial.num_speculative_tokens) for r in failed] == [("eagle", 5)]


def test_a_wedge_after_the_last_pass_takes_nothing_away(tmp_path: Path) -> None:
    """Everything was measured: the records are whole, and the study stops all the same."""

    def wedged(candidate: str) -> None:
        if candidate == "eagle":
            raise crash("processes 4711 survived SIGKILL", Cause.WEDGED)

    world = World(end_trouble=wedged)
    rig = make_rig(world, SPEC, tmp_path)
    ledger = make_ledger(rig)
    with pytest.raises(StudyStoppedError, match="4711"):
        list(tune(rig, ledger, write_config, budget_s=None))
    measured = [r for r in ledger.records() if r.trial.candidate == "eagle"]
    assert [r.trial.num_speculative_tokens for r in measured] == [0, 1, 2, 3, 5]
    assert all(r.measurement and not r.measurement.cut_short for r in measured)


def test_a_wedge_in_mid_launch_keeps_the_passes_so_far(tmp_path: Path) -> None:
    """A crash that leaves a process behind: the other K have what they had."""

    def trouble(call: Call) -> None:
        if call.number == 7:
            raise crash("processes 4711 survived SIGKILL", Cause.WEDGED)

    world = World(trouble=trouble)
    records: list[Record] = []
    rig = make_rig(world, SPEC, tmp_path)
    folder = rig.paths.next_launch()
    launch = make_launch(SPEC)
    with pytest.raises(StudyStoppedError):
        records.extend(run_launch(launch, rig, write_config(launch, folder), folder))
    ended = world.events[-1]
    assert isinstance(ended, LaunchEnded)
    assert ended.failure
    assert ended.failure.cause is Cause.WEDGED


def test_results_that_cannot_be_written_stop_the_study(tmp_path: Path) -> None:
    """A disk that fills up under a launch is a cause, not a traceback."""
    world = World()
    rig = make_rig(world, SPEC, tmp_path)
    folder = rig.paths.next_launch()
    (folder / "passes.jsonl").symlink_to("/dev/full")
    launch = make_launch(SPEC)
    with pytest.raises(StudyStoppedError) as stopped:
        list(run_launch(launch, rig, write_config(launch, folder), folder))
    assert stopped.value.failure.cause is Cause.DISK_FULL
    assert "No space left on device" in stopped.value.failure.detail
    assert world.servers == 0


def test_any_other_error_of_the_system_is_a_bug(tmp_path: Path) -> None:
    """It keeps its traceback."""
    rig = make_rig(World(), SPEC, tmp_path)
    folder = rig.paths.next_launch()
    (folder / "passes.jsonl").mkdir()
    launch = make_launch(SPEC)
    with pytest.raises(IsADirectoryError):
        list(run_launch(launch, rig, write_config(launch, folder), folder))


def test_a_database_that_cannot_grow_stops_the_study(tmp_path: Path) -> None:
    """SQLite has its own word for a full disk."""
    rig = make_rig(World(), SPEC, tmp_path)
    ledger = make_ledger(rig)
    _no_room(ledger)
    with pytest.raises(StudyStoppedError) as stopped:
        list(tune(rig, ledger, write_config, budget_s=None))
    assert stopped.value.failure.cause is Cause.DISK_FULL
    assert "database" in stopped.value.failure.detail


def _no_room(ledger: Ledger) -> None:
    """Let the database have no page more than it has."""
    engine = ledger._storage.engine
    sqlalchemy.event.listen(
        engine, "connect", lambda raw, _: raw.execute("PRAGMA max_page_count = 1")
    )
    engine.dispose()


def test_a_launcher_that_breaks_between_two_runs_is_no_fault_of_candidates(
    tmp_path: Path,
) -> None:
    """Every launch of this run ends at once in the same way: two are enough to see it."""
    world = World(trouble=_interrupted_at("eagle"))
    with pytest.raises(KeyboardInterrupt):
        go_on(world, tmp_path)

    def broken(candidate: str) -> None:
        error = crash("ImportError: libcudart.so.13", Cause.CRASHED_START)
        error.after_s = 0.3
        raise error

    world = World(start_trouble=broken)
    with pytest.raises(StudyStoppedError) as stopped:
        go_on(world, tmp_path)
    assert stopped.value.failure.cause is Cause.LAUNCHER_BROKEN
    assert "libcudart" in stopped.value.failure.detail
    assert starts(world) == ["eagle", "draft-4l"]


def _interrupted_at(candidate: str) -> Callable[[Call], None]:
    def trouble(call: Call) -> None:
        if call.candidate == candidate:
            raise KeyboardInterrupt

    return trouble


@pytest.mark.parametrize(
    ("cause", "fresh"), [(Cause.COMPILE_CACHE, True), (Cause.PORT_TAKEN, False)]
)
def test_a_spoilt_cache_is_not_used_again(tmp_path: Path, cause: Cause, *, fresh: bool) -> None:
    """From then on the candidate's launches have a cache of their own; others share it."""
    failed = make_record("eagle", 5, outcome=make_failure(cause))
    rig = make_rig(World(), SPEC, tmp_path)
    run_one(rig, make_launch(SPEC, "eagle"), [failed])
    run_one(rig, make_launch(SPEC, "ngram"), [failed])
    assert isinstance(rig.engine, World)
    assert [order.fresh_cache for order in rig.engine.orders] == [fresh, False]


@pytest.mark.parametrize(
    ("boot_s", "allowed"), [(None, 900.0), (35.0, 300.0), (120.0, 600.0), (400.0, 900.0)]
)
def test_a_later_start_is_given_less_time(boot_s: float | None, allowed: float) -> None:
    """Five times what the candidate took before, five minutes at least, never more than asked."""
    facts = make_facts(boot_s=boot_s) if boot_s else None
    seen = replace(make_record("eagle", 2), facts=facts)
    order = serve_order(SPEC, make_launch(SPEC, "eagle"), Path("f"), Path("d"), [seen])
    assert order.start_timeout_s == allowed
    other = serve_order(SPEC, make_launch(SPEC, "ngram"), Path("f"), Path("d"), [seen])
    assert other.start_timeout_s == 900.0


def test_a_crash_of_the_next_k_is_a_reason(tmp_path: Path) -> None:
    """The answer stands, and says how close to the edge it is."""

    def trouble(call: Call) -> None:
        if (call.candidate, call.k) == ("eagle", 3) and call.number >= 0:
            raise crash("illegal memory access")

    records = go_on(World(trouble=trouble), tmp_path)
    answer = recommend(SPEC, records)
    assert answer.finalist
    assert (answer.finalist.candidate, answer.finalist.num_speculative_tokens) == ("eagle", 2)
    assert "eagle at K = 3, next to K = 2, failed (crashed_runtime): little room" in answer.reasons
    assert Stage.CONFIRM in {r.trial.stage for r in records}
