"""What a verification launches, and what it makes of it."""

from dataclasses import replace

import pytest

from autotune.core.jsontype import JSON
from autotune.core.study import Constraint, Objective, Search, StudySpec
from autotune.core.trial import BASELINE, Cause, Failure, Measurement, Record, Stage
from autotune.core.verification import (
    Change,
    State,
    changes,
    launches_ahead,
    next_verification,
    verification,
)
from tests.builders import GMU, make_candidates, make_record, make_spec
from tests.builders_study import make_confirmation

HEAD = replace(make_candidates()[0], num_speculative_tokens=(2,))
SPEC = make_spec(
    candidates=[HEAD], search=Search(gpu_memory_utilization=(GMU,), confirm_rounds=2, max_blocks=3)
)
PLAIN = replace(SPEC, candidates=())
CHANGE = Change(path="device", old="one", new="another")


def failure(name: str, cause: Cause = Cause.CRASHED_START) -> Record:
    """A launch of the confirmation that did not start."""
    k = 0 if name == BASELINE else 2
    outcome = Failure(cause=cause, detail="it ended", remedy="read the log")
    return make_record(name, k, Stage.CONFIRM, outcome=outcome)


def order(spec: StudySpec, remaining_s: float | None = None) -> list[tuple[str, int]]:
    """Name and repeat of each launch when every one of them is measured."""
    records: list[Record] = []
    found = []
    while launch := next_verification(spec, records, remaining_s):
        found.append((launch.name, launch.repeat))
        assert launch.stage is Stage.CONFIRM
        assert not launch.live
        (k,) = launch.num_speculative_tokens
        records.append(make_record(launch.name, k, Stage.CONFIRM, repeat=launch.repeat))
    return found


def test_plain_decoding_and_the_deployment_are_launched_in_turn() -> None:
    """A B A B, cold; and once where there is nothing to compare."""
    assert order(SPEC) == [(BASELINE, 0), ("eagle", 0), (BASELINE, 1), ("eagle", 1)]
    assert order(PLAIN) == [(BASELINE, 0)]
    assert (launches_ahead(SPEC), launches_ahead(PLAIN)) == (4, 1)


def test_a_budget_is_shared_and_ends_it() -> None:
    """Each launch gets its part of what the starts leave; without time for one nothing begins."""
    first = next_verification(SPEC, [], remaining_s=1000.0)
    assert first is not None
    assert first.measure_s is not None
    assert 4 * first.measure_s < 1000.0
    assert next_verification(SPEC, [], remaining_s=1.0) is None
    assert verification(SPEC, []).state is State.NOT_DONE


@pytest.mark.parametrize(
    ("scale", "state"),
    [(1.0, State.STILL_GOOD), (0.6, State.STALE), (0.778, State.UNDECIDED)],
)
def test_it_is_judged_as_a_study_is(scale: float, state: State) -> None:
    """The interval above 1 is still good, below is stale, around it is undecided."""
    found = verification(SPEC, make_confirmation("eagle", 2, scale=scale))
    assert found.state is state, found.reason
    assert found.result.speedup is not None
    assert found.result.speedup.show() in found.reason


def test_a_gain_that_was_asked_for_is_still_asked_for() -> None:
    """1.29x is stale where two times was wanted."""
    spec = replace(SPEC, objective=Objective(min_gain=1.0))
    assert verification(spec, make_confirmation("eagle", 2)).state is State.STALE


def test_a_broken_constraint_is_stale_with_its_figures() -> None:
    """Speed does not make up for it."""
    limit = Constraint(metric="p99_tpot_ms", upper=1.0)
    spec = replace(SPEC, objective=Objective(constraints=(limit,)))
    found = verification(spec, make_confirmation("eagle", 2))
    assert found.state is State.STALE
    assert "p99_tpot_ms" in found.reason


@pytest.mark.parametrize(("name", "who"), [("eagle", "the deployment"), (BASELINE, "plain")])
def test_what_does_not_start_is_broken_at_once(name: str, who: str) -> None:
    """One failure that is no accident ends it, with cause and remedy."""
    records = [failure(name)]
    assert next_verification(SPEC, records) is None
    found = verification(SPEC, records)
    assert found.state is State.BROKEN
    assert found.reason.startswith(who)
    assert "crashed_start: it ended; read the log" in found.reason


def test_an_accident_is_tried_once_more() -> None:
    """A port that was taken says nothing; twice in a row it ends the verification."""
    taken = failure("eagle", Cause.PORT_TAKEN)
    again = next_verification(SPEC, [make_record(stage=Stage.CONFIRM), taken])
    assert again is not None
    assert again.name == "eagle"
    assert verification(SPEC, [taken, taken]).state is State.BROKEN


def test_a_launch_without_a_valid_block_is_not_repeated_for_ever() -> None:
    """Two launches that give no two blocks are the end of it, and nothing is claimed."""
    empty = [replace(r, outcome=Measurement(passes=())) for r in make_confirmation("eagle", 2) * 2]
    assert next_verification(SPEC, empty) is None
    assert verification(SPEC, empty).state is State.UNDECIDED


def test_plain_decoding_is_stale_when_something_changed() -> None:
    """Whether speculation pays now only another study can tell."""
    records = [make_record(stage=Stage.CONFIRM)]
    assert verification(PLAIN, records).state is State.STILL_GOOD
    assert verification(PLAIN, records, [CHANGE]).state is State.STALE
    assert verification(PLAIN, [failure(BASELINE)], [CHANGE]).state is State.BROKEN


def test_changes_are_told_field_by_field() -> None:
    """Nested values by their paths; what the old document does not know is no change."""
    old: dict[str, JSON] = {"device": "A", "engine": {"version": "1", "env": {"X": "1", "Y": "2"}}}
    new: dict[str, JSON] = {
        "device": "A",
        "driver": "9",
        "engine": {"version": "2", "env": {"X": "1", "Z": "3"}},
    }
    found = changes(old, new, ["device", "driver", "engine.version", "engine.env"])
    assert [(c.path, c.old, c.new) for c in found] == [
        ("engine.version", "1", "2"),
        ("engine.env.Y", "2", None),
        ("engine.env.Z", None, "3"),
    ]
    assert found[0].show() == "engine.version: 1 -> 2"
    assert found[1].show() == "engine.env.Y: 2 -> not there"
