"""The order of a study: what is launched next follows from what was measured alone."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.core.axes import IntRange
from autotune.core.estimate import pass_s
from autotune.core.plan import baseline_failed, next_launch, pending, weight
from autotune.core.space import variant
from autotune.core.study import Candidate, Search, StudySpec
from autotune.core.trial import BASELINE, Cause, Launch, Record, Stage
from autotune.core.workload import MIN_BLOCKS
from tests.builders import BASE, GMU, make_failure, make_record, make_spec, make_workload
from tests.builders_study import make_screen, make_study_records, tput_of

Step = tuple[str, str, tuple[int, ...]]

BASELINE_STEP: Step = ("baseline", BASELINE, (0,))
SCREENS: list[Step] = [("screen", name, (0, 1, 2, 3, 5)) for name in ("ngram", "eagle", "draft-4l")]
CONFIRM: list[Step] = [("confirm", BASELINE, (0,)), ("confirm", "eagle", (2,))]


def step(launch: Launch) -> Step:
    """What of a launch the order is about."""
    return launch.stage.value, launch.name, launch.num_speculative_tokens


def answer(launch: Launch, launch_id: str, *, scale: float = 1.0) -> list[Record]:
    """The records of a launch that went well."""
    return [
        make_record(
            launch.name,
            k,
            launch.stage,
            tput=tput_of(launch.name, k, scale=scale),
            launch_id=launch_id,
            live=launch.live,
            repeat=launch.repeat,
        )
        for k in launch.num_speculative_tokens
    ]


def play(spec: StudySpec, records: Sequence[Record] = (), *, scale: float = 1.0) -> list[Launch]:
    """The launches of a study in which everything goes well from here on."""
    known, launches = list(records), []
    while launch := next_launch(spec, known):
        launches.append(launch)
        known += answer(launch, f"{len(launches):03d}", scale=scale)
        assert len(launches) < 50, "the study does not end"
    return launches


def failing(name: str, ks: Sequence[int], stage: Stage, cause: Cause) -> list[Record]:
    """A launch that gave nothing but this failure."""
    return [make_record(name, k, stage, outcome=make_failure(cause)) for k in ks]


def cut_short(record: Record) -> Record:
    """The record of an interrupted launch."""
    assert record.measurement
    return replace(record, outcome=replace(record.measurement, cut_short=True))


def test_order_of_a_study() -> None:
    """Baseline, every candidate over all its K in one launch, then A B A B."""
    launches = play(make_spec())
    assert [step(x) for x in launches] == [BASELINE_STEP, *SCREENS, *CONFIRM, *CONFIRM]
    assert [x.repeat for x in launches[-4:]] == [0, 0, 1, 1]
    assert [x.live for x in launches] == [False, True, True, True, False, False, False, False]
    assert all(x.why and x.gpu_memory_utilization == GMU for x in launches)


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_as_many_rounds_as_asked_for(rounds: int) -> None:
    """`confirm_rounds` pairs of baseline and winner, however many."""
    search = Search(gpu_memory_utilization=(GMU,), confirm_rounds=rounds)
    assert [step(x) for x in play(make_spec(search=search))[4:]] == CONFIRM * rounds


@pytest.mark.parametrize("done", range(9))
def test_resume_goes_on_where_it_was(done: int) -> None:
    """After any number of launches the rest is what it would have been: nothing runs twice."""
    spec, whole = make_spec(), [BASELINE_STEP, *SCREENS, *CONFIRM, *CONFIRM]
    records: list[Record] = []
    for _ in range(done):
        launch = next_launch(spec, records)
        assert launch
        records += answer(launch, "000")
    assert [step(x) for x in play(spec, records)] == whole[done:]


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 25), st.floats(1.0, 1e4) | st.none())
def test_same_records_same_launch(count: int, left: float | None) -> None:
    """The plan remembers nothing between two calls."""
    records = make_study_records()[:count]
    assert next_launch(make_spec(), records, left) == next_launch(make_spec(), records, left)


def test_a_new_candidate_is_all_that_is_new() -> None:
    """A candidate added to a finished study is screened; what was measured stays measured."""
    spec = make_spec()
    added = Candidate(name="slow", method="eagle3", model="/models/slow")
    new = make_spec(candidates=(*spec.candidates, added))
    assert [step(x) for x in pending(new, make_study_records())] == [
        ("screen", "slow", (0, 1, 2, 3, 5))
    ]


def test_a_new_k_is_all_that_is_new() -> None:
    """A larger range measures the K that are missing, beside the best one known."""
    search = Search(num_speculative_tokens=(1, 2, 3, 5, 8), gpu_memory_utilization=(GMU,))
    spec = make_spec(search=search, candidates=make_spec().candidates[:1])
    launch = next_launch(spec, make_study_records())
    assert launch
    assert step(launch) == ("screen", "eagle", (0, 2, 8))


def test_too_few_blocks_are_measured_again() -> None:
    """An interrupted launch counts as measured only with `min_blocks` blocks at every level."""
    spec = make_spec()
    for blocks, again in ((2, True), (3, False)):
        records = [cut_short(make_record(stage=Stage.BASELINE, blocks=blocks))]
        launch = next_launch(spec, records)
        assert launch
        assert (step(launch) == BASELINE_STEP) is again


def test_what_a_budget_allowed_is_enough() -> None:
    """A launch that ended in time with two clean blocks is not made again for a third."""
    launch = next_launch(make_spec(), [make_record(stage=Stage.BASELINE, blocks=2)])
    assert launch
    assert step(launch) == SCREENS[0]


def test_interruptions_are_no_tries() -> None:
    """However often a user interrupts the same launch, it is made again."""
    records = [cut_short(make_record(stage=Stage.BASELINE, blocks=1))] * 5
    launch = next_launch(make_spec(), records)
    assert launch
    assert step(launch) == BASELINE_STEP


def test_a_missing_level_is_measured() -> None:
    """Blocks at one concurrency do not stand for those at another."""
    launch = next_launch(make_spec(), [make_record(stage=Stage.BASELINE, tput={1: 33.0})])
    assert launch
    assert step(launch) == BASELINE_STEP


@pytest.mark.parametrize("stage", [Stage.BASELINE, Stage.SCREEN, Stage.CONFIRM])
def test_invalid_blocks_are_tried_once_more(stage: Stage) -> None:
    """A point with a block that stays invalid is launched twice, and not for ever."""
    spec = make_spec(candidates=make_spec().candidates[:1])
    name, k = (BASELINE, 0) if stage is Stage.BASELINE else ("eagle", 2)
    if stage is Stage.CONFIRM:
        good = make_study_records(confirmed=False)
        good.append(make_record(stage=stage, launch_id="009"))
    else:
        good = [r for r in make_study_records() if r.trial.stage is not stage]
        good = [r for r in good if r.trial.stage is Stage.BASELINE]
    spoiled = make_record(name, k, stage, invalid={1: "2 of 4 requests failed"})
    tried = []
    for tries in range(3):
        launch = next_launch(spec, [*good, *[spoiled] * tries])
        tried.append(launch is not None and launch.name == name and k in step(launch)[2])
    assert tried == [True, True, False]


@pytest.mark.parametrize(
    ("cause", "launches"),
    [
        (Cause.MEMORY_OCCUPIED, 2),
        (Cause.PORT_TAKEN, 2),
        (Cause.OUT_OF_MEMORY_START, 1),
        (Cause.CRASHED_RUNTIME, 1),
    ],
)
@pytest.mark.parametrize("stage", [Stage.BASELINE, Stage.SCREEN, Stage.CONFIRM])
def test_only_transient_failures_are_tried_again(cause: Cause, launches: int, stage: Stage) -> None:
    """A cause that says nothing about the configuration is tried once more, others never."""
    spec = make_spec(candidates=make_spec().candidates[:1])
    records: list[Record] = []
    made = 0
    while launch := next_launch(spec, records):
        if launch.stage is stage:
            made += 1
            records += failing(launch.name, launch.num_speculative_tokens, stage, cause)
        else:
            records += answer(launch, "000")
        assert made < 10, "the study does not end"
    assert made == launches
    assert (baseline_failed(records) is not None) is (stage is Stage.BASELINE)


def test_a_winner_that_fails_cold_makes_room_for_the_next() -> None:
    """A crash in any round puts the candidate out; the next best is confirmed, if it has hope."""
    crash = make_record("eagle", 2, Stage.CONFIRM, repeat=1, outcome=make_failure())
    kept = [r for r in make_study_records() if r.trial.repeat == 0]
    records = [*kept, make_record(stage=Stage.CONFIRM, repeat=1), crash]
    confirm = [step(x) for x in play(make_spec(), records)]
    assert confirm == [("confirm", "draft-4l", (2,))] * 2
    alone = make_spec(candidates=make_spec().candidates[:1])
    assert next_launch(alone, records) is None


def test_failed_baseline_ends_the_study() -> None:
    """Without a baseline nothing is launched, and the failure is at hand."""
    failure = make_failure(Cause.ENGINE_REFUSED)
    records = [make_record(stage=Stage.BASELINE, outcome=failure)]
    assert list(pending(make_spec(), records)) == []
    assert baseline_failed(records) == failure


def test_half_a_baseline_does_not_hide_its_failure() -> None:
    """A few blocks of an interrupted baseline, then a crash: the study ends all the same."""
    half = cut_short(make_record(stage=Stage.BASELINE, blocks=1))
    records = [half, make_record(stage=Stage.BASELINE, outcome=make_failure())]
    assert baseline_failed(records) == make_failure()
    assert next_launch(make_spec(), records) is None


def test_nothing_is_confirmed_when_no_candidate_ran() -> None:
    """With every candidate given up there is no winner to launch."""
    records = [make_record(stage=Stage.BASELINE)]
    for candidate in make_spec().candidates:
        records += failing(candidate.name, (0, 1, 2, 3, 5), Stage.SCREEN, Cause.ENGINE_REFUSED)
    assert next_launch(make_spec(), records) is None


def test_nothing_is_confirmed_when_hope_is_gone() -> None:
    """A best candidate whose whole interval promises no gain is not worth cold launches."""
    assert [step(x) for x in play(make_spec(), scale=0.5)] == [BASELINE_STEP, *SCREENS]


def test_where_live_k_is_impossible_coarse_k_are_launched_one_by_one() -> None:
    """By its method, by data parallelism, or as was seen: a launch for each coarse K, none live."""
    suffix = make_spec(candidates=[Candidate(name="suffix", method="suffix")])
    target = replace(make_spec().target, engine_args={"data_parallel_size": 2})
    eagle = make_spec(candidates=make_spec().candidates[:1])
    seen = failing("eagle", (0, 1, 2, 3, 5), Stage.SCREEN, Cause.LIVE_K_NOT_IN_FORCE)
    crashed = failing("eagle", (0,), Stage.SCREEN, Cause.CRASHED_RUNTIME)
    for spec, records in (
        (suffix, []),
        (replace(eagle, target=target), []),
        (eagle, seen),
        (eagle, crashed),
    ):
        baseline = make_record(stage=Stage.BASELINE)
        todo = list(pending(spec, [baseline, *records]))
        screens = [x for x in todo if x.stage is Stage.SCREEN]
        assert [x.num_speculative_tokens for x in screens] == [(1,), (2,), (5,)]
        assert not any(x.live for x in todo)


def test_budget_is_shared_by_what_is_to_be_measured() -> None:
    """A launch gets of the time without starts what its share of the passes is."""
    spec = make_spec(candidates=make_spec().candidates[:1])
    todo = list(pending(spec, []))
    assert [x.stage.value for x in todo] == ["baseline", "screen", *["confirm"] * 4]
    # 11 blocks over both levels count as four each, the confirmations as one and a half; the
    # screening has five arms of three blocks at both levels.
    weights = [4 * 11.0, 5 * 6.0, *[1.5 * 11] * 4]
    launch = next_launch(spec, [], remaining_s=6 * 70.0 + 1200.0)
    assert launch
    assert launch.measure_s == pytest.approx(1200.0 * weights[0] / sum(weights))
    second = next_launch(spec, answer(launch, "000"), remaining_s=5 * 45.0 + 1100.0)
    assert second
    assert second.measure_s == pytest.approx(1100.0 * weights[1] / sum(weights[1:]))


@pytest.mark.parametrize(("left", "launches"), [(69.0, False), (71.0, True)])
def test_no_launch_without_time_to_start(left: float, *, launches: bool) -> None:
    """A launch that could not even start in the time left is not made."""
    launch = next_launch(make_spec(), [], remaining_s=left)
    assert (launch is not None) is launches
    assert launch is None or (launch.measure_s is not None and launch.measure_s > 0)


def test_no_budget_no_bound() -> None:
    """Without a budget a launch measures all its blocks."""
    launch = next_launch(make_spec(), [])
    assert launch
    assert launch.measure_s is None
    assert launch.max_blocks == make_spec().search.max_blocks


def test_what_the_confirmation_needs_is_kept_back() -> None:
    """With a good candidate known, the time for another one is spent on confirming the first."""
    spec, records = make_spec(), make_study_records(confirmed=False)
    known = [r for r in records if r.trial.candidate != "draft-4l"]
    plenty = next_launch(spec, known, remaining_s=3600.0)
    assert plenty
    assert step(plenty) == SCREENS[2]
    little = next_launch(spec, known, remaining_s=5 * 45.0 + 60.0)
    assert little
    assert step(little) == CONFIRM[0]
    assert next(step(x) for x in pending(spec, known)) == SCREENS[2], "what is left out is known"


def test_a_search_that_does_not_fit_takes_no_share() -> None:
    """Neither of the confirmation under way nor of the search before it."""
    spec, records = make_spec(), make_study_records(confirmed=False)
    known = [r for r in records if r.trial.candidate != "draft-4l"]
    first = next_launch(spec, known, remaining_s=5 * 45.0 + 60.0)
    assert first
    under_way = [*known, *answer(first, "010")]
    second = next_launch(spec, under_way, remaining_s=3 * 45.0 + 90.0)
    assert second
    assert step(second) == CONFIRM[1]
    assert second.measure_s == pytest.approx(90.0 / 3), "of three launches that are left"

    known = [r for r in known if r.trial.candidate != "ngram"]
    ahead = [x for x in pending(spec, known) if x.name != "draft-4l"]
    of_four = [spec.search.min_blocks * 2 * pass_s(known)] * 4
    screening = MIN_BLOCKS * (1 + 3) * pass_s(known)
    left = 5 * 45.0 + sum(of_four) + 1.5 * screening
    launch = next_launch(spec, known, remaining_s=left)
    assert launch
    assert step(launch) == SCREENS[0]
    weights = [weight(spec, known, x) for x in ahead]
    assert launch.measure_s == pytest.approx((left - 5 * 45.0) * weights[0] / sum(weights))


def test_a_search_ends_where_the_confirmation_needs_the_rest() -> None:
    """With a gain to confirm; without one the budget alone bounds it, and the baseline nothing."""
    spec, records = make_spec(), make_study_records(confirmed=False)
    known = [r for r in records if r.trial.candidate != "draft-4l"]
    of_four = 4 * (45.0 + spec.search.min_blocks * 2 * pass_s(known))
    launch = next_launch(spec, known, remaining_s=2 * of_four)
    assert launch
    assert step(launch) == SCREENS[2]
    assert launch.limit_s == pytest.approx(of_four - 45.0)

    unseen = next_launch(spec, known[:1], remaining_s=2 * of_four)
    assert unseen
    assert unseen.limit_s == pytest.approx(2 * of_four - 45.0)
    plain = next_launch(spec, [], remaining_s=2 * of_four)
    assert plain
    assert plain.limit_s is None


def test_a_search_that_could_not_even_screen_is_not_begun() -> None:
    """After the confirmation the rest of the budget is spent on another candidate, or not."""
    spec, records = make_spec(), make_study_records()
    known = [r for r in records if r.trial.candidate != "draft-4l"]
    least = 45.0 + MIN_BLOCKS * (1 + 3) * pass_s(known)
    assert next_launch(spec, known, remaining_s=least - 1.0) is None
    launch = next_launch(spec, known, remaining_s=least + 1.0)
    assert launch
    assert step(launch) == SCREENS[2]


def test_without_a_gain_to_confirm_nobody_is_left_unseen() -> None:
    """That the best so far does not gain is no answer while others were not looked at."""
    spec, baseline = make_spec(), make_study_records(confirmed=False)[:1]
    known = [*baseline, *make_screen("eagle", "001", scale=0.77)]  # 0.99x overall
    spec = replace(spec, candidates=spec.candidates[:2])
    launch = next_launch(spec, known, remaining_s=5 * 45.0 + 60.0)
    assert launch
    assert step(launch) == SCREENS[2]


def test_what_is_cheap_to_draft_with_is_screened_first() -> None:
    """Lookups, heads, models, each in the order of the file."""
    models = [
        Candidate(name=name, method="draft_model", model=f"/models/{name}") for name in ("a", "b")
    ]
    heads = [Candidate(name="mtp", method="mtp"), make_spec().candidates[0]]
    lookups = [Candidate(name="suffix", method="suffix"), make_spec().candidates[2]]
    spec = make_spec(candidates=[*models, *heads, *lookups])
    ahead = pending(spec, make_study_records()[:1])
    screens = [x.name for x in ahead if x.stage is Stage.SCREEN]
    assert list(dict.fromkeys(screens)) == ["suffix", "ngram", "mtp", "eagle", "a", "b"]


def test_every_launch_says_why() -> None:
    """In words of its own, with candidate, K and level."""
    whys = [x.why for x in play(make_spec())]
    assert whys[0] == "the denominator of every speedup"
    assert whys[1] == (
        "screens ngram at concurrency 1 with K = 1, 2, 5; unless it is beaten there, then the K "
        "around the best and concurrency 4"
    )
    assert whys[4].startswith("a fresh baseline beside the winner")
    assert whys[5] == "eagle at K = 2 exactly as it would be deployed"


def test_a_level_that_is_added_is_measured_alone() -> None:
    """The baseline at the new level, then each candidate that may still win; nothing else."""
    spec = make_spec(workload=make_workload(concurrencies={1: 2.0, 4: 1.0, 2: 1.0}))
    launch = next_launch(spec, make_study_records(confirmed=False))
    assert launch
    assert step(launch) == BASELINE_STEP
    assert launch.why == "the denominator of every speedup, at concurrency 2"
    known = [*make_study_records(confirmed=False), make_record(tput={2: 65.0}, launch_id="009")]
    ahead = [x for x in pending(spec, known) if x.stage is Stage.REFINE]
    assert ahead[0].name == "eagle", "the most promising one comes first"
    # K = 3 and 5 were worse than K = 2 at one stream: at two streams they are no better.
    assert ahead[0].why == "refines eagle around its best, 2: K = 1, 2 at concurrency 2"
    assert ahead[0].num_speculative_tokens == (0, 1, 2)


def rising(gain: float = 0.12) -> list[Record]:
    """A study whose head gains with every K, by that much from one coarse K to the next."""
    table = {1: 1.0, 2: 1 + gain, 3: 1 + 1.3 * gain, 5: (1 + gain) ** 2}
    return [
        make_record(stage=Stage.BASELINE),
        *(
            make_record(
                "eagle",
                k,
                tput={c: v * table.get(k, 0.9) * 1.1 for c, v in BASE.items()},
                launch_id="001",
                live=True,
            )
            for k in (0, 1, 2, 3, 5)
        ),
    ]


def test_the_range_is_extended_while_the_curve_rises() -> None:
    """Twice the largest K is asked for, beside the best, with room for one more doubling."""
    spec = make_spec(candidates=make_spec().candidates[:1])
    launch = next_launch(spec, rising())
    assert launch
    assert (launch.stage, launch.name) == (Stage.REFINE, "eagle")
    assert {5, 10, 20} <= set(launch.num_speculative_tokens)
    assert launch.why == (
        "refines eagle: the curve still rises at K = 5, the largest tried: K = 10, and up to 20 "
        "while it rises"
    )
    ten = make_record(
        "eagle", 10, Stage.REFINE, tput={1: 20.0, 4: 70.0}, launch_id="002", live=True
    )
    after = next_launch(spec, [*rising(), ten])
    assert after
    # It was no gain: back to the gap beside the best.
    assert after.num_speculative_tokens == (0, 5, 7)
    flat = next_launch(spec, rising(0.005))
    assert flat
    assert flat.stage is Stage.CONFIRM


def test_one_k_alone_is_no_range_to_extend() -> None:
    """Who asks for K = 5 gets K = 5."""
    one = replace(make_spec().candidates[0], num_speculative_tokens=(5,))
    spec = make_spec(candidates=[one])
    records = [r for r in rising() if r.trial.num_speculative_tokens in {0, 5}]
    launch = next_launch(spec, records)
    assert launch
    assert launch.stage is Stage.CONFIRM


def test_what_is_proposed_is_searched_once_the_file_is_screened() -> None:
    """A further candidate gets a launch of its own, and none while another is to be screened."""
    spec, asked = make_spec(), list[str]()
    other = replace(spec.candidates[2], name="ngram-wide", settings={"prompt_lookup_max": 9})

    def propose(
        spec: StudySpec, records: Sequence[Record], candidate: Candidate
    ) -> Candidate | None:
        asked.append(candidate.name)
        known = any(r.trial.candidate == other.name for r in records)
        return other if candidate.name == "ngram" and not known else None

    first = next_launch(spec, make_study_records(confirmed=False)[:1], None, propose)
    assert first
    assert (first.name, asked) == ("ngram", [])
    launch = next_launch(spec, make_study_records(confirmed=False), None, propose)
    assert launch
    assert (launch.name, launch.num_speculative_tokens) == ("ngram-wide", (0, 1, 2, 3, 5))


LOOKUP = Candidate(
    name="ngram",
    method="ngram",
    settings={"prompt_lookup_min": 1},
    space={"prompt_lookup_max": IntRange(low=2, high=6)},
)


def test_variants_of_a_survivor_are_measured_before_the_confirmation() -> None:
    """One after the other, as long as somebody proposes one; the best of them is confirmed."""
    spec = make_spec(candidates=(LOOKUP,), search=replace(make_spec().search, confirm_rounds=1))
    wanted = [variant(LOOKUP, {"prompt_lookup_max": n}) for n in (6, 2)]

    def propose(
        asked: StudySpec, records: Sequence[Record], candidate: Candidate
    ) -> Candidate | None:
        assert (asked, candidate) == (spec, LOOKUP)
        known = {r.trial.candidate for r in records}
        return next((v for v in wanted if v.name not in known), None)

    speeds = {4: 1.2, 6: 1.5, 2: 0.9}
    known: list[Record] = []
    launches: list[Launch] = []
    while launch := next_launch(spec, known, propose=propose):
        launches.append(launch)
        largest = launch.candidate.settings["prompt_lookup_max"] if launch.candidate else None
        gain = speeds[largest] if isinstance(largest, int) else 1.0
        known += [
            replace(
                made,
                trial=launch.trial(k),
                launch_id=f"{len(launches)}",
            )
            for k in launch.num_speculative_tokens
            for made in [
                make_record("ngram", k, tput={c: v * (gain if k else 1) for c, v in BASE.items()})
            ]
        ]
        assert len(launches) < 9
    names = [(x.stage.value, x.name) for x in launches]
    assert names == [
        ("baseline", BASELINE),
        ("screen", "ngram(prompt_lookup_max=4)"),
        ("screen", "ngram(prompt_lookup_max=6)"),
        ("screen", "ngram(prompt_lookup_max=2)"),
        ("confirm", BASELINE),
        ("confirm", "ngram(prompt_lookup_max=6)"),
    ]
