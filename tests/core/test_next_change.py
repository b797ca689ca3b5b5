"""One change at a time: which one, why, and when there is none."""

from dataclasses import replace

import pytest

from autotune.core.trial import Cause, Failure, Record, Stage
from tests.builders_schedule import SPEC as SCHEDULED
from tests.builders_schedule import confirmed as confirmed_schedule
from tests.builders_steps import (
    DRAFT,
    NGRAM,
    SMALLER,
    World,
    of_reply,
    steps_record,
    steps_records,
    steps_spec,
)
from tests.diagnosing import explained

GOOD = World(overhead=0.0002, check=0.0001, draft=0.0005, profile=(0.9, 0.81, 0.73))
LOOKED_UP = World(overhead=0.0003, check=0.0002, coverage=0.5, profile=(0.6, 0.5, 0.4))


def confirmed(world: World, name: str, k: int) -> list[Record]:
    """A baseline and the winner as deployed, twice."""
    return [
        replace(
            steps_record(world, n, j, stage=Stage.CONFIRM, launch_id=f"c{i}{n}", live=False),
        )
        for i in range(2)
        for n, j in (("baseline", 0), (name, k))
    ]


def test_a_best_k_at_the_edge_asks_for_a_larger_one_with_what_it_promises() -> None:
    """The model's own figure, called one."""
    found = explained(steps_spec(DRAFT), steps_records({"draft": GOOD}))
    first = found.changes[0]
    assert first.what == "num_speculative_tokens of draft: 6"
    assert "its best K, 3, is the largest tried" in first.why
    longer = replace(GOOD, profile=tuple(0.9**i for i in range(1, 7)))
    assert first.promise == pytest.approx(of_reply(longer.speedup(6, 1)), rel=0.02)
    assert "expected: " in found.next_change


def test_where_the_model_speaks_against_a_larger_k_none_is_proposed() -> None:
    """What stands at the edge by a hair, with positions that are worth nothing any more."""
    flat = replace(GOOD, profile=(0.9, 0.5, 0.1), draft=0.0001)
    records = steps_records({"draft": flat})
    assert not any("largest tried" in c.why for c in explained(steps_spec(DRAFT), records).changes)


def test_a_k_that_failed_is_not_proposed() -> None:
    """Larger ones were tried and had no memory."""
    failure = Failure(cause=Cause.OUT_OF_MEMORY_RUNTIME, detail="none left", remedy="less")
    failed = replace(steps_record(GOOD, "draft", 5, launch_id="x"), outcome=failure)
    found = explained(steps_spec(DRAFT), [*steps_records({"draft": GOOD}), failed])
    assert not any("largest tried" in change.why for change in found.changes)
    assert found.changes[0].what == "target.engine_args.max_num_batched_tokens: lower"


def test_a_setting_comes_before_another_draft() -> None:
    """And there is one next change, whatever else may be tried."""
    weak = World(check=0.0001, draft=0.0006, profile=(0.3, 0.1, 0.03))
    rare = replace(LOOKED_UP, coverage=0.1)
    spec = steps_spec(DRAFT, NGRAM)
    found = explained(spec, steps_records({"draft": weak, "ngram": rare}))
    kinds = [change.another_draft for change in found.changes]
    assert kinds == sorted(kinds)
    assert any(kinds)
    assert "prompt_lookup_min of ngram: 1" in [change.what for change in found.changes]
    assert found.next_change == found.changes[0].sentence


def test_a_promise_that_is_no_gain_is_no_reason_to_try() -> None:
    """A faster draft would still lose where next to nothing is accepted."""
    spec = steps_spec(DRAFT, NGRAM)
    poor = World(overhead=0.004, check=0.0002, draft=0.006, profile=(0.10, 0.03, 0.01))
    found = explained(spec, steps_records({"draft": poor, "ngram": LOOKED_UP}))
    assert "draft_too_slow" in [f.diagnosis.id for f in found.of("draft")]
    assert not any("a tenth" in change.what for change in found.changes)


def test_a_candidate_that_never_ran_asks_for_its_own_remedy() -> None:
    """The failure's, for nothing else of it is known."""
    failure = Failure(cause=Cause.ENGINE_REFUSED, detail="vocab 1, 2", remedy="another vocabulary")
    record = replace(steps_record(GOOD, "smaller", 1, launch_id="x"), outcome=failure)
    done = [*steps_records({"draft": GOOD}), *confirmed(GOOD, "draft", 3), record]
    found = explained(steps_spec(DRAFT, SMALLER), done)
    whats = [change.what for change in found.changes]
    assert "for smaller: another vocabulary" in whats


def test_nothing_is_left_once_all_is_well() -> None:
    """A confirmed answer with the knee inside the range, and no diagnosis."""
    fine = World(overhead=0.0002, check=0.0001, draft=0.0014, profile=(0.85, 0.7, 0.1))
    done = [*steps_records({"draft": fine}), *confirmed(fine, "draft", 2)]
    found = explained(steps_spec(DRAFT), done)
    assert found.changes == ()
    assert found.next_change.startswith("nothing is left to try: the answer is confirmed")


def test_nothing_is_left_where_no_change_would_be_enough() -> None:
    """A lookup that cannot match less, in replies that repeat nothing."""
    shortest = replace(NGRAM, settings={"prompt_lookup_min": 1, "prompt_lookup_max": 3})
    rare = World(overhead=0.0018, check=0.0002, coverage=0.05, profile=(0.6, 0.3, 0.1))
    found = explained(steps_spec(shortest), steps_records({"ngram": rare}))
    assert [f.diagnosis.id for f in found.findings] == ["rarely_proposed"]
    assert found.next_change.startswith("nothing is left to try with these candidates")


def test_an_open_interval_asks_for_more_of_the_same() -> None:
    """Neither a gain nor a loss: no other setting, more measuring."""
    even = World(check=0.0001, draft=0.0045, overhead=0.0004, profile=(0.51, 0.02, 0.01))
    found = explained(steps_spec(DRAFT), steps_records({"draft": even}, (1, 2), blocks=2))
    assert any(change.what.startswith("search.budget") for change in found.changes)


def test_what_cannot_beat_the_answer_is_not_proposed_for_another_candidate() -> None:
    """A lookup that gains for one stream only, beside a draft that gains more at both levels."""
    plain = {1: 0.010, 8: 0.014}
    spec = steps_spec(DRAFT, NGRAM, levels={1: 1.0, 8: 1.0})
    best = replace(GOOD, plain=plain, check=0.00002)
    lost = replace(LOOKED_UP, plain=plain, check=0.0015)
    found = explained(spec, steps_records({"draft": best, "ngram": lost}))
    assert "batch_too_large" in [f.diagnosis.id for f in found.of("ngram")]
    assert not any("per_batch_size" in change.what for change in found.changes)
    alone = explained(steps_spec(NGRAM, levels={1: 1.0, 8: 1.0}), steps_records({"ngram": lost}))
    assert any("per_batch_size" in change.what for change in alone.changes)


def test_a_schedule_that_was_launched_is_not_proposed_again() -> None:
    """Before its launch it is; afterwards the answer says what came of it."""
    records = confirmed_schedule({1: 1.6, 4: 1.0})
    before = [r for r in records if r.trial.stage is not Stage.SCHEDULE]
    told = [
        [
            change.what
            for change in explained(SCHEDULED, known).changes
            if "batch_size" in change.what
        ]
        for known in (before, records)
    ]
    assert told == [
        ["num_speculative_tokens_per_batch_size of eagle: K = 3 up to 1 requests, 0 from 4 on"],
        [],
    ]
