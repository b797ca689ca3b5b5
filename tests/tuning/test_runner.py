"""One launch: every K runs every block, and whatever the engine does becomes a value."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.core.host import HostLoad
from autotune.core.jsontype import JSON
from autotune.core.study import Objective, Search, StudySpec
from autotune.core.trial import BASELINE, Cause, Failure, Record
from autotune.ports import Surroundings
from autotune.tuning import rounds, runner, samples
from autotune.tuning.events import LaunchEnded, LaunchStarted, PassDone, ServerReady
from autotune.tuning.journal import passes
from tests.builders import GMU, make_spec, make_workload
from tests.builders_study import make_open_spec
from tests.tuning.fakes import Call, World, crash, make_launch, make_rig, run_one

KS = (0, 1, 2, 3, 5)
SPEC = make_spec(search=Search(gpu_memory_utilization=(GMU,), max_blocks=3))


def measure(
    world: World, root: Path, *, spec: StudySpec = SPEC, ks: tuple[int, ...] = KS, **more: int
) -> dict[int, Record]:
    """The records of one launch of the head, by K."""
    records = run_one(make_rig(world, spec, root), make_launch(spec, "eagle", ks, **more))
    return {r.trial.num_speculative_tokens: r for r in records}


def failure_of(record: Record) -> Failure:
    """The failure that the record is."""
    assert isinstance(record.outcome, Failure)
    return record.outcome


def test_every_k_runs_every_block(tmp_path: Path) -> None:
    """Each block of each level is run once at each K, before the next block begins."""
    world = World()
    records = measure(world, tmp_path)
    assert tuple(records) == KS
    expected = {(block, c, k) for block in range(3) for c in (1, 4) for k in KS}
    ran = [(c.block, c.concurrency, c.k) for c in world.passes]
    assert len(ran) == len(expected)
    assert set(ran) == expected
    assert [block for block, _, _ in ran] == sorted(block for block, _, _ in ran)
    for record in records.values():
        assert record.measurement
        assert [len(record.measurement.at(c)) for c in (1, 4)] == [3, 3]
        assert record.facts is not None


def test_order_of_k_is_shuffled_and_seeded(tmp_path: Path) -> None:
    """K is in another order from block to block, in the same order when run again."""
    orders = []
    for run in range(2):
        world = World()
        measure(world, tmp_path / str(run))
        ks = [c.k for c in world.passes]
        orders.append([tuple(ks[i : i + 5]) for i in range(0, len(ks), 5)])
    assert orders[0] == orders[1]
    assert all(sorted(order) == list(KS) for order in orders[0])
    assert len(set(orders[0])) > 2


def test_all_k_of_a_block_run_the_same_prompts(tmp_path: Path) -> None:
    """A block is the same prompts at every K, in whatever order they run."""
    world = World()
    measure(world, tmp_path)
    for block in range(3):
        for concurrency in (1, 4):
            mine = [c for c in world.passes if (c.block, c.concurrency) == (block, concurrency)]
            assert len({c.prompts for c in mine}) == 1
            assert len(mine[0].prompts) == 4 * concurrency


def test_every_request_has_a_cache_salt_of_its_own(tmp_path: Path) -> None:
    """No two requests of a launch share one, repetitions included, and vLLM takes them all."""

    def once(call: Call) -> str | None:
        return "connection reset" if call.number == 3 else None

    world = World(trouble=once)
    measure(world, tmp_path)
    salts = [salt for call in world.calls for salt in call.salts]
    assert len(salts) == sum(len(call.prompts) for call in world.calls)
    assert len(set(salts)) == len(salts)
    assert not [salt for salt in salts if len(salt) > 128 or set(salt) & set("/@\\\0")]


def test_server_is_drained_before_k_changes(tmp_path: Path) -> None:
    """Between any two passes, warm-ups included, the server has run dry."""
    world = World()
    measure(world, tmp_path)
    sent = [i for i, entry in enumerate(world.log) if entry.startswith("pass")]
    for one, next_one in itertools.pairwise(sent):
        assert "drained" in world.log[one:next_one]
    assert world.servers == 0


def test_warm_up_comes_first_at_every_k_and_level(tmp_path: Path) -> None:
    """No measured pass is the first of its K and concurrency."""
    world = World()
    measure(world, tmp_path)
    warm = [(c.concurrency, c.k) for c in world.calls[:10]]
    assert warm == [(c, k) for c in (1, 4) for k in KS]
    assert all(c.number < 0 for c in world.calls[:10])
    assert all(c.number >= 0 for c in world.calls[10:])


def test_what_happens_is_told(tmp_path: Path) -> None:
    """Started, ready, one event per pass, ended: in this order, each with its launch."""
    world = World()
    measure(world, tmp_path, ks=(2,))
    kinds = [type(event) for event in world.events]
    assert kinds == [LaunchStarted, ServerReady, *[PassDone] * 6, LaunchEnded]
    assert all(event.launch == world.events[0].launch for event in world.events)


def test_a_crash_belongs_to_the_k_in_flight(tmp_path: Path) -> None:
    """The K that was running fails; the others keep what they had, and say it is not all."""

    def trouble(call: Call) -> None:
        if call.number >= 0 and (call.block, call.k) == (1, 5):
            raise crash("engine died: CUDA error")

    records = measure(World(trouble=trouble), tmp_path)
    assert failure_of(records[5]).cause is Cause.CRASHED_RUNTIME
    assert failure_of(records[5]).remedy == "see the log"
    for k in (0, 1, 2, 3):
        measured = records[k].measurement
        assert measured
        assert measured.cut_short
        assert 1 <= len(measured.at(1)) <= 2
        assert len(measured.at(4)) == 1


def test_requests_carry_the_name_that_is_served(tmp_path: Path) -> None:
    """vLLM may serve a model under several names: the first of them."""
    args: dict[str, JSON] = {"served_model_name": ["smol", "smollm2"]}
    world = World()
    spec = replace(SPEC, target=replace(SPEC.target, engine_args=args))
    measure(world, tmp_path, spec=spec, ks=(2,))
    assert [order.model for order in world.orders] == ["smol"]


def test_others_without_a_pass_give_no_record(tmp_path: Path) -> None:
    """A crash in the very first pass says nothing about the K that had not begun."""

    def trouble(call: Call) -> None:
        if call.number == 0:
            raise crash("engine died")

    world = World(trouble=trouble)
    records = measure(world, tmp_path)
    assert list(records) == [world.passes[0].k]


def dies_of(cause: Cause, when: str) -> World:
    """A world in which no server comes up, or none survives its warm-up at K = 3."""

    def start(candidate: str) -> None:
        raise crash("no more", cause)

    def warm_up(call: Call) -> None:
        if call.k == 3:
            raise crash("no more", cause)

    return World(start_trouble=start) if when == "start" else World(trouble=warm_up)


NOT_OF_K = [
    Cause.CRASHED_START,
    Cause.START_TIMEOUT,
    Cause.ENGINE_REFUSED,
    Cause.MEMORY_OCCUPIED,
    Cause.CRASHED_RUNTIME,
]


@pytest.mark.parametrize("when", ["start", "warm-up"])
@pytest.mark.parametrize("cause", NOT_OF_K)
def test_failure_before_measuring_belongs_to_all(tmp_path: Path, cause: Cause, when: str) -> None:
    """A server that does not come up fails every K of its launch, with one cause."""
    world = dies_of(cause, when)
    records = measure(world, tmp_path)
    assert tuple(records) == KS
    assert {failure_of(r).cause for r in records.values()} == {cause}
    assert world.passes == []
    ended = world.events[-1]
    assert isinstance(ended, LaunchEnded)
    assert ended.failure == failure_of(records[5])


OF_K = [Cause.OUT_OF_MEMORY_START, Cause.OUT_OF_MEMORY_RUNTIME, Cause.KV_CACHE_TOO_SMALL]


@pytest.mark.parametrize(("when", "whose"), [("start", 5), ("warm-up", 3)])
@pytest.mark.parametrize("cause", OF_K)
def test_too_little_memory_belongs_to_one_k(
    tmp_path: Path, cause: Cause, when: str, whose: int
) -> None:
    """K_max did not fit, or the K that was warmed up: of the others nothing is known yet."""
    records = measure(dies_of(cause, when), tmp_path)
    assert tuple(records) == (whose,)
    assert failure_of(records[whose]).cause is cause


def test_a_baseline_without_memory_fails(tmp_path: Path) -> None:
    """K = 0 is the K_max of a launch without speculation."""
    rig = make_rig(dies_of(Cause.KV_CACHE_TOO_SMALL, "start"), SPEC, tmp_path)
    [record] = run_one(rig, make_launch(SPEC, BASELINE, (0,)))
    assert failure_of(record).cause is Cause.KV_CACHE_TOO_SMALL


@pytest.mark.parametrize(
    ("left", "timeout", "cause"),
    [
        (None, 900.0, Cause.START_TIMEOUT),
        (1000.0, 900.0, Cause.START_TIMEOUT),
        (40.0, 40.0, Cause.NO_TIME),  # says nothing of the configuration: tried once more
    ],
)
def test_a_start_takes_no_more_than_the_budget_has_left(
    tmp_path: Path, left: float | None, timeout: float, cause: Cause
) -> None:
    """The search's bound, or what is left; which of them it was is told apart."""
    world = dies_of(Cause.START_TIMEOUT, "start")
    launch = make_launch(SPEC, start_timeout_s=left)
    failed = [failure_of(r) for r in run_one(make_rig(world, SPEC, tmp_path), launch)]
    assert [order.start_timeout_s for order in world.orders] == [timeout]
    assert {f.cause for f in failed} == {cause}
    assert ("the budget had left" in failed[0].detail) == (cause is Cause.NO_TIME)


def test_refused_warm_up_is_a_failure(tmp_path: Path) -> None:
    """An engine that answers every request with an error is not measured at all."""
    records = measure(World(trouble=lambda _: "HTTP 400: no such parameter"), tmp_path)
    assert {failure_of(r).cause for r in records.values()} == {Cause.LOAD_FAILED}
    assert "HTTP 400: no such parameter" in failure_of(records[1]).detail


def test_live_k_not_in_force_fails_all(tmp_path: Path) -> None:
    """If the scheduler does not do as asked, no number of the launch can be trusted."""

    def from_the_third_pass_on(call: Call) -> None:
        world.force_k = 5 if call.number >= 2 else None

    world = World(trouble=from_the_third_pass_on)
    records = measure(world, tmp_path)
    assert tuple(records) == KS
    assert {failure_of(r).cause for r in records.values()} == {Cause.LIVE_K_NOT_IN_FORCE}
    assert "{5: 256} in force" in failure_of(records[0]).detail


def test_an_invalid_pass_is_repeated_once(tmp_path: Path) -> None:
    """One bad pass is run again and kept, as invalid; the repetition is what counts."""
    failed: list[int] = []

    def once(call: Call) -> str | None:
        if (call.number >= 0) and (call.block, call.concurrency, call.k) == (1, 4, 2):
            failed.append(call.number)
            return "connection reset" if len(failed) == 1 else None
        return None

    records = measure(World(trouble=once), tmp_path)
    measured = records[2].measurement
    assert measured
    assert failed == [failed[0], failed[0] + 1]
    assert len(measured.passes) == 7
    bad = [p for p in measured.passes if p.invalid]
    assert [p.invalid for p in bad] == ["16 of 16 requests failed: connection reset"]
    assert len(measured.at(4)) == 3


def test_a_pass_that_stays_invalid_is_given_up(tmp_path: Path) -> None:
    """Twice invalid is the end of that block; the others are measured as ever."""

    def always(call: Call) -> str | None:
        wrong = call.number >= 0 and (call.block, call.concurrency, call.k) == (1, 4, 2)
        return "connection reset" if wrong else None

    world = World(trouble=always)
    measured = measure(world, tmp_path)[2].measurement
    assert measured
    assert [p.block for p in measured.passes if p.invalid] == [1, 1]
    assert [p.block for p in measured.at(4)] == [0, 2]
    assert len(world.passes) == 31


def test_nothing_valid_is_a_failure(tmp_path: Path) -> None:
    """A K of which no pass was valid is no measurement; it says what was wrong, and the remedy."""

    def at_3(call: Call) -> str | None:
        return "gibberish" if call.number >= 0 and call.k == 3 else None

    records = measure(World(trouble=at_3), tmp_path)
    assert failure_of(records[3]).cause is Cause.LOAD_FAILED
    assert "gibberish" in failure_of(records[3]).detail
    assert (
        failure_of(records[3]).remedy == "see that error, and the engine's log in the launch folder"
    )
    assert records[2].measurement


def test_what_spoils_a_pass_is_asked_for_every_pass(tmp_path: Path) -> None:
    """The pass that the engine compiled in is run again; its neighbours are as before."""
    seen: list[int] = []

    def around(call: Call) -> Surroundings:
        seen.append(call.number)
        lines = ("a kernel was compiled: x",) if call.number == 4 else ()
        return Surroundings(disturbances=lines, host=HostLoad(steal=0.01), warnings={"w": 1})

    world = World(around=around)
    records = measure(world, tmp_path)
    measured = sorted(
        (p for r in records.values() if r.measurement for p in r.measurement.passes),
        key=lambda p: p.order,
    )
    assert seen == list(range(31))
    assert [p.order for p in measured if p.invalid] == [4]
    assert measured[5].num_speculative_tokens == measured[4].num_speculative_tokens
    assert {p.host for p in measured} == {HostLoad(steal=0.01)}
    assert {p.warnings["w"] for p in measured} == {1}


def test_a_late_client_measures_nothing(tmp_path: Path) -> None:
    """Lag is kept with every pass; beyond the limit no pass is valid, and the remedy is its own."""
    records = measure(World(lag_s=0.15), tmp_path / "fair", ks=(2,))
    assert records[2].measurement
    assert {p.client_lag_ms for p in records[2].measurement.passes} == {150.0}
    failed = failure_of(measure(World(lag_s=1.5), tmp_path / "late", ks=(2,))[2])
    assert "kept from running for 1500 ms" in failed.detail
    assert failed.remedy.startswith("leave the client a core")


def timed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    measure_s: float,
    limit_s: float | None = None,
) -> tuple[World, list[Record]]:
    """A launch at one level on a simulated clock, that nothing but these bounds ends."""
    world = World()
    for module in (runner, rounds):
        monkeypatch.setattr(module, "time", world)
    spec = make_spec(
        workload=make_workload(concurrencies={1: 1.0}),
        search=Search(gpu_memory_utilization=(GMU,), min_blocks=3, max_blocks=8),
        objective=Objective(tolerance=0.9),  # no K is told from another: time alone ends it
    )
    launch = replace(make_launch(spec, max_blocks=8, measure_s=measure_s), limit_s=limit_s)
    return world, run_one(make_rig(world, spec, tmp_path), launch)


@pytest.mark.parametrize(
    ("measure_s", "blocks"),
    [
        (1000.0, 8),  # five passes a block, a second each: all eight blocks fit
        (32.0, 6),  # the seventh would end after 35 s
        (12.5, 3),  # over with the third, but three are the least, and end within 1.5 times that
        (7.5, 2),  # not even that: two blocks are what any comparison needs
        (0.0, 2),
    ],
)
def test_time_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measure_s: float, blocks: int
) -> None:
    """A launch ends with the last block that fits, but not before its least number of blocks."""
    world, _ = timed(tmp_path, monkeypatch, measure_s=measure_s)
    assert len(world.passes) == blocks * len(KS)


@pytest.mark.parametrize(("limit_s", "blocks"), [(12.5, 2), (7.5, 1), (32.0, 6)])
def test_a_limit_is_kept_whatever_is_lacking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit_s: float, blocks: int
) -> None:
    """No round that would end beyond it, and what is lacking was not measured in vain."""
    world, records = timed(tmp_path, monkeypatch, measure_s=1000.0, limit_s=limit_s)
    assert len(world.passes) == blocks * len(KS)
    assert all(r.measurement and r.measurement.cut_short for r in records)


def test_passes_and_samples_are_on_disk(tmp_path: Path) -> None:
    """The folder of a launch holds every pass, and the requests of each."""
    world = World()
    rig = make_rig(world, SPEC, tmp_path)
    [record] = run_one(rig, make_launch(SPEC, BASELINE, (0,)))
    folder = rig.paths.launches / record.launch_id
    assert record.measurement
    assert tuple(passes(folder)) == record.measurement.passes
    frame = samples.read(folder)
    assert len(frame) == sum(p.requests for p in record.measurement.passes) == 3 * (4 + 16)


def test_arrivals_are_the_blocks_own(tmp_path: Path) -> None:
    """At a rate, every K and every arm gets the same arrivals on a block, blocks differ."""
    spec = replace(make_open_spec(2.5), search=SPEC.search)
    world = World()
    rig = make_rig(world, spec, tmp_path)
    for launch in (make_launch(spec, "eagle", (0, 1, 2)), make_launch(spec, BASELINE, (0,))):
        run_one(rig, launch)
    seeds: dict[int, set[str]] = {}
    for call in world.passes:
        if call.concurrency == 1:
            assert call.arrivals is None
            continue
        assert call.arrivals is not None
        assert call.arrivals.request_rate == 2.5
        seeds.setdefault(call.block, set()).add(call.arrivals.seed)
    assert len(seeds) == 3
    assert all(len(found) == 1 for found in seeds.values())
    assert len(set.union(*seeds.values())) == 3


def test_a_pass_says_its_rate_and_times(tmp_path: Path) -> None:
    """Warm-up is a closed loop; a measured pass keeps its rate and the time of each request."""
    world = World()
    records = measure(world, tmp_path, spec=replace(make_open_spec(2.5), search=SPEC.search))
    assert all(c.arrivals is None for c in world.calls if c.number < 0)
    assert records[2].measurement
    for measured in records[2].measurement.passes:
        assert measured.request_rate == {1: None, 4: 2.5}[measured.concurrency]
        assert measured.times
        assert len(measured.times.e2e_ms) == measured.requests
        assert measured.mean_e2e_ms == pytest.approx(measured.duration_s * 1e3, abs=0.1)
