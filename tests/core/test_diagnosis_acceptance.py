"""Diagnoses by acceptance: each situation fires its own, and noise or health fires none."""

from dataclasses import replace

import pytest

from autotune.core.study import Candidate, StudySpec
from autotune.core.trial import Measurement, Record
from tests.builders_steps import (
    DFLASH,
    DRAFT,
    MTP,
    NGRAM,
    World,
    of_reply,
    steps_record,
    steps_records,
    steps_spec,
)
from tests.diagnosing import explained, ids, the

SPEC = steps_spec(DRAFT)
HEALTHY = World(overhead=0.0002, check=0.0001, draft=0.0008, profile=(0.8, 0.65, 0.53))


def study(profile: tuple[float, ...], ks: tuple[int, ...] = (1, 2, 3)) -> list[Record]:
    """A study of a cheap draft with this acceptance by position."""
    return steps_records({"draft": replace(HEALTHY, profile=profile)}, ks)


def test_a_healthy_draft_has_no_diagnosis() -> None:
    """Two thirds accepted, a cheap step, a gain at every K."""
    assert ids(SPEC, study((0.8, 0.65, 0.53))) == []


def test_low_already_at_k_3_is_a_draft_that_is_not_aligned() -> None:
    """(0.30 + 0.10 + 0.04) / 3 of the tokens; change the draft."""
    found = the("draft_not_aligned", SPEC, study((0.30, 0.10, 0.04)))
    assert "15% of the tokens drafted at K = 3" in found.seen.numbers
    assert "30%, 10%, 4%" in found.seen.numbers
    assert "another one" in found.diagnosis.remedy
    assert found.seen.another_draft
    assert found.seen.promise == pytest.approx(of_reply(2.5 * 10.0 / 12.9), rel=0.01)


def test_first_positions_of_a_larger_k_tell_the_same() -> None:
    """K = 3 itself need not have been tried: positions do not depend on what follows."""
    found = the("draft_not_aligned", SPEC, study((0.30, 0.10, 0.04, 0.02, 0.01), ks=(5,)))
    assert "15% of the tokens drafted at K = 3" in found.seen.numbers


def test_below_half_at_k_1_is_below_half_at_3_as_well() -> None:
    """The rate only falls with K."""
    assert "draft_not_aligned" in ids(SPEC, study((0.35,), ks=(1,)))


def test_just_below_half_is_no_diagnosis_while_the_interval_holds_half() -> None:
    """49 % of a few hundred tokens may well be half."""
    world = replace(HEALTHY, profile=(0.49,))
    records = [steps_record(world), steps_record(world, "draft", 1, blocks=1)]
    assert ids(SPEC, records) == []
    assert ids(SPEC, study((0.40,), ks=(1,))) == ["draft_not_aligned"]


def test_few_drafts_say_nothing() -> None:
    """A dozen drafts, none accepted: insufficient, not useless."""
    record = steps_record(replace(HEALTHY, profile=(0.0,)), "draft", 1, blocks=2)
    few = _with_drafts(record, 6)
    assert ids(SPEC, [steps_record(HEALTHY), few]) == []


def test_good_at_3_and_collapsed_at_7_asks_for_4_or_5() -> None:
    """Beyond what arithmetic alone makes of a good draft."""
    profile = (0.8, 0.65, 0.53, 0.10, 0.02, 0.01, 0.01)
    found = the("k_too_large", SPEC, study(profile, ks=(1, 3, 7)))
    assert "66% accepted at K = 3, 30% at K = 7" in found.seen.numbers
    assert found.seen.change == "num_speculative_tokens of draft: 4 and 5"
    assert found.diagnosis.remedy == "K back to 4 or 5"


def test_a_rate_that_falls_by_arithmetic_alone_is_no_collapse() -> None:
    """One constant acceptance of 0.75: 58 % at K = 3, 37 % at K = 7."""
    profile = tuple(0.75**i for i in range(1, 8))
    assert "k_too_large" not in ids(SPEC, study(profile, ks=(1, 3, 7)))


def test_k_that_were_tried_are_not_proposed_again() -> None:
    """4 and 5 are in the curve already."""
    profile = (0.8, 0.65, 0.53, 0.10, 0.02, 0.01, 0.01)
    assert the("k_too_large", SPEC, study(profile, ks=(3, 4, 5, 7))).seen.change == ""


def test_nothing_accepted_anywhere_is_said_once() -> None:
    """One diagnosis with the causes in order, not four."""
    found = explained(SPEC, study((0.0, 0.0, 0.0))).findings
    assert [finding.diagnosis.id for finding in found] == ["never_accepted"]
    assert found[0].seen.numbers.startswith("0 of ")


def test_a_block_drafter_beyond_its_block_loses_the_first_position_too() -> None:
    """Trained for blocks of 5: 0.6 of the first tokens at K = 5, 0.18 at K = 7."""
    good = replace(HEALTHY, profile=(0.6, 0.45, 0.3, 0.2, 0.15))
    bad = replace(HEALTHY, profile=(0.18, 0.06, 0.03, 0.02, 0.01, 0.01, 0.01))
    records = [
        steps_record(good),
        steps_record(good, "dflash", 5, launch_id="a"),
        steps_record(bad, "dflash", 7, launch_id="b"),
    ]
    found = the("beyond_trained_block", steps_spec(DFLASH), records)
    assert "18% of the drafts at K = 7, in 60% at K = 5" in found.seen.numbers
    assert found.seen.change == "num_speculative_tokens of dflash: at most 5"


def test_a_first_position_that_stays_is_within_the_block() -> None:
    """Later positions may fall as they like."""
    assert "beyond_trained_block" not in ids(SPEC, study((0.6, 0.3, 0.1, 0.05, 0.05), ks=(1, 5)))


def test_mtp_beyond_its_layers_decays() -> None:
    """Positions of which nothing is accepted: K up to the last that is, and no engine bug."""
    world = replace(HEALTHY, profile=(0.8, 0.5, 0.002, 0.0, 0.0))
    found = the(
        "deep_positions_never_accepted", steps_spec(MTP), steps_records({"mtp": world}, (5,))
    )
    assert "from position 3 on, where the same layer runs again" in found.seen.numbers
    assert found.seen.change == "num_speculative_tokens of mtp: at most 2"


def test_low_where_it_is_fastest_asks_for_a_better_draft_or_less_k() -> None:
    """Good at K = 3, below half at the K that the curve picks."""
    profile = (0.75, 0.60, 0.47, 0.38, 0.30, 0.24, 0.20, 0.16)
    found = the("low_acceptance", SPEC, study(profile, ks=(3, 8)))
    assert "39% of the tokens drafted at K = 8" in found.seen.numbers
    assert "smaller K" in found.diagnosis.remedy


def lookups(coverage: float, candidate: Candidate = NGRAM) -> tuple[StudySpec, list[Record]]:
    """A study of a lookup that proposes something in this share of the steps."""
    world = World(overhead=0.0005, check=0.0002, profile=(0.6, 0.4, 0.3), coverage=coverage)
    return steps_spec(candidate), steps_records({candidate.name: world})


def test_a_lookup_that_rarely_proposes_asks_for_a_shorter_match() -> None:
    """A draft in a tenth of the steps."""
    found = the("rarely_proposed", *lookups(0.1))
    assert "(10%)" in found.seen.numbers
    assert found.seen.change == "prompt_lookup_min of ngram: 1"


def test_without_a_window_the_shortest_match_is_that_of_vllm() -> None:
    """5 tokens: shorter ones are proposed. One that is 1 already cannot be shorter."""
    default = replace(NGRAM, settings={})
    assert the("rarely_proposed", *lookups(0.1, default)).seen.change.endswith(": 2")
    shortest = replace(NGRAM, settings={"prompt_lookup_min": 1, "prompt_lookup_max": 4})
    assert the("rarely_proposed", *lookups(0.1, shortest)).seen.change == ""


def test_a_lookup_that_proposes_in_half_of_the_steps_is_healthy() -> None:
    """As the recorded demo's does, which gains."""
    assert "rarely_proposed" not in ids(*lookups(0.5))


def _with_drafts(record: Record, drafts: int) -> Record:
    assert record.measurement
    passes = tuple(
        replace(p, spec=replace(p.spec, drafts=drafts, draft_tokens=drafts))
        for p in record.measurement.passes
        if p.spec
    )
    return replace(record, outcome=Measurement(passes=passes))
