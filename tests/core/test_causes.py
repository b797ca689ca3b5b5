"""The table of causes: every one has a sign, a remedy and a policy, and the study follows it."""

import pytest

from autotune.core.causes import (
    CAUSES,
    CauseRow,
    Direction,
    Policy,
    Reach,
    broken_launcher,
    ends_candidate,
    of_one_k,
    retried,
    stops_study,
    unstable_neighbours,
)
from autotune.core.trial import Cause, Failure, Record
from tests.builders import make_failure, make_record

POLICIES = {
    Policy.RETRY_ONCE: {
        Cause.MEMORY_OCCUPIED,
        Cause.PORT_TAKEN,
        Cause.WRONG_SERVER,
        Cause.COMPILE_CACHE,
        Cause.TRANSIENT,
        Cause.NO_TIME,
        Cause.INTERRUPTED,
    },
    Policy.BACK_OFF: {
        Cause.OUT_OF_MEMORY_START,
        Cause.OUT_OF_MEMORY_CAPTURE,
        Cause.OUT_OF_MEMORY_RUNTIME,
        Cause.UTILIZATION_TOO_HIGH,
        Cause.KV_CACHE_TOO_SMALL,
        Cause.LIVE_K_NOT_IN_FORCE,
    },
    Policy.SKIP_CANDIDATE: {
        Cause.MISSING_PACKAGE,
        Cause.MISSING_WEIGHTS,
        Cause.WEIGHTS_MISMATCH,
        Cause.VOCABULARY_MISMATCH,
        Cause.SAMPLING_BROKEN,
        Cause.DRAFT_USELESS,
    },
    Policy.STOP_STUDY: {
        Cause.LAUNCHER_BROKEN,
        Cause.ENGINE_TOO_OLD,
        Cause.PROXY_ANSWERED,
        Cause.DISK_FULL,
        Cause.WEDGED,
    },
}
"""Every other cause costs its point alone."""


def test_every_cause_has_a_row() -> None:
    """No cause is without sign, remedy and policy, and none is told like another."""
    assert set(CAUSES) == set(Cause)
    signs = [row.sign for row in CAUSES.values()]
    assert len(set(signs)) == len(signs)
    assert not [row for row in CAUSES.values() if row.sign.endswith(".")]


@pytest.mark.parametrize("cause", Cause)
def test_the_study_follows_the_policy_of_a_cause(cause: Cause) -> None:
    """What is tried again, what ends a candidate, what stops the study."""
    expected = next((p for p, causes in POLICIES.items() if cause in causes), Policy.SKIP_POINT)
    failure = make_failure(cause)
    assert CAUSES[cause].policy is expected
    assert retried(failure) is (expected is Policy.RETRY_ONCE)
    assert ends_candidate(failure) is (expected is Policy.SKIP_CANDIDATE)
    assert stops_study(failure) is (expected is Policy.STOP_STUDY)


@pytest.mark.parametrize(
    ("cause", "direction"),
    [
        (Cause.OUT_OF_MEMORY_START, Direction.FROM_ABOVE),
        (Cause.OUT_OF_MEMORY_CAPTURE, Direction.FROM_ABOVE),
        (Cause.OUT_OF_MEMORY_RUNTIME, Direction.FROM_ABOVE),
        (Cause.UTILIZATION_TOO_HIGH, Direction.FROM_ABOVE),
        (Cause.KV_CACHE_TOO_SMALL, Direction.FROM_BELOW),
        (Cause.MEMORY_OCCUPIED, None),  # says nothing about the candidate
        (Cause.CRASHED_START, None),
    ],
)
def test_memory_bounds_the_range_on_one_side(cause: Cause, direction: Direction | None) -> None:
    """Too much asked for bounds gpu_memory_utilization from above, too little from below."""
    assert CAUSES[cause].direction is direction


@pytest.mark.parametrize(
    ("cause", "starting", "measuring"),
    [
        (Cause.OUT_OF_MEMORY_START, True, True),
        (Cause.OUT_OF_MEMORY_CAPTURE, True, True),
        (Cause.KV_CACHE_TOO_SMALL, True, True),
        (Cause.CRASHED_START, False, True),
        (Cause.CRASHED_RUNTIME, False, True),
        (Cause.VOCABULARY_MISMATCH, False, False),
        (Cause.DRAFT_USELESS, False, False),
        (Cause.LIVE_K_NOT_IN_FORCE, False, False),
        (Cause.DISK_FULL, True, True),  # one record tells it
    ],
)
def test_whose_a_failure_is(cause: Cause, *, starting: bool, measuring: bool) -> None:
    """The K in hand alone, or every K of the launch."""
    assert of_one_k(cause, measuring=False) is starting
    assert of_one_k(cause, measuring=True) is measuring


@pytest.mark.parametrize(("policy", "sign"), [(Policy.SKIP_POINT, "seen"), (Policy.BACK_OFF, "")])
def test_a_row_checks_itself(policy: Policy, sign: str) -> None:
    """A direction belongs to what backs off, and a row without a sign explains nothing."""
    with pytest.raises(ValueError, match=r"direction|sign"):
        CauseRow(sign=sign, remedy="x", policy=policy, direction=Direction.FROM_ABOVE)


def crash(detail: str = "boom", after_s: float | None = 0.4) -> Failure:
    """A start that ended."""
    return Failure(cause=Cause.CRASHED_START, detail=detail, after_s=after_s)


def test_the_same_end_at_once_for_every_arm_is_the_launcher() -> None:
    """Dead within seconds, in one way, for all that were tried: the machine's fault."""
    found = broken_launcher([("eagle", crash()), ("ngram", crash())])
    assert found is not None
    assert found.cause is Cause.LAUNCHER_BROKEN
    assert found.detail == "boom"
    assert "launch.argv.json" in found.remedy


@pytest.mark.parametrize(
    "starts",
    [
        [],
        [("eagle", crash())],
        [("eagle", crash()), ("eagle", crash())],  # K by K
        [("eagle", crash()), ("ngram", crash("another"))],
        [("baseline", None), ("eagle", crash()), ("ngram", crash())],  # something did start
        [("eagle", crash(after_s=40.0)), ("ngram", crash(after_s=40.0))],  # vLLM itself
        [("eagle", crash(after_s=None)), ("ngram", crash(after_s=None))],
    ],
)
def test_other_ends_are_the_candidates_own(starts: list[tuple[str, Failure | None]]) -> None:
    """One candidate, different errors, or any launch that was ready: the study goes on."""
    assert broken_launcher(starts) is None


def failed(k: int, cause: Cause) -> Record:
    """A K of the head that failed."""
    return make_record("eagle", k, outcome=make_failure(cause))


def test_a_crash_beside_the_recommended_k_is_told() -> None:
    """With its cause, for the next K on either side that was tried."""
    records = [make_record("eagle", 1), make_record("eagle", 3), failed(5, Cause.CRASHED_RUNTIME)]
    assert unstable_neighbours(records, "eagle", 3) == [
        "eagle at K = 5, next to K = 3, failed (crashed_runtime): little room"
    ]
    assert unstable_neighbours(records, "eagle", 1) == []


@pytest.mark.parametrize(
    "other",
    [
        failed(5, Cause.PORT_TAKEN),  # says nothing of the configuration
        failed(5, Cause.LIVE_K_NOT_IN_FORCE),
        failed(0, Cause.CRASHED_RUNTIME),
        make_record("ngram", 5, outcome=make_failure(Cause.CRASHED_RUNTIME)),
    ],
)
def test_only_a_failure_of_the_neighbouring_k_is_told(other: Record) -> None:
    """What says nothing about the K, or about this candidate, is no remark."""
    assert unstable_neighbours([make_record("eagle", 3), other], "eagle", 3) == []


def test_reach_is_a_column_of_every_row() -> None:
    """A failure of the candidate reaches every K of its launch."""
    for row in CAUSES.values():
        if row.policy is Policy.SKIP_CANDIDATE:
            assert row.reach is Reach.LAUNCH
