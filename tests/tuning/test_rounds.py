"""A launch measures as long as there is something to learn, and ends with a reason."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.core.plan import pending
from autotune.core.study import Objective, Search, StudySpec
from autotune.core.trial import BASELINE, Cause, Failure, Record, Stage
from autotune.tuning.events import CandidateBeaten, KStopped
from tests.builders import GMU, make_record, make_spec, make_workload
from tests.tuning.fakes import World, make_launch, make_rig, run_one

KS = (0, 1, 2, 3, 5)
SEARCH = Search(gpu_memory_utilization=(GMU,), min_blocks=3, max_blocks=8)
BASELINE_RECORD = make_record(stage=Stage.BASELINE, blocks=8)


def spec_of(*, temperature: float = 0.0, min_gain: float = 0.0) -> StudySpec:
    """A study of many blocks."""
    return make_spec(
        workload=make_workload(prompts=128, temperature=temperature),
        search=SEARCH,
        objective=Objective(min_gain=min_gain),
    )


def measure(
    world: World,
    root: Path,
    spec: StudySpec,
    known: Sequence[Record] = (BASELINE_RECORD,),
    name: str = "eagle",
) -> dict[int, Record]:
    """The records of one launch, by K."""
    launch = make_launch(spec, name, KS, max_blocks=8)
    records = run_one(make_rig(world, spec, root), launch, known)
    return {r.trial.num_speculative_tokens: r for r in records}


def blocks_of(world: World, k: int, concurrency: int) -> int:
    """How many blocks a K ran at one level."""
    return len({c.block for c in world.passes if (c.k, c.concurrency) == (k, concurrency)})


def test_a_beaten_k_gets_no_more_blocks(tmp_path: Path) -> None:
    """K = 5 is a tenth slower than K = 2 at one stream: it stops there, and is told why."""
    world = World()
    records = measure(world, tmp_path, spec_of())
    assert 3 <= blocks_of(world, 5, 1) < 8
    told = [e.stopped for e in world.events if isinstance(e, KStopped)]
    assert any((s.num_speculative_tokens, s.concurrency, s.beaten) == (5, 1, True) for s in told)
    measured = records[5].measurement
    assert measured
    assert measured.pruned
    assert "at concurrency 1 beaten by K = 2" in measured.pruned
    # The more streams, the dearer its verification: there is nothing to look for at four.
    assert blocks_of(world, 5, 4) == 0
    assert records[2].measurement
    assert records[2].measurement.pruned is None


def test_the_drift_reference_runs_as_long_as_any_k(tmp_path: Path) -> None:
    """K = 0 is in every block of a level that is still measured, and in none after that."""
    world = World()
    measure(world, tmp_path, spec_of())
    for concurrency in (1, 4):
        most = max(blocks_of(world, k, concurrency) for k in KS[1:])
        assert blocks_of(world, 0, concurrency) == most


def test_a_candidate_that_cannot_win_ends_early(tmp_path: Path) -> None:
    """Asked for a gain of three, no K can give it: the launch ends, every K with the reason."""
    world = World()
    records = measure(world, tmp_path, spec_of(min_gain=2.0))
    assert any(isinstance(e, CandidateBeaten) for e in world.events)
    # Three blocks of each, and one more of the best for the K that joined late.
    assert max(blocks_of(world, k, 1) for k in KS[1:]) <= 4
    for k in KS[1:]:
        measured = records[k].measurement
        assert measured
        assert measured.pruned
        assert measured.pruned.endswith("of plain decoding")


def test_the_confirmation_is_measured_to_the_end(tmp_path: Path) -> None:
    """Launches of one point run all their blocks: nothing is stopped by looking."""
    world = World()
    spec = spec_of()
    launch = replace(make_launch(spec, BASELINE, (0,), max_blocks=8), stage=Stage.CONFIRM)
    run_one(make_rig(world, spec, tmp_path), launch, [BASELINE_RECORD])
    assert blocks_of(world, 0, 1) == 8


def failure_of(records: dict[int, Record]) -> Failure:
    """The one failure that every K has."""
    outcomes = {id(r.outcome): r.outcome for r in records.values()}
    assert len(outcomes) == 1
    (outcome,) = outcomes.values()
    assert isinstance(outcome, Failure)
    return outcome


def test_a_draft_of_which_nothing_is_accepted_ends_the_candidate(tmp_path: Path) -> None:
    """After two hundred drafts in vain every K fails, with the likely causes in order."""
    world = World(accepts=lambda temperature: False)
    failure = failure_of(measure(world, tmp_path, spec_of()))
    assert failure.cause is Cause.DRAFT_USELESS
    assert failure.detail.startswith("0 of ")
    assert failure.remedy.index("tokenizer") < failure.remedy.index("untrained")
    assert blocks_of(world, 0, 1) <= 1


@pytest.mark.parametrize(
    ("greedily", "cause"), [(True, Cause.SAMPLING_BROKEN), (False, Cause.DRAFT_USELESS)]
)
def test_at_a_temperature_the_engine_is_asked_first(
    tmp_path: Path, cause: Cause, *, greedily: bool
) -> None:
    """Drafts that are accepted at temperature 0 only are sound: the engine's sampler is broken."""
    world = World(accepts=lambda temperature: greedily and temperature == 0)
    assert failure_of(measure(world, tmp_path, spec_of(temperature=0.7))).cause is cause


def test_what_ends_a_candidate_is_not_tried_at_another_k(tmp_path: Path) -> None:
    """A candidate whose draft is useless at one K has no launch left."""
    spec = spec_of()
    world = World(accepts=lambda temperature: False)
    useless = list(measure(world, tmp_path, spec).values())[:1]
    left = [x.name for x in pending(spec, [BASELINE_RECORD, *useless]) if x.stage is Stage.SCREEN]
    assert "eagle" not in left
    assert "ngram" in left


def test_each_round_of_a_confirmation_begins_with_other_blocks(tmp_path: Path) -> None:
    """Four blocks in two rounds: 0, 1, ... and 2, 3, ...; with time for all, each runs them all."""
    spec = make_spec(workload=make_workload(prompts=64), search=SEARCH)
    for repeat, first in ((0, 0), (1, 2), (2, 0)):
        world = World()
        launch = replace(
            make_launch(spec, "eagle", (2,), max_blocks=4), stage=Stage.CONFIRM, live=False
        )
        run_one(make_rig(world, spec, tmp_path), replace(launch, repeat=repeat), [BASELINE_RECORD])
        blocks = [c.block for c in world.passes if c.concurrency == 4]
        assert blocks == [(first + i) % 4 for i in range(4)]
