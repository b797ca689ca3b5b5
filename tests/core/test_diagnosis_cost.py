"""Diagnoses by what steps cost, and by the load."""

from dataclasses import replace

import pytest

from autotune.core.replychecks import ReplyChecks
from autotune.core.textcheck import TextMatch
from autotune.core.trial import BASELINE, Cause, Failure, Measurement, Record
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
from tests.diagnosing import explained, ids, the

ALIGNED = (0.8, 0.65, 0.53)
LOOKED_UP = World(overhead=0.0003, check=0.0002, coverage=0.5, profile=(0.6, 0.5, 0.4))


def both(draft: World) -> list[Record]:
    """A draft model beside a lookup, which tells what checking costs."""
    return steps_records({"draft": draft, "ngram": LOOKED_UP})


def test_a_slow_draft_is_told_with_its_own_step() -> None:
    """Acceptance is fine, and there is no gain: 90 % of the target's step for each token."""
    spec = steps_spec(DRAFT, NGRAM)
    slow = World(check=0.0002, draft=0.009, profile=ALIGNED)
    found = the("draft_too_slow", spec, both(slow))
    assert found.candidate == "draft"
    assert "9.0 ms (90% of the target's step)" in found.seen.numbers
    assert found.seen.promise is not None
    faster = replace(slow, draft=0.001)
    assert found.seen.promise == pytest.approx(of_reply(faster.speedup(3, 1)), rel=0.02)
    assert "not_aligned" not in " ".join(ids(spec, both(slow)))


def test_a_draft_that_gains_is_not_too_slow() -> None:
    """Whatever its step takes."""
    gains = World(check=0.0002, draft=0.0025, profile=(0.95, 0.9, 0.85))
    spec = steps_spec(DRAFT, NGRAM)
    assert "draft_too_slow" not in ids(spec, both(gains))


def test_a_fifth_is_beyond_a_doubt_or_it_is_not_told() -> None:
    """19 % is no fifth, and neither is 21 % known within 3."""
    spec = steps_spec(DRAFT, NGRAM)
    for share, told in ((0.0019, False), (0.0021, False), (0.0030, True)):
        found = ids(spec, both(World(check=0.0002, draft=share, profile=(0.3, 0.1, 0.03))))
        assert ("draft_too_slow" in found) is told, share


def test_for_one_stream_a_drafted_token_is_nearly_all_the_drafts() -> None:
    """A study of one candidate at one level: nothing tells checking, which is then next to free."""
    spec = steps_spec(DRAFT)
    slow = World(check=0.0002, draft=0.009, profile=ALIGNED)
    found = the("draft_too_slow", spec, steps_records({"draft": slow}))
    assert "9.2 ms (92% of the target's step)" in found.seen.numbers
    assert "about 5% are checking" in found.seen.numbers
    at_4 = replace(slow, plain={4: 0.010})
    spec = steps_spec(DRAFT, levels={4: 1.0})
    assert "draft_too_slow" not in ids(spec, steps_records({"draft": at_4}))


def test_overhead_that_a_larger_k_would_spread() -> None:
    """6 ms beside steps of 10, a perfect draft that costs nothing: K = 6 is expected to gain."""
    spec = steps_spec(DRAFT, NGRAM)
    heavy = World(overhead=0.030, check=0.0002, draft=0.0002, profile=(0.97, 0.94, 0.91))
    found = the("step_overhead", spec, both(heavy))
    assert "30.0 ms (300% of the target's step)" in found.seen.numbers
    assert "at K = 6 the model expects" in found.seen.numbers
    assert found.seen.change == "num_speculative_tokens of draft: 6"


def test_overhead_with_a_draft_that_is_not_accepted_is_not_spread() -> None:
    """A larger K is not proposed where it would lose more."""
    spec = steps_spec(DRAFT, NGRAM)
    heavy = World(overhead=0.006, check=0.0002, draft=0.001, profile=(0.3, 0.1, 0.03))
    found = the("step_overhead", spec, both(heavy))
    assert found.seen.change == ""


def test_a_small_target_is_one_of_which_every_draft_is_a_good_part() -> None:
    """Two drafts, the cheapest at 15 % of a step, and no gain: no smaller one pays."""
    spec = steps_spec(DRAFT, SMALLER, NGRAM)
    world = World(check=0.0002, draft=0.0030, profile=(0.12, 0.04, 0.01))
    records = steps_records(
        {"draft": world, "smaller": replace(world, draft=0.0015), "ngram": LOOKED_UP}
    )
    found = the("small_target", spec, records)
    assert found.candidate is None
    assert "the cheapest of 2 drafts (smaller) 1.5 ms (15%" in found.seen.numbers
    assert not any("a tenth" in change.what for change in explained(spec, records).changes)


def test_one_slow_draft_does_not_make_a_target_small() -> None:
    """A smaller draft may be had."""
    world = World(check=0.0002, draft=0.0030, profile=(0.3, 0.1, 0.03))
    assert "small_target" not in ids(steps_spec(DRAFT, NGRAM), both(world))


PLAIN = {1: 0.010, 8: 0.014}
LEVELS = {1: 1.0, 8: 1.0}


def test_a_gain_that_is_gone_at_a_higher_concurrency_is_switched_off_there() -> None:
    """Checking is 1.5 ms for a token, and 8 requests have many."""
    spec = steps_spec(NGRAM, levels=LEVELS)
    world = World(plain=PLAIN, check=0.0015, coverage=0.5, profile=(0.6, 0.5, 0.4))
    found = the("batch_too_large", spec, steps_records({"ngram": world}))
    assert found.seen.concurrency == 8
    assert "at concurrency 1, " in found.seen.numbers
    assert "there checking K =" in found.seen.numbers
    assert found.seen.change.startswith("num_speculative_tokens_per_batch_size of ngram: K = ")
    assert found.seen.change.endswith("up to 1 requests, 0 from 8 on")


def test_a_gain_that_is_smaller_at_a_higher_concurrency_is_not_gone() -> None:
    """1.5 and 1.2 are both gains."""
    spec = steps_spec(NGRAM, levels=LEVELS)
    world = World(plain=PLAIN, check=0.0002, coverage=0.5, profile=(0.6, 0.5, 0.4))
    assert "batch_too_large" not in ids(spec, steps_records({"ngram": world}))


def test_preemptions_are_memory_and_not_the_draft() -> None:
    """Counted beside those of plain decoding."""
    spec = steps_spec(DRAFT)
    world = World(check=0.0001, draft=0.0005, profile=ALIGNED)
    records = [_preempted(r, 3) for r in steps_records({"draft": world})]
    found = the("memory_bound", spec, records)
    assert "36 preemptions in 96 requests, 0 in 32 of plain decoding" in found.seen.numbers
    assert found.seen.change.startswith("gpu_memory_utilization")
    assert "memory_bound" not in ids(spec, [_preempted(r, 0) for r in records])


def test_preemptions_where_less_memory_was_tried_are_no_diagnosis() -> None:
    """The search may look for the least that is enough."""
    world = World(check=0.0001, draft=0.0005, profile=ALIGNED)
    records = steps_records({"draft": world})
    tight = [_preempted(_with_less_memory(r), 3) for r in records if r.trial.candidate == "draft"]
    assert "memory_bound" not in ids(steps_spec(DRAFT), [*records, *tight])


def _with_less_memory(record: Record) -> Record:
    trial = replace(record.trial, gpu_memory_utilization=0.1)
    return replace(record, trial=trial, launch_id="tight")


def _preempted(record: Record, count: int) -> Record:
    assert record.measurement
    n = count if record.trial.num_speculative_tokens else 0
    passes = tuple(replace(p, preemptions=n) for p in record.measurement.passes)
    return replace(record, outcome=Measurement(passes=passes))


def failed(k: int, cause: Cause) -> Record:
    """A launch that ended at this K."""
    record = steps_record(World(), "draft", k, launch_id="f")
    return replace(record, outcome=Failure(cause=cause, detail="no memory left", remedy="less"))


def test_memory_that_verification_lacks_asks_for_a_smaller_k() -> None:
    """K = 3 was served, K = 8 was not."""
    spec = steps_spec(DRAFT)
    world = World(check=0.0001, draft=0.0005, profile=ALIGNED)
    records = [*steps_records({"draft": world}), failed(8, Cause.OUT_OF_MEMORY_RUNTIME)]
    found = the("verification_out_of_memory", spec, records)
    assert "out of memory at K = 8, K = 3 was served: no memory left" in found.seen.numbers
    assert "max_num_batched_tokens" in found.diagnosis.remedy
    assert not any("num_speculative_tokens" in c.what for c in explained(spec, records).changes)


def test_a_draft_that_never_started_for_lack_of_memory_is_no_matter_of_k() -> None:
    """Its weights may not fit at any K."""
    spec = steps_spec(DRAFT)
    records = [steps_record(World()), failed(3, Cause.OUT_OF_MEMORY_START)]
    assert ids(spec, records) == []
    assert "less" in explained(spec, records).next_change
    assert "verification_out_of_memory" in ids(
        spec, [steps_record(World()), failed(3, Cause.OUT_OF_MEMORY_RUNTIME)]
    )


def test_replies_so_short_that_the_first_token_dominates() -> None:
    """17 tokens after 300 ms: even for free they could not double the speed."""
    spec = steps_spec(DRAFT)
    world = World(draft=0.006, profile=(0.5, 0.3, 0.1), reply_tokens=17, first_token_s=0.3)
    records = steps_records({"draft": world}, blocks=6)
    found = the("short_replies", spec, records)
    assert "replies have 17 tokens, and the first takes 65% of their time" in found.seen.numbers
    assert "1.5 times the speed" in found.seen.numbers
    assert "short_replies" not in ids(
        spec, steps_records({"draft": replace(world, first_token_s=0.03)})
    )


def match(candidate: str, early: int, compared: int = 40) -> TextMatch:
    """So many of the replies part at once."""
    return TextMatch(
        split="search",
        candidate=candidate,
        num_speculative_tokens=2 if candidate != BASELINE else 0,
        concurrency=None,
        compared=compared,
        matched=compared - early,
        words_before=1.0,
        tokens_before=2.0,
        early=early,
    )


def test_greedy_text_that_parts_at_once_is_told_beside_two_plain_launches() -> None:
    """Rounding parts replies later; an engine that does not repeat itself says nothing."""
    spec, world = steps_spec(DRAFT), World(check=0.0001, draft=0.0005, profile=ALIGNED)
    records = steps_records({"draft": world})
    checks = ReplyChecks(matches=(match("draft", 30), match(BASELINE, 2)))
    found = the("greedy_text_differs", spec, records, checks)
    assert "30 of 40 replies at K = 2" in found.seen.numbers
    assert "between two plain launches 38 of 40 replies match" in found.seen.numbers
    restless = ReplyChecks(matches=(match("draft", 30), match(BASELINE, 35)))
    assert ids(spec, records, restless) == []
    assert ids(spec, records, ReplyChecks(matches=(match("draft", 3, compared=4),))) == []
