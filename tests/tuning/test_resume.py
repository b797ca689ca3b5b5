"""Whenever a study is stopped, and whatever its file has become: it goes on, and ends the same.

No server and no disk: the plan and the rounds of each launch over passes that are the same whenever
they are measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune.core.plan import next_launch
from autotune.core.recommendation import Basis, Recommendation, recommend
from autotune.core.study import Search, StudySpec
from autotune.core.trial import Launch, Measurement, Pass, Record
from autotune.core.verdict import Verdict
from autotune.core.workload import Level
from autotune.tuning.rounds import Rounds
from autotune.tuning.tuner import usable
from tests.builders import GMU, make_pass, make_spec, make_workload
from tests.builders_study import tput_of

SPEC = make_spec(
    workload=make_workload(prompts=64),
    search=Search(gpu_memory_utilization=(GMU,), max_blocks=4),
)


@dataclass(slots=True)
class Desk:
    """A study's records, and what it has cost."""

    records: list[Record] = field(default_factory=list)
    launches: int = 0
    passes: int = 0

    def go_on(self, spec: StudySpec, stop_after: int | None = None) -> bool:
        """Run a study to its end, or so many passes of it; whether it came to the end."""
        stop = None if stop_after is None else self.passes + stop_after
        while launch := next_launch(spec, usable(self.records, "", spec)):
            self.launches += 1
            assert self.launches < 40, "the study does not end"
            if not self._launch(spec, launch, stop):
                return False
        return True

    def _launch(self, spec: StudySpec, launch: Launch, stop: int | None) -> bool:
        passes: list[Pass] = []
        rounds = Rounds(
            spec=spec,
            launch=launch,
            known=usable(self.records, "", spec),
            fingerprint="",
            passes=passes,
            notify=lambda event: None,
        )
        whole = True
        for block, c, k in rounds.order():
            whole = stop is None or self.passes < stop
            if not whole:
                break
            self.passes += 1
            tput = tput_of(launch.name, k)[c]
            seed = f"{launch.name} {launch.stage.prompts}"
            order = len(passes)
            passes.append(
                make_pass(k=k, concurrency=c, block=block, tput=tput, order=order, seed=seed)
            )
        self.records += self._told(launch, passes, None if not whole else rounds)
        return whole

    def _told(self, launch: Launch, passes: Sequence[Pass], rounds: Rounds | None) -> list[Record]:
        found = []
        for k in launch.num_speculative_tokens:
            mine = tuple(p for p in passes if p.num_speculative_tokens == k)
            pruned = rounds.pruned(k) if rounds else None
            outcome = Measurement(passes=mine, cut_short=rounds is None, pruned=pruned)
            record = Record(
                trial=launch.trial(k),
                outcome=outcome,
                launch_id=f"{self.launches:03d}",
                fingerprint="",
                why=launch.why,
            )
            found += [record] if mine else []
        return found


def answer(spec: StudySpec, desk: Desk) -> tuple[object, ...]:
    """What of an answer must not hang on how it came about."""
    result: Recommendation = recommend(spec, usable(desk.records, "", spec))
    best = result.finalist
    assert best
    return result.verdict, result.basis, best.candidate, best.num_speculative_tokens


@pytest.fixture(scope="module")
def whole() -> Desk:
    """A study that nothing interrupts."""
    desk = Desk()
    assert desk.go_on(SPEC)
    expected = (Verdict.SPECULATE, Basis.CONFIRMED, "eagle", 2)
    assert answer(SPEC, desk) == expected
    return desk


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(shares=st.lists(st.floats(0.0, 0.9), min_size=1, max_size=3))
def test_stopped_anywhere_a_study_ends_with_the_same_answer(
    whole: Desk, shares: list[float]
) -> None:
    """However often, in whatever pass: same verdict, candidate and K, and nearly no launch more."""
    desk, stops = Desk(), 0
    for share in shares:
        stops += not desk.go_on(SPEC, stop_after=int(share * whole.passes))
    assert desk.go_on(SPEC)
    assert answer(SPEC, desk) == answer(SPEC, whole)
    # What was cut short is made once more; the rest of a curve may take one launch of its own.
    assert desk.launches <= whole.launches + 2 * stops


LESS = replace(SPEC, search=replace(SPEC.search, num_speculative_tokens=(1, 3)))
ONE_LEVEL = replace(
    SPEC, workload=replace(SPEC.workload, levels=(Level(concurrency=1, weight=2.0),))
)
TWO = replace(SPEC, candidates=SPEC.candidates[1:])
FEW = replace(SPEC, search=replace(SPEC.search, min_blocks=2, max_blocks=2))


@pytest.mark.parametrize(
    ("before", "after", "launches"),
    [
        # One for each candidate that may win, and the confirmation of another K.
        (LESS, SPEC, 3 + 4),
        (ONE_LEVEL, SPEC, 1 + 3 + 4),
        (TWO, SPEC, 1 + 4),
        (SPEC, TWO, 2 + 4),
        (SPEC, LESS, 3 + 4),
        (FEW, SPEC, 1 + 3 + 4),
    ],
    ids=["K added", "level added", "candidate added", "candidate gone", "K gone", "more blocks"],
)
def test_a_changed_file_reuses_what_still_applies(
    before: StudySpec, after: StudySpec, launches: int
) -> None:
    """The answer is that of a fresh study of the new file, for fewer passes; then all is known."""
    fresh, changed = Desk(), Desk()
    assert fresh.go_on(after)
    assert changed.go_on(before)
    made, passes = changed.launches, changed.passes
    assert changed.go_on(after)
    assert answer(after, changed) == answer(after, fresh)
    assert changed.launches - made <= launches
    assert changed.passes - passes < fresh.passes
    assert next_launch(after, usable(changed.records, "", after)) is None
