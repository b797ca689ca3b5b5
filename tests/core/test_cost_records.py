"""The cost model's measurements out of records, synthetic ones and the recorded demo's."""

from dataclasses import replace

import pytest

from autotune.core.cost import Cost, Line, StepCost
from autotune.core.cost_records import step_costs
from autotune.core.noise import Noise, noise_of
from autotune.core.study import Candidate, StudySpec
from autotune.core.trial import Measurement, Record, Stage
from tests.builders_demo import DEMO, demo_study
from tests.builders_steps import (
    DFLASH,
    DRAFT,
    NGRAM,
    World,
    steps_record,
    steps_records,
    steps_spec,
)

PLAIN = {1: 0.010, 4: 0.014}
LEVELS = {1: 1.0, 4: 1.0}
DRAFTED = World(plain=PLAIN, overhead=0.001, check=0.0004, draft=0.0025)
LOOKED_UP = World(plain=PLAIN, overhead=0.002, check=0.0004, coverage=0.5)


def costs(spec: StudySpec, records: list[Record], concurrency: int, name: str) -> StepCost:
    """The costs of one candidate at one level."""
    return step_costs(spec, records, noise_of(records, spec.workload.levels))[concurrency][name]


def told(cost: Cost | None) -> Cost:
    """A cost that is known."""
    assert cost is not None
    return cost


def line(cost: StepCost) -> Line:
    """The line through its steps."""
    assert cost.line is not None
    return cost.line


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_lookup_tells_checking_and_so_the_draft(concurrency: int) -> None:
    """Checking is the target's work: a slope that is nothing else gives it to all."""
    spec = steps_spec(DRAFT, NGRAM, levels=LEVELS)
    records = steps_records({"draft": DRAFTED, "ngram": LOOKED_UP})
    found = costs(spec, records, concurrency, "draft")
    assert told(found.draft).seconds == pytest.approx(0.0025, rel=0.01)
    assert told(found.check).seconds == pytest.approx(0.0004 * concurrency, rel=0.01)
    assert told(found.overhead).seconds == pytest.approx(0.001, rel=0.01)
    assert "ngram" in told(found.draft).source
    lookup = costs(spec, records, concurrency, "ngram")
    assert [s.drafted for s in lookup.steps] == pytest.approx([0.5, 1.0, 1.5], rel=1e-2)
    assert lookup.draft is None


def test_without_a_lookup_plain_decoding_at_two_levels_tells_checking() -> None:
    """A sequence more is a token more in a step."""
    plain = {1: 0.010, 4: 0.0112}
    world = replace(DRAFTED, plain=plain)
    spec = steps_spec(DRAFT, levels=LEVELS)
    for c in (1, 4):
        found = costs(spec, steps_records({"draft": world}), c, "draft")
        assert told(found.check).seconds == pytest.approx(0.0004 * c, rel=0.01)
        assert told(found.draft).seconds == pytest.approx(0.0025, rel=0.01)
        assert "concurrency" in told(found.draft).source


def test_checking_costs_no_more_than_a_drafted_token_in_all() -> None:
    """Where a sequence more is dear, and a drafted token is cheap."""
    spec = steps_spec(DRAFT, levels=LEVELS)
    world = World(plain={1: 0.010, 4: 0.040}, draft=0.001)
    found = costs(spec, steps_records({"draft": world}), 1, "draft")
    assert told(found.draft).seconds == 0.0
    assert told(found.check).seconds == pytest.approx(0.001, rel=0.01)


def test_alone_at_one_level_drafting_and_checking_stay_together() -> None:
    """Nothing was measured that tells them apart."""
    world = replace(DRAFTED, plain={1: 0.010})
    found = costs(steps_spec(DRAFT), steps_records({"draft": world}), 1, "draft")
    assert (found.check, found.draft) == (None, None)
    assert line(found).slope.seconds == pytest.approx(0.0029, rel=0.01)


def test_live_k0_is_what_speculation_costs_a_step_that_drafts_nothing() -> None:
    """It is no measure of the draft, whose head does not run then."""
    world = replace(DRAFTED, plain={1: 0.010})
    standby = steps_record(replace(world, plain={1: 0.0115}), "draft", 0)
    found = costs(steps_spec(DRAFT), [*steps_records({"draft": world}), standby], 1, "draft")
    assert found.standby_s == pytest.approx(0.0015)
    assert found.ks == (1, 2, 3)


def test_a_block_drafter_has_its_forward_in_the_overhead() -> None:
    """By its method, and by a setting of another method."""
    world = World(overhead=0.003, check=0.0005)
    block = Candidate(
        name="pard", method="draft_model", model="/m", settings={"parallel_drafting": True}
    )
    for candidate in (DFLASH, block):
        records = steps_records({candidate.name: world})
        found = costs(steps_spec(candidate), records, 1, candidate.name)
        assert found.split(3).drafting_s == 0.0
        assert found.split(3).checking_s == pytest.approx(0.0015, rel=0.01)


def test_the_confirmation_has_other_prompts_and_stays_out() -> None:
    """All K of a line ran the same ones."""
    world = replace(DRAFTED, plain={1: 0.010})
    slow = replace(world, plain={1: 0.020})
    records = steps_records({"draft": world})
    records += [steps_record(slow, "draft", 2, stage=Stage.CONFIRM, launch_id="9")]
    found = costs(steps_spec(DRAFT), records, 1, "draft")
    assert found.at(2).seconds == pytest.approx(world.step_s(2, 1))


def test_k_with_a_launch_each_are_less_sure() -> None:
    """Equal launches differ, which a line within one launch does not feel."""
    world = replace(DRAFTED, plain={1: 0.010})
    spec, live = steps_spec(DRAFT), steps_records({"draft": world})
    static = [replace(r, launch_id=f"{r.launch_id}{r.trial.num_speculative_tokens}") for r in live]
    one, other = (costs(spec, records, 1, "draft") for records in (live, static))
    assert line(other).slope.error_s > line(one).slope.error_s
    assert line(other).slope.seconds == pytest.approx(line(one).slope.seconds)


def test_one_pass_is_no_step_time() -> None:
    """Nor are passes whose steps could not be told."""
    world = replace(DRAFTED, plain={1: 0.010})
    spec = steps_spec(DRAFT)
    once = steps_records({"draft": world}, blocks=1)
    assert step_costs(spec, once, noise(once)) == {}
    blind = [_without_steps(r) for r in steps_records({"draft": world})]
    assert step_costs(spec, blind, noise(blind)) == {}


def test_prefills_of_others_are_a_part_of_their_own() -> None:
    """Where the passes tell them apart: a step carries 2 ms of them in the mean."""
    world = replace(DRAFTED, plain={1: 0.010})
    records = [_carrying(r, 0.002) for r in steps_records({"draft": world})]
    found = costs(steps_spec(DRAFT), records, 1, "draft")
    assert found.split(2).carried_s == pytest.approx(0.002)
    assert found.at(2).seconds == pytest.approx(world.step_s(2, 1))
    expected = world.tokens(2) * 0.012 / (world.step_s(2, 1) + 0.002)
    assert found.speedup(2) == pytest.approx(expected, rel=1e-2)


def noise(records: list[Record]) -> Noise:
    """The noise of these records."""
    return noise_of(records, steps_spec(DRAFT).workload.levels)


def _without_steps(record: Record) -> Record:
    assert record.measurement
    passes = tuple(replace(p, steps=None) for p in record.measurement.passes)
    return replace(record, outcome=Measurement(passes=passes))


def _carrying(record: Record, seconds: float) -> Record:
    assert record.measurement
    passes = tuple(
        replace(p, steps=replace(p.steps, step_s=p.steps.step_s + seconds))
        for p in record.measurement.passes
        if p.steps
    )
    return replace(record, outcome=Measurement(passes=passes))


def test_the_recorded_demo_leaves_one_k_out_within_a_few_percent() -> None:
    """Real steps of four candidates at two levels lie on lines."""
    records = demo_study()
    found = step_costs(DEMO, records, noise_of(records, DEMO.workload.levels))
    errors = {
        (c, name): cost.left_out_error for c, known in found.items() for name, cost in known.items()
    }
    assert len(errors) == 8
    assert all(error is not None and error < 0.12 for error in errors.values()), errors


def test_the_recorded_demo_says_where_its_steps_go() -> None:
    """Checking a token costs 0.8 ms per request, a draft 3 ms of a step of 16 and 5 to 7 of 19."""
    records = demo_study()
    found = step_costs(DEMO, records, noise_of(records, DEMO.workload.levels))
    for c, known in found.items():
        check = known["ngram"].check
        assert check is not None
        assert check.seconds / c == pytest.approx(0.8e-3, rel=0.15)
    shares = {
        (c, name): told(known[name].draft).seconds / known[name].plain.seconds
        for c, known in found.items()
        for name in ("draft-2l", "draft-4l", "eagle")
    }
    assert all(0.15 < share < 0.22 for (c, _), share in shares.items() if c == 1), shares
    assert all(0.22 < share < 0.40 for (c, _), share in shares.items() if c == 4), shares
