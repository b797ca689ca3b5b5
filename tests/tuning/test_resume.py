"""Whenever a study is stopped, and whatever its file has become: it goes on, and ends the same."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune.core.plan import next_launch
from autotune.core.recommendation import Recommendation, recommend
from autotune.core.study import Level, Search, StudySpec
from autotune.core.trial import Record
from autotune.tuning.tuner import recover, tune, usable
from tests.builders import GMU, make_spec, make_workload
from tests.tuning.fakes import FINGERPRINT, Call, World, make_ledger, make_rig, write_config

SPEC = make_spec(
    workload=make_workload(prompts=64),
    search=Search(gpu_memory_utilization=(GMU,), max_blocks=4),
)


def go_on(world: World, root: Path, spec: StudySpec = SPEC) -> list[Record]:
    """What `autotune run` does: recover, tune; gives what is known at the end."""
    rig = make_rig(world, spec, root)
    ledger = make_ledger(rig)
    recover(rig.paths, ledger, spec)
    for _ in tune(rig, ledger, write_config, budget_s=None):
        pass
    return usable(ledger.records(), FINGERPRINT, spec)


def answer(result: Recommendation) -> tuple[object, ...]:
    """What of an answer must not hang on how it came about."""
    best = result.finalist
    assert best
    return result.verdict, result.basis, best.candidate, best.num_speculative_tokens


def starts(world: World) -> int:
    """How many servers were started."""
    return sum(entry.startswith("start") for entry in world.log)


def stopped_after(passes: int) -> Callable[[Call], None]:
    """Ctrl-C, or a kill, in the middle of one pass of a run."""

    def trouble(call: Call) -> None:
        if call.number == passes:
            raise KeyboardInterrupt

    return trouble


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recommendation, int, int]:
    """The answer of a study that nothing interrupts, its passes and its launches."""
    world = World()
    records = go_on(world, tmp_path_factory.mktemp("whole"))
    return recommend(SPEC, records), len(world.passes), starts(world)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(shares=st.lists(st.floats(0.0, 0.999), min_size=1, max_size=3))
def test_stopped_anywhere_a_study_ends_with_the_same_answer(
    whole: tuple[Recommendation, int, int], shares: list[float]
) -> None:
    """However often, in whatever pass: same verdict, candidate and K, and no launch made twice."""
    uninterrupted, passes, launches = whole
    with tempfile.TemporaryDirectory() as folder:
        made = stops = 0
        for share in shares:
            world = World(trouble=stopped_after(int(share * passes)))
            try:
                go_on(world, Path(folder))
            except KeyboardInterrupt:
                stops += 1
            made += starts(world)
        last = World()
        result = recommend(SPEC, go_on(last, Path(folder)))
    assert answer(result) == answer(uninterrupted)
    # What was cut short is made once more; the rest of a curve may take one launch of its own.
    assert made + starts(last) <= launches + 2 * stops


LESS = replace(SPEC, search=replace(SPEC.search, num_speculative_tokens=(1, 3)))
ONE_LEVEL = replace(
    SPEC, workload=replace(SPEC.workload, levels=(Level(concurrency=1, weight=2.0),))
)
TWO = replace(SPEC, candidates=SPEC.candidates[1:])
FEW = replace(SPEC, search=replace(SPEC.search, min_blocks=2, max_blocks=2))


@pytest.mark.parametrize(
    ("before", "after", "at_most"),
    [
        # New K: one launch each for candidates that may win, and the confirmation of another K.
        (LESS, SPEC, 3 + 4),
        (ONE_LEVEL, SPEC, 1 + 3 + 4),
        (TWO, SPEC, 1 + 4),
        (SPEC, TWO, 4),
        (SPEC, LESS, 4),
        (FEW, SPEC, 1 + 3 + 4),
    ],
    ids=["K added", "level added", "candidate added", "candidate gone", "K gone", "more blocks"],
)
def test_a_changed_file_reuses_what_still_applies(
    tmp_path: Path, before: StudySpec, after: StudySpec, at_most: int
) -> None:
    """The answer is that of a fresh study of the new file, for fewer launches; then all is known."""
    fresh, first, second = World(), World(), World()
    expected = recommend(after, go_on(fresh, tmp_path / "fresh", after))
    go_on(first, tmp_path / "changed", before)
    known = go_on(second, tmp_path / "changed", after)
    assert answer(recommend(after, known)) == answer(expected)
    assert starts(second) <= at_most
    assert len(second.passes) < len(fresh.passes)
    assert next_launch(after, known) is None


def test_a_finished_study_is_finished(tmp_path: Path) -> None:
    """Running it again starts nothing."""
    go_on(World(), tmp_path)
    again = World()
    go_on(again, tmp_path)
    assert again.log == []
