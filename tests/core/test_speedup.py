"""From records to curves: known ratios in, known speedups out."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.core.arms import arms
from autotune.core.comparison import compare, comparer
from autotune.core.noise import PRIOR_SD, noise_of
from autotune.core.speedup import SpeedupCurve, curves, overall_ratio
from autotune.core.study import Constraint, Objective, StudySpec
from autotune.core.trial import BASELINE, Record, Stage
from tests.builders import BASE, make_failure, make_record, make_spec, make_workload
from tests.builders_study import SPEEDUPS, make_study_records, tput_of

SPEC = make_spec()
SEARCH = make_study_records(confirmed=False)


def curves_of(records: Sequence[Record], spec: StudySpec = SPEC) -> tuple[SpeedupCurve, ...]:
    """The curves with the launch effect of the same records."""
    return curves(spec, records, noise_of(records, spec.workload.levels))


def curve_of(
    records: Sequence[Record], name: str, concurrency: int | None = None, spec: StudySpec = SPEC
) -> SpeedupCurve:
    """One candidate's curve at one level, or its overall curve."""
    found = curves_of(records, spec)
    return next(c for c in found if (c.candidate, c.concurrency) == (name, concurrency))


def ks_of(curve: SpeedupCurve) -> list[int]:
    """The K of a curve's points."""
    return [p.num_speculative_tokens for p in curve.points]


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("name", ["eagle", "draft-4l", "ngram"])
def test_known_ratios_give_known_speedups(name: str, concurrency: int) -> None:
    """Each point is the ratio its records were made with, inside its interval."""
    curve = curve_of(SEARCH, name, concurrency)
    for point in curve.points:
        truth = SPEEDUPS[name][concurrency][point.num_speculative_tokens]
        assert point.speedup.mean == pytest.approx(truth, rel=0.02)
        assert point.speedup.low < truth < point.speedup.high
        assert point.throughput == pytest.approx(truth * BASE[concurrency], rel=0.15)


def test_overall_is_weighted_on_logarithms() -> None:
    """Levels are averaged with the user's weights, as ratios are: geometrically."""
    for point in curve_of(SEARCH, "eagle").points:
        one, four = (SPEEDUPS["eagle"][c][point.num_speculative_tokens] for c in (1, 4))
        truth = math.exp((2 * math.log(one) + math.log(four)) / 3)
        assert point.speedup.mean == pytest.approx(truth, rel=0.02)
        ratio = overall_ratio(SPEC, SEARCH, "eagle", point.num_speculative_tokens)
        assert ratio == pytest.approx(point.speedup.mean)


def test_live_k_0_is_never_a_point() -> None:
    """The K = 0 of a live launch is neither a point of the curve nor its denominator."""
    assert all(0 not in ks_of(curve) for curve in curves_of(SEARCH))
    slow = {c: value / 2 for c, value in BASE.items()}
    slowed = [
        make_record("eagle", 0, live=True, tput=slow, launch_id="002")
        if (r.trial.candidate, r.trial.num_speculative_tokens) == ("eagle", 0)
        else r
        for r in SEARCH
    ]
    assert curve_of(slowed, "eagle").points == curve_of(SEARCH, "eagle").points


def test_without_a_baseline_there_is_no_curve() -> None:
    """Live K = 0 does not stand in for a baseline that is missing."""
    assert curves_of([r for r in SEARCH if r.trial.candidate != BASELINE]) == ()
    assert overall_ratio(SPEC, SEARCH[1:], "eagle", 2) is None


def test_each_split_has_its_own_baseline() -> None:
    """Launches of the confirmation, however slow, do not move the curves of the search."""
    slow = {c: value / 3 for c, value in BASE.items()}
    confirm = [make_record(stage=Stage.CONFIRM, tput=slow, launch_id=f"9{i}") for i in range(2)]
    noise = noise_of([*SEARCH, *confirm], SPEC.workload.levels)
    search = curves(SPEC, SEARCH, noise)
    assert [p.speedup.mean for c in search for p in c.points] == [
        p.speedup.mean for c in curves_of(SEARCH) for p in c.points
    ]
    # Two equal launches of each split are groups of their own: nothing differs within them.
    assert noise.launch.sd < PRIOR_SD


def test_invalid_passes_never_enter() -> None:
    """A pass that is not a measurement moves neither speed nor acceptance."""
    clean = make_record("eagle", 2, tput=tput_of("eagle", 2))
    assert clean.measurement
    # The same passes and two absurd ones, marked invalid.
    absurd = [
        replace(p, duration_s=p.duration_s / 100, invalid="degenerated", spec=None)
        for p in clean.measurement.passes[:2]
    ]
    dirty = replace(
        clean,
        outcome=replace(clean.measurement, passes=(*clean.measurement.passes, *absurd)),
    )
    baseline = make_record(stage=Stage.BASELINE)
    assert curves_of([baseline, dirty]) == curves_of([baseline, clean])


def test_missing_blocks_are_paired_by_intersection() -> None:
    """Only blocks that both arms ran are compared, so that easy prompts favour none."""
    baseline = make_record(stage=Stage.BASELINE, blocks=8)
    few = make_record("eagle", 2, tput=tput_of("eagle", 2), blocks=5, invalid={1: "1 failed"})
    for concurrency in (1, 4):
        point = curve_of([baseline, few], "eagle", concurrency).points[0]
        assert point.blocks == 4
        truth = SPEEDUPS["eagle"][concurrency][2]
        assert point.speedup.mean == pytest.approx(truth, rel=0.02)


def test_no_block_in_common_no_point() -> None:
    """Arms that ran different prompts are not compared at all."""
    late = make_record("eagle", 2, blocks=4, invalid={0: "x", 1: "x", 2: "x"})
    found = arms([make_record(stage=Stage.BASELINE, blocks=3), late])
    assert (
        compare(found["eagle", 2], found[BASELINE, 0], 1, noise_of([], SPEC.workload.levels))
        is None
    )
    assert curves_of([make_record(stage=Stage.BASELINE, blocks=3), late]) == ()


def test_a_missing_level_leaves_the_overall_curve_out() -> None:
    """Overall means all levels: a K measured at one of them has a curve there only."""
    part = make_record("eagle", 2, tput={1: 40.0})
    found = curves_of([make_record(stage=Stage.BASELINE), part])
    assert [c.concurrency for c in found] == [1]
    assert overall_ratio(SPEC, [make_record(stage=Stage.BASELINE), part], "eagle", 2) is None


def test_failures_are_no_points() -> None:
    """A K that crashed is absent, not slow."""
    crash = make_record("eagle", 3, outcome=make_failure())
    others = [
        r for r in SEARCH if (r.trial.candidate, r.trial.num_speculative_tokens) != ("eagle", 3)
    ]
    assert ks_of(curve_of([*others, crash], "eagle")) == [1, 2, 5]


def test_constraints_drop_what_breaks_them() -> None:
    """A K that breaks a bound at one level cannot win overall, but its curve shows it there."""
    tpot = [p.latencies.p99_tpot_ms for p in curve_of(SEARCH, "eagle", 4).points if p.latencies]
    bound = (tpot[0] + tpot[1]) / 2  # K = 2 keeps it, the slower K = 1 does not
    spec = make_spec(
        objective=Objective(constraints=(Constraint(metric="p99_tpot_ms", upper=bound),))
    )
    assert ks_of(curve_of(SEARCH, "eagle", 4, spec)) == [1, 2, 3, 5]
    assert ks_of(curve_of(SEARCH, "eagle", None, spec)) == [2]
    nothing = make_spec(
        objective=Objective(constraints=(Constraint(metric="p99_tpot_ms", upper=1.0),))
    )
    assert not [c for c in curves_of(SEARCH, nothing) if c.concurrency is None]


@settings(max_examples=20)
@given(st.floats(0.1, 10))
def test_a_faster_machine_has_the_same_curves(factor: float) -> None:
    """Every speed times the same factor: same speedups, same knees."""
    scaled = []
    for record in SEARCH:
        if record.measurement:
            passes = tuple(
                replace(p, duration_s=p.duration_s / factor) for p in record.measurement.passes
            )
            outcome = replace(record.measurement, passes=passes)
            scaled.append(replace(record, outcome=outcome))
    for mine, other in zip(curves_of(SEARCH), curves_of(scaled), strict=True):
        assert mine.knee == other.knee
        for one, two in zip(mine.points, other.points, strict=True):
            assert one.speedup.mean == pytest.approx(two.speedup.mean)
            assert one.speedup.low == pytest.approx(two.speedup.low)


def test_knees_of_the_study() -> None:
    """The head's knee is K = 2 at both levels; the overall curve agrees."""
    for concurrency in (1, 4, None):
        assert curve_of(SEARCH, "eagle", concurrency).knee.num_speculative_tokens == 2


def test_a_k_of_one_lucky_block_is_not_the_best() -> None:
    """It is shown with its wide interval; the knee is sought among those with more."""
    lucky = make_record("eagle", 8, Stage.SCREEN, tput=scaled(2.0), blocks=1, live=True)
    curve = curve_of([*SEARCH, lucky], "eagle")
    assert ks_of(curve) == [1, 2, 3, 5, 8]
    assert curve.knee.best == 2
    short = [r for r in make_study_records(confirmed=False) if r.trial.candidate == BASELINE]
    ones = [
        make_record("eagle", k, Stage.SCREEN, tput=scaled(gain), blocks=1, live=True)
        for k, gain in {1: 1.1, 2: 1.4}.items()
    ]
    assert curve_of([*short, *ones], "eagle").knee.best == 2  # where no K has more


def scaled(gain: float) -> dict[int, float]:
    """So many times as fast as plain decoding, at every level."""
    return {c: gain * value for c, value in BASE.items()}


def test_equal_launches_tell_how_much_launches_differ() -> None:
    """Baselines that differ by a tenth widen every interval; equal ones narrow it."""

    def with_baselines(*speeds: float) -> list[Record]:
        return [
            make_record(
                stage=Stage.BASELINE, launch_id=str(i), tput={c: s * v for c, v in BASE.items()}
            )
            for i, s in enumerate(speeds)
        ] + SEARCH[1:]

    equal, apart = with_baselines(1.0, 1.0, 1.0), with_baselines(0.9, 1.0, 1.1)
    levels = SPEC.workload.levels
    effects = [noise_of(records, levels).launch for records in (equal, apart)]
    assert effects[0].sd < PRIOR_SD < effects[1].sd
    assert effects[1].launches > 0
    widths = [curve_of(r, "eagle").at(2).speedup.half_width for r in (equal, apart)]
    assert widths[0] < widths[1]


def test_launches_of_one_point_are_averaged_block_by_block() -> None:
    """Two launches of a point count as one arm of twice the launches."""
    twice = [
        make_record("eagle", 2, launch_id=i, tput={1: v}) for i, v in (("1", 30.0), ("2", 40.0))
    ]
    arm = arms(twice)["eagle", 2]
    assert arm.launches(1, {0, 1, 2}) == pytest.approx(2)
    assert arm.launches(4, {0, 1, 2}) == 0
    assert {block: len(found) for block, found in arm.passes(1).items()} == {0: 2, 1: 2, 2: 2}
    elsewhere = replace(twice[0], launch_id="3")
    pair = compare(arm, arms([elsewhere])["eagle", 2], 1, noise_of([], SPEC.workload.levels))
    assert pair
    assert pair.throughput.mean == pytest.approx(math.log(40 / 30) / 2, abs=0.01)


def test_single_level_overall_equals_its_level() -> None:
    """With one level the overall curve is that level's curve."""
    spec = make_spec(workload=make_workload(concurrencies={4: 1.0}))
    at_level, overall = (curve_of(SEARCH, "ngram", c, spec) for c in (4, None))
    assert overall.knee == at_level.knee
    for one, two in zip(at_level.points, overall.points, strict=True):
        assert one.speedup.mean == pytest.approx(two.speedup.mean)
        assert one.speedup.high == pytest.approx(two.speedup.high)


def test_a_launch_of_one_block_is_not_worth_a_launch() -> None:
    """A whole launch of eight blocks and one that was killed after its first are hardly two."""
    whole = make_record("eagle", 2, launch_id="1", blocks=8)
    killed = make_record("eagle", 2, launch_id="2", blocks=1)
    arm = arms([whole, killed])["eagle", 2]
    # Weights: 1/16 of the killed one, 15/16 of the whole one.
    assert arm.launches(1, set(range(8))) == pytest.approx(1 / ((1 / 16) ** 2 + (15 / 16) ** 2))


def test_ties_of_static_launches_carry_the_launch_effect() -> None:
    """Two K of one live launch are tied by their blocks; of two launches, by far fewer of them."""
    levels = SPEC.workload.levels
    found = comparer(arms(SEARCH), levels, noise_of(SEARCH, levels))
    within = found.tie(("eagle", 1), ("eagle", 2), levels)
    apart = [
        replace(r, launch_id=f"{r.launch_id}.{r.trial.num_speculative_tokens}") for r in SEARCH
    ]
    between = comparer(arms(apart), levels, noise_of(SEARCH, levels)).tie(
        ("eagle", 1), ("eagle", 2), levels
    )
    assert within
    assert between
    assert between.mean == within.mean
    assert between.variance > within.variance


@pytest.mark.parametrize("scatter", [0.0, 0.012, 0.031])
def test_a_k_that_was_hardly_measured_is_not_as_good_as_the_best(scatter: float) -> None:
    """2.5 % below it: surely worse, or unknown; not equal because the blocks cannot tell."""
    good, less = (
        make_record("eagle", k, tput={c: v * g for c, v in BASE.items()}, blocks=4, live=True)
        for k, g in ((2, 1.2), (1, 1.2 * 0.975))
    )
    assert less.measurement
    passes = [
        replace(p, duration_s=p.duration_s * math.exp(scatter * (-1) ** p.block))
        for p in less.measurement.passes
    ]
    scattered = replace(less, outcome=replace(less.measurement, passes=tuple(passes)))
    records = [make_record(blocks=4, launch_id="999"), good, scattered]
    levels = SPEC.workload.levels
    tie = comparer(arms(records), levels, noise_of(records, levels)).tie(
        ("eagle", 1), ("eagle", 2), levels
    )
    assert tie
    assert (tie.interval().high > 1.0) is (scatter == 0.031)
    assert curve_of(records, "eagle").knee.num_speculative_tokens == 2
