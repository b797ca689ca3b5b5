"""One launch answers the curve: it screens, and unless the candidate is beaten it goes on."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.core.plan import next_launch, pending
from autotune.core.study import Search, StudySpec
from autotune.core.trial import BASELINE, Launch, Record, Stage
from autotune.tuning import rounds, runner
from autotune.tuning.events import CandidateBeaten
from tests.builders import GMU, make_candidates, make_spec, make_workload
from tests.tuning import fakes
from tests.tuning.fakes import World, make_rig, run_one

KS = tuple(range(1, 9))
CURVES: dict[str, dict[int, dict[int, float]]] = {
    # at concurrency 1 best at 3, at 4 best at 2
    "eagle": {
        1: dict(zip(KS, (1.20, 1.36, 1.42, 1.33, 1.25, 1.18, 1.10, 1.02), strict=True)),
        4: dict(zip(KS, (1.15, 1.18, 1.12, 1.05, 0.97, 0.9, 0.83, 0.77), strict=True)),
    },
    "draft-4l": {
        1: dict(zip(KS, (0.80, 0.72, 0.66, 0.60, 0.55, 0.5, 0.46, 0.42), strict=True)),
        4: dict(zip(KS, (0.75, 0.66, 0.6, 0.55, 0.5, 0.45, 0.41, 0.37), strict=True)),
    },
    # rises to the end
    "draft-6l": {
        1: dict(zip(KS, (1.05, 1.12, 1.18, 1.24, 1.29, 1.33, 1.37, 1.41), strict=True)),
        4: dict(zip(KS, (1.02, 1.07, 1.11, 1.15, 1.18, 1.2, 1.22, 1.24), strict=True)),
    },
}
for _level, _end in ((1, 1.41), (4, 1.24)):
    CURVES["draft-6l"][_level] |= {12: _end * 1.06, 16: _end * 1.1, 24: _end * 1.07, 32: _end * 0.9}


def spec_of(**search: Any) -> StudySpec:  # noqa: ANN401
    """A head and two drafts, launched in this order; K from 1 to 8, two levels, blocks enough."""
    head, draft, _ = make_candidates()
    return make_spec(
        candidates=[head, draft, replace(draft, name="draft-6l", model="/models/smollm2-6-layers")],
        workload=make_workload(prompts=96),
        search=Search(num_speculative_tokens=KS, gpu_memory_utilization=(GMU,), **search),
    )


SPEC = spec_of(max_blocks=6)


@pytest.fixture(autouse=True)
def _curves(monkeypatch: pytest.MonkeyPatch) -> None:
    def tput_of(candidate: str, k: int) -> dict[int, float]:
        gains = {1: 1.0, 4: 1.0} if k == 0 else {c: t[k] for c, t in CURVES[candidate].items()}
        return {1: 33.0 * gains[1], 4: 124.0 * gains[4]}

    monkeypatch.setattr(fakes, "tput_of", tput_of)
    profiles = dict.fromkeys(CURVES, (0.6,) * 40)
    monkeypatch.setattr(fakes, "PROFILES", profiles)


def go_on(
    world: World, root: Path, known: Sequence[Record], spec: StudySpec = SPEC
) -> tuple[Launch, list[Record]]:
    """Make the next launch of a study."""
    launch = next_launch(spec, known)
    assert launch
    return launch, run_one(make_rig(world, spec, root), launch, known)


def study(root: Path, launches: int) -> tuple[list[Launch], list[Record], list[World]]:
    """So many launches of a study, each in a world of its own."""
    made, known, worlds = list[Launch](), list[Record](), list[World]()
    for _ in range(launches):
        worlds.append(World())
        launch, new = go_on(worlds[-1], root, known)
        made.append(launch)
        known += new
    return made, known, worlds


def places(world: World) -> list[tuple[int, int]]:
    """(concurrency, K) of every pass, K = 0 left out, in the order in which each came first."""
    return list(dict.fromkeys((c.concurrency, c.k) for c in world.passes if c.k))


def test_a_survivor_goes_on_in_the_same_launch(tmp_path: Path) -> None:
    """Coarse K at concurrency 1 first; then 4, and K = 3 between the two best."""
    made, _, worlds = study(tmp_path, 2)
    assert (made[1].stage, made[1].name) == (Stage.SCREEN, "eagle")
    ran = places(worlds[1])
    assert set(ran[:4]) == {(1, 1), (1, 2), (1, 4), (1, 8)}
    screening = [c for c in worlds[1].passes if c.concurrency == 1][: 5 * 3]
    assert {(c.concurrency, c.block) for c in worlds[1].passes[:15]} == {(1, 0), (1, 1), (1, 2)}
    assert {c.k for c in screening} == {0, 1, 2, 4, 8}
    assert {(1, 3), (4, 1), (4, 2), (4, 3)} <= set(ran)
    # Beaten at one stream, it can only be worse at four; K far from the best is never run.
    assert (4, 8) not in ran
    assert not {(1, 6), (1, 7)} & set(ran)


def test_a_k_that_joins_late_runs_beside_the_best(tmp_path: Path) -> None:
    """In each block of K = 3 the best K so far runs, too, and so does K = 0."""
    _, _, worlds = study(tmp_path, 2)
    passes = [c for c in worlds[1].passes if c.concurrency == 1]
    first = next(c.block for c in passes if c.k == 3)
    assert {c.k for c in passes if c.block == first} >= {0, 2, 3}


def test_a_beaten_candidate_ends_at_the_primary_level(tmp_path: Path) -> None:
    """Slower than plain decoding at one stream, where verification is cheapest: three blocks."""
    made, known, worlds = study(tmp_path, 3)
    assert made[2].name == "draft-4l"
    assert {c.concurrency for c in worlds[2].passes} == {1}
    assert {c.block for c in worlds[2].passes} == {0, 1, 2}
    [told] = [e.why for e in worlds[2].events if isinstance(e, CandidateBeaten)]
    assert told.endswith("of plain decoding at concurrency 1")
    mine = [r for r in known if r.trial.candidate == "draft-4l" and r.trial.num_speculative_tokens]
    assert all(r.measurement and r.measurement.pruned == told for r in mine)
    assert "draft-4l" not in [x.name for x in pending(SPEC, known)]


def test_a_curve_that_rises_to_its_end_is_extended_in_one_more_launch(tmp_path: Path) -> None:
    """K = 16, then 32, and back to the gap beside the best: a single refining launch."""
    made, known, worlds = study(tmp_path, 5)
    assert [(x.stage, x.name) for x in made[3:]] == [
        (Stage.SCREEN, "draft-6l"),
        (Stage.REFINE, "draft-6l"),
    ]
    assert "the curve still rises at K = 8" in made[4].why
    ran = [k for c, k in places(worlds[4]) if c == 1]
    assert ran.index(16) < ran.index(32)
    assert {8, 12, 16, 24, 32} <= set(ran)
    ahead = list(pending(SPEC, known))
    assert {x.stage for x in ahead} == {Stage.CONFIRM}
    # Baseline and five more at the most before the confirmation: a fifth of the grid's 33.
    assert len(made) <= 6
    assert ahead[1].name == "draft-6l"
    assert ahead[1].num_speculative_tokens[0] > 8


def test_short_of_time_the_other_levels_come_before_more_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two blocks of the coarse K at each level are what an answer needs; no K in between."""
    _, known, _ = study(tmp_path / "a", 1)
    world = World(pass_s=1.0)
    for module in (runner, rounds):
        monkeypatch.setattr(module, "time", world)
    launch = next_launch(SPEC, known, remaining_s=8 * 60.0)
    assert launch
    short = replace(launch, measure_s=10.0)
    records = run_one(make_rig(world, SPEC, tmp_path / "b"), short, known)
    blocks = {
        (c, k): len({x.block for x in world.passes if (x.concurrency, x.k) == (c, k)})
        for c, k in places(world)
    }
    assert blocks[1, 1] == blocks[1, 2] == blocks[4, 1] == blocks[4, 2] == 2
    assert 3 not in {k for _, k in blocks}
    again = [x for x in pending(SPEC, [*known, *records]) if x.name == "eagle"]
    assert again[0].stage is Stage.REFINE
    assert 3 in again[0].num_speculative_tokens


def test_a_method_of_one_k_a_launch_goes_on_at_every_level(tmp_path: Path) -> None:
    """Its launches are for coarse K, then for the neighbours of the best, at both levels each."""
    spec = make_spec(
        workload=SPEC.workload,
        candidates=[SPEC.candidates[0]],
        search=SPEC.search,
        target=None,
    )
    world = World(force_k=8)
    known: list[Record] = []
    made = []
    while (launch := next_launch(spec, known)) and launch.stage is not Stage.CONFIRM:
        world.force_k = 8 if launch.live else None
        made.append(launch)
        known += run_one(make_rig(world, spec, tmp_path), launch, known)
        assert len(made) < 12
    static = [x for x in made if not x.live and x.name != BASELINE]
    assert [x.k_max for x in static] == [1, 2, 4, 8, 3]
    by_k = {r.trial.num_speculative_tokens: r for r in known if not r.trial.live}
    good = by_k[3].measurement
    assert good
    assert [len(good.at(c)) >= 3 for c in (1, 4)] == [True, True]


def test_an_interrupted_screening_goes_on_with_what_is_missing(tmp_path: Path) -> None:
    """K that have their blocks are not screened again; the best of them runs beside the rest."""
    _, known, _ = study(tmp_path / "a", 1)

    def trouble(call: fakes.Call) -> None:
        if call.number >= 0 and call.k == 4:
            raise fakes.crash("CUDA error")

    world = World(trouble=trouble)
    launch, new = go_on(world, tmp_path / "b", known)
    known += new
    assert launch.name == "eagle"
    again = next_launch(SPEC, known)
    assert again
    assert (again.name, again.stage) == ("eagle", Stage.SCREEN)
    assert 4 not in again.num_speculative_tokens
