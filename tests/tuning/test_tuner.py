"""The loop, whole: a study over a fake engine, killed anywhere, ends where it would have."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.core.plan import baseline_failed, next_launch
from autotune.core.recommendation import Basis, Recommendation, recommend
from autotune.core.study import Search, StudySpec
from autotune.core.trial import BASELINE, Cause, Failure, Record, Stage
from autotune.core.verdict import Verdict
from autotune.tuning import runner, tuner
from autotune.tuning.attributes import record_id
from autotune.tuning.tuner import fingerprint, recover, tune, usable
from autotune.tuning.values import value_of
from tests.builders import GMU, make_spec, make_workload
from tests.tuning.fakes import FINGERPRINT, Call, World, crash, make_ledger, make_rig, write_config

SPEC = make_spec(
    workload=make_workload(prompts=64),
    search=Search(gpu_memory_utilization=(GMU,), max_blocks=4),
)
LAUNCHES = ["start baseline", "start ngram", "start eagle", "start draft-4l"] + [
    "start baseline",
    "start eagle",
] * 2


def go_on(world: World, root: Path, *, budget_s: float | None = None) -> Recommendation:
    """What `autotune run` does: recover, tune, recommend."""
    rig = make_rig(world, SPEC, root)
    ledger = make_ledger(rig)
    recover(rig.paths, ledger, SPEC)
    for _ in tune(rig, ledger, write_config, budget_s=budget_s):
        pass
    return recommend(SPEC, usable(ledger.records(), FINGERPRINT, SPEC))


def stored(root: Path) -> list[Record]:
    """What the ledger of a study holds."""
    return make_ledger(make_rig(World(), SPEC, root)).records()


def interrupt_at(number: int) -> Callable[[Call], None]:
    """Ctrl-C, or a kill, in the middle of one pass."""

    def trouble(call: Call) -> None:
        if call.number == number:
            raise KeyboardInterrupt

    return trouble


def starts(world: World) -> list[str]:
    """The launches of a world, in order."""
    return [entry for entry in world.log if entry.startswith("start")]


@pytest.fixture(scope="module")
def finished_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a study that nothing interrupted."""
    world, root = World(), tmp_path_factory.mktemp("whole")
    go_on(world, root)
    assert starts(world) == LAUNCHES
    return root


@pytest.fixture
def finished(finished_once: Path, tmp_path: Path) -> Path:
    """A copy of a finished study."""
    return shutil.copytree(finished_once, tmp_path / "finished")


@pytest.fixture
def whole(finished_once: Path) -> Recommendation:
    """The answer of a study that nothing interrupts."""
    return recommend(SPEC, stored(finished_once))


def test_a_study_ends_with_a_confirmed_answer(whole: Recommendation) -> None:
    """The head at K = 2, proved by cold launches on other prompts."""
    assert (whole.verdict, whole.basis) == (Verdict.SPECULATE, Basis.CONFIRMED)
    assert whole.finalist
    assert (whole.finalist.candidate, whole.finalist.num_speculative_tokens) == ("eagle", 2)


# In the baseline; in the head's curve; in the last candidate; in the confirmation.
@pytest.mark.parametrize("share", [0.02, 0.3, 0.8, 0.95])
def test_killed_and_run_again_gives_the_same_answer(
    tmp_path: Path, finished_once: Path, whole: Recommendation, share: float
) -> None:
    """Whenever it is killed, a second run measures what is missing and ends with the same."""
    passes = sum(len(r.measurement.passes) for r in stored(finished_once) if r.measurement)
    first = World(trouble=interrupt_at(int(share * passes)))
    with pytest.raises(KeyboardInterrupt):
        go_on(first, tmp_path)
    assert first.servers == 0
    second = World()
    answer = go_on(second, tmp_path)
    assert (answer.verdict, answer.basis) == (whole.verdict, whole.basis)
    assert answer.finalist
    assert whole.finalist
    assert answer.finalist.candidate == whole.finalist.candidate
    assert answer.finalist.num_speculative_tokens == whole.finalist.num_speculative_tokens
    assert answer.speedup
    assert whole.speedup
    assert answer.speedup.mean == pytest.approx(whole.speedup.mean, rel=0.01)
    # Launches that had ended are not made again; the one that was killed is, at most.
    assert len(starts(first)) + len(starts(second)) <= len(LAUNCHES) + 1
    # Nothing that was measured is lost: all passes of the first run are in the ledger.
    kept = sum(len(r.measurement.passes) for r in stored(tmp_path) if r.measurement)
    assert kept == len(first.passes) - 1 + len(second.passes)


def test_a_finished_study_launches_nothing(finished: Path, whole: Recommendation) -> None:
    """Running it again gives the same answer, from the records alone."""
    again = World()
    assert go_on(again, finished) == whole
    assert again.log == []


def test_killed_between_telling_and_marking(finished: Path) -> None:
    """A launch whose records are told but not marked is not told a second time."""
    told = stored(finished)
    rig = make_rig(World(), SPEC, finished)
    for mark in rig.paths.launches.glob("*/told"):
        mark.unlink()
    recover(rig.paths, make_ledger(rig), SPEC)
    assert stored(finished) == told
    assert len(list(rig.paths.launches.glob("*/told"))) == len(LAUNCHES)


def test_deleted_launch_folders_do_not_hide_new_records(tmp_path: Path) -> None:
    """Who deletes the launches keeps the records; numbers of the next ones are new."""
    with pytest.raises(KeyboardInterrupt):
        go_on(World(trouble=interrupt_at(40)), tmp_path)
    rig = make_rig(World(), SPEC, tmp_path)
    recover(rig.paths, make_ledger(rig), SPEC)
    shutil.rmtree(rig.paths.launches)
    answer = go_on(World(), tmp_path)
    assert answer.basis is Basis.CONFIRMED
    ids = [record_id(r) for r in stored(tmp_path)]
    assert len(ids) == len(set(ids))


def test_stray_files_do_not_stop_a_recovery(tmp_path: Path) -> None:
    """What else lies among the launches is passed over."""
    rig = make_rig(World(), SPEC, tmp_path)
    assert recover(rig.paths, make_ledger(rig), SPEC) == []
    rig.paths.next_launch()
    (rig.paths.launches / ".DS_Store").touch()
    assert recover(rig.paths, make_ledger(rig), SPEC) == []


def test_a_candidate_that_always_crashes_costs_one_launch_per_k(tmp_path: Path) -> None:
    """Failures end in a finished study without that candidate, and are all in the answer."""

    def trouble(call: Call) -> None:
        if call.candidate == "draft-4l" and call.number >= 0 and call.k > 0:
            raise crash("illegal memory access")

    world = World(trouble=trouble)
    answer = go_on(world, tmp_path)
    assert answer.basis is Basis.CONFIRMED
    # Three coarse K; with all of them gone nothing says where else to look.
    assert starts(world).count("start draft-4l") == 3
    assert {(r.trial.candidate, f.cause) for r, f in answer.failures} == {
        ("draft-4l", Cause.CRASHED_RUNTIME)
    }
    assert {c.candidate for c in answer.search} == {"eagle", "ngram"}


def test_live_k_0_that_crashes_ends_in_static_launches(tmp_path: Path) -> None:
    """A live launch that dies at K = 0 is not made again and again."""

    def trouble(call: Call) -> None:
        if call.candidate == "eagle" and call.number >= 0 and call.k == 0:
            raise crash("draft forward without drafts")

    world = World(trouble=trouble)
    answer = go_on(world, tmp_path)
    assert answer.basis is Basis.CONFIRMED
    assert answer.finalist
    assert answer.finalist.candidate == "eagle"
    # One live launch, what it left one by one, and two confirmations.
    assert starts(world).count("start eagle") <= 1 + 4 + 2


def test_where_live_k_is_ignored_each_k_is_launched(tmp_path: Path) -> None:
    """An engine that keeps its own K gives the same answer by one launch per K."""

    def eagle_keeps_its_own(candidate: str) -> None:
        world.force_k = 5 if candidate == "eagle" else None

    world = World(start_trouble=eagle_keeps_its_own)
    answer = go_on(world, tmp_path)
    assert starts(world).count("start eagle") == 1 + 4 + 2
    assert answer.finalist
    assert (answer.finalist.candidate, answer.finalist.num_speculative_tokens) == ("eagle", 2)


def test_a_baseline_that_fails_ends_the_study(tmp_path: Path) -> None:
    """Nothing else is launched, by this run or the next."""
    for _ in range(2):
        answer = go_on(World(trouble=lambda _: "HTTP 404"), tmp_path)
        assert answer.basis is Basis.NOTHING
    [record] = stored(tmp_path)
    failure = baseline_failed([record])
    assert failure
    assert failure.cause is Cause.LOAD_FAILED


def test_passes_that_are_never_valid_end_the_study(tmp_path: Path) -> None:
    """Invalid passes without end are a failed baseline, not a loop without end."""
    world = World(trouble=lambda call: "HTTP 500" if call.number >= 0 else None)
    assert go_on(world, tmp_path).basis is Basis.NOTHING
    assert starts(world) == ["start baseline"]


def test_a_budget_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the next start does not fit any more, the answer is what is known by then."""
    world = World(pass_s=10.0)
    for module in (runner, tuner):
        monkeypatch.setattr(module, "time", world)
    answer = go_on(world, tmp_path, budget_s=1500.0)
    assert starts(world)[:3] == LAUNCHES[:3]
    assert world.now < 1500.0 * 1.25
    assert answer.basis is not Basis.NOTHING


def test_a_budget_too_small_is_not_spent_on_the_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short of time every launch is short, and what is left goes into confirming the best known."""
    world = World(pass_s=2.0)
    for module in (runner, tuner):
        monkeypatch.setattr(module, "time", world)
    answer = go_on(world, tmp_path, budget_s=465.0)
    assert starts(world)[:3] == LAUNCHES[:3]
    assert starts(world)[3:7] == LAUNCHES[4:], "confirmed before the last candidate is looked at"
    assert answer.basis is Basis.CONFIRMED


def test_records_of_another_world_are_not_used(finished: Path) -> None:
    """After a change of model, engine or prompts all is measured anew; the old stays stored."""
    before = stored(finished)
    world = World()
    rig = replace(make_rig(world, SPEC, finished), fingerprint="changed")
    for _ in tune(rig, make_ledger(rig), write_config, budget_s=None):
        pass
    assert starts(world) == LAUNCHES
    assert stored(finished)[: len(before)] == before
    assert len(usable(stored(finished), "changed", SPEC)) == len(before)


def test_fingerprint_follows_what_counts() -> None:
    """Whatever makes speeds incomparable changes it; what is searched, and how long, does not."""
    same = fingerprint(SPEC, {"vllm": "0.32.0"})
    assert fingerprint(make_spec(workload=SPEC.workload), {"vllm": "0.32.0"}) == same
    swapped = replace(
        SPEC.workload, search=SPEC.workload.confirmation, confirmation=SPEC.workload.search
    )
    for spec, version in (
        (SPEC, "0.33.0"),
        (replace(SPEC, workload=swapped), "0.32.0"),
        (replace(SPEC, workload=make_workload(temperature=0.7)), "0.32.0"),
        (replace(SPEC, workload=make_workload(max_tokens=32)), "0.32.0"),
        (replace(SPEC, target=replace(SPEC.target, model="/models/other")), "0.32.0"),
        (replace(SPEC, target=replace(SPEC.target, env={})), "0.32.0"),
        (replace(SPEC, workload=replace(SPEC.workload, lora="sql")), "0.32.0"),
        (replace(SPEC, workload=replace(SPEC.workload, response_format={"type": "x"})), "0.32.0"),
        (with_first_prompt(later_turns=("And then?",)), "0.32.0"),
        (with_first_prompt(response_format={"type": "json_object"}), "0.32.0"),
        (with_first_prompt(max_tokens=9), "0.32.0"),
    ):
        assert fingerprint(spec, {"vllm": version}) != same


def test_fingerprint_stays_when_the_same_is_sent() -> None:
    """The tokens of a prompt follow from it, and the order of keys is nobody's concern."""
    one, two = ({"role": "user", "content": "x"}, {"content": "x", "role": "user"})
    assert fingerprint(with_first_prompt(tokens=9), {}) == fingerprint(SPEC, {})
    first, second = (with_first_prompt(messages=(message,)) for message in (one, two))
    assert fingerprint(first, {}) == fingerprint(second, {})


def with_first_prompt(**changes: Any) -> StudySpec:  # noqa: ANN401
    """The study with something else in its first prompt."""
    first, *others = SPEC.workload.search
    search = (replace(first, **changes), *others)
    return replace(SPEC, workload=replace(SPEC.workload, search=search))


def test_ledger_values_are_speedups(tmp_path: Path) -> None:
    """The value of each trial is its overall speedup, which is 1 for the baseline itself."""
    rig = make_rig(World(), SPEC, tmp_path)
    ledger = make_ledger(rig)
    first, *more = (next(tune(rig, ledger, write_config, budget_s=None)) for _ in range(3))
    assert first[0].trial.candidate == BASELINE
    records = [*first, *more[0], *more[1]]
    assert not any(isinstance(r.outcome, Failure) for r in records)
    assert value_of(SPEC, records, first[0]) == pytest.approx(1.0)
    best = next(r for r in more[1] if r.trial.num_speculative_tokens == 2)
    assert value_of(SPEC, records, best) == pytest.approx(1.288, rel=0.01)
    ahead = next_launch(SPEC, records)
    assert ahead
    assert ahead.stage is Stage.SCREEN
