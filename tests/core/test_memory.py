"""The utilization to deploy: the smallest that holds the measured peak, within what has failed."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.core.evidence import Finalist
from autotune.core.memory import HEADROOM, Choice, peak_need, utilization_for
from autotune.core.memory_bounds import bounds, escaped, in_force, search_utilization
from autotune.core.statistics import Interval
from autotune.core.trial import BASELINE, TRIES, Cause, Record, Stage
from tests.builders import GMU
from tests.builders_memory import failed, launched, spec_with

FINALIST = Finalist(
    candidate="eagle",
    num_speculative_tokens=2,
    gpu_memory_utilization=GMU,
    speedup=Interval(mean=1.2, low=1.1, high=1.3),
)
GIB = (72.0, 80.0)
"""At 0.9 of 80 GiB nothing but KV cache: 0.5 holds 5/9 of the tokens, 0.7 7/9."""


def choice(*records: Record, shares: tuple[float, ...] = ()) -> Choice:
    """For the finalist."""
    return utilization_for(spec_with(*shares), records, FINALIST)


@pytest.mark.parametrize(("peak", "share"), [(0.40, 0.5), (0.45, 0.7), (0.60, 0.7), (0.63, 0.9)])
def test_the_smallest_that_holds_peak_and_headroom(peak: float, share: float) -> None:
    """5/9 of the capacity hold a peak of 4/9 with a quarter to spare, no more."""
    found = choice(launched(0.9, 9000, peak, gib=GIB))
    assert found.utilization == share
    assert found.need_tokens == pytest.approx(9000 * peak, abs=1)
    assert found.headroom is not None
    assert found.headroom >= HEADROOM
    assert f"{share:g} is the smallest of 0.5, 0.7 and 0.9" in found.why
    assert found.remark == ""


@given(
    peak=st.floats(0.01, 1.0),
    shares=st.lists(st.sampled_from([0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.95]), unique=True),
)
def test_never_less_than_peak_and_headroom_while_there_is_more(
    peak: float, shares: list[float]
) -> None:
    """Whatever is allowed: enough, or the largest."""
    allowed = tuple(sorted({*shares, 0.9}))
    found = choice(launched(0.9, 9000, peak, gib=GIB), shares=allowed)
    enough = 10_000 * found.utilization >= 9000 * peak * (1 + HEADROOM) - 2
    assert enough or found.utilization == allowed[-1]


def test_the_worst_level_counts() -> None:
    """A peak at any concurrency is one of the load."""
    record = launched(0.9, 9000, 0.1, gib=GIB)
    assert record.measurement
    passes = tuple(
        replace(p, kv_cache_peak=0.6 if p.concurrency == 4 else 0.1)
        for p in record.measurement.passes
    )
    busy = replace(record, outcome=replace(record.measurement, passes=passes))
    assert choice(busy).utilization == 0.7
    spoilt = tuple(replace(p, invalid="torn") if p.concurrency == 4 else p for p in passes)
    calm = replace(record, outcome=replace(record.measurement, passes=spoilt))
    assert choice(calm).utilization == 0.5


def test_a_cold_launch_with_too_little_cache_moves_the_choice_on() -> None:
    """Without bytes in the log the plan was a bound; what the launch told corrects it."""
    search = launched(0.9, 9000, 0.4)
    assert choice(search).utilization == 0.5
    cold = launched(0.5, 3700, 0.9, stage=Stage.CONFIRM)
    moved = choice(search, cold)
    assert moved.utilization == 0.7
    assert moved.options[0].verdict == "too small"
    assert choice(search, launched(0.5, 4100, 0.8, stage=Stage.CONFIRM)).utilization == 0.5


def test_a_preemption_in_the_confirmation_moves_it_on() -> None:
    """Whatever the search had seen: the cache was full there."""
    search = launched(0.9, 9000, 0.4, gib=GIB)
    cold = launched(0.5, 5000, 0.9, stage=Stage.CONFIRM, preemptions=1)
    found = choice(search, cold)
    assert found.utilization == 0.7
    assert found.bounded_below == 0.5
    assert found.need_tokens == 5000


def test_prompts_of_the_confirmation_do_not_move_the_choice() -> None:
    """A higher peak there is told; it holds, so it is no reason for other launches."""
    search = launched(0.9, 9000, 0.4, gib=GIB)
    found = choice(search, launched(0.5, 5000, 0.95, stage=Stage.CONFIRM))
    assert (found.utilization, found.confirmed_peak) == (0.5, 0.95)


def test_too_little_to_start_bounds_it_from_below() -> None:
    """0.5 does not start, for the finalist or for plain decoding beside it."""
    search = launched(0.9, 9000, 0.3, gib=GIB)
    for name, k in (("eagle", 2), ("eagle", 1), (BASELINE, 0)):
        small = failed(0.5, Cause.KV_CACHE_TOO_SMALL, name=name, k=k, stage=Stage.CONFIRM)
        found = choice(search, small)
        assert (found.utilization, found.bounded_below) == (0.7, 0.5)
        assert "0.5 is out: kv_cache_too_small" in found.why
    for name, k in (("eagle", 3), ("draft-4l", 1)):
        small = failed(0.5, Cause.KV_CACHE_TOO_SMALL, name=name, k=k)
        assert choice(search, small).utilization == 0.5


def test_too_much_to_start_bounds_it_from_above() -> None:
    """A peak that wants 0.9 gets 0.7 where 0.9 is out of memory, and the answer says so."""
    search = launched(0.7, 7000, 0.99, gib=(56.0, 80.0))
    found = choice(search, failed(0.9, name="eagle", k=2, stage=Stage.CONFIRM))
    assert (found.utilization, found.bounded_above) == (0.7, 0.9)
    assert "does not hold the measured peak" in found.why
    assert "0.9 is out: out_of_memory_start" in found.why


def test_a_cache_without_room_for_one_context_is_not_tried() -> None:
    """The engine would not start: it asks for one context of max_model_len."""
    record = launched(0.9, 9000, 0.1, gib=GIB)
    assert record.facts
    long = replace(record.facts, resolved={**record.facts.resolved, "max_seq_len": "6500"})
    assert choice(record).utilization == 0.5
    assert choice(replace(record, facts=long)).utilization == 0.7


def test_without_a_measured_peak_it_is_where_the_search_ran() -> None:
    """Older records, and engines that show no gauge."""
    found = choice(launched(0.9, 9000, None))
    assert (found.utilization, found.need_tokens, found.headroom) == (0.9, None, None)
    assert "not measured" in found.why
    assert choice().utilization == 0.9


def test_one_value_is_the_answer_and_may_be_remarked_on() -> None:
    """Far too large, with the share that would do; too small, with the preemptions; or neither."""
    large = choice(launched(0.9, 9000, 0.1, gib=GIB), shares=(0.9,))
    assert large.utilization == 0.9
    assert "far larger than this load's peak of 900 tokens" in large.remark
    # 900 tokens and a quarter, of 10,000 in the whole memory.
    assert "about 0.12 of the GPU's memory would do (not launched)" in large.remark
    small = choice(launched(0.9, 9000, 0.99, preemptions=3), shares=(0.9,))
    assert small.utilization == 0.9
    assert "preemptions" in small.remark
    assert "raise search.gpu_memory_utilization" in small.remark
    assert choice(launched(0.9, 9000, 0.6, gib=GIB), shares=(0.9,)).remark == ""


def test_on_a_cpu_it_is_a_share_of_the_ram() -> None:
    """The flag's name is misleading there, and every text says so."""
    record = launched(0.9, 9000, 0.1, gib=GIB)
    assert record.facts
    on_cpu = replace(record, facts=replace(record.facts, device="cpu: Xeon, 2 cores"))
    for shares in ((0.9,), (0.5, 0.9)):
        found = choice(on_cpu, shares=shares)
        assert "RAM" in found.why + found.remark
        assert "GPU" not in found.why + found.remark


def test_a_peak_of_nothing_is_not_known() -> None:
    """A pass too short for any reading saw an idle cache: that is no need."""
    assert peak_need([launched(0.9, 9000, 0.0)], "eagle", 2) is None


@pytest.mark.parametrize(
    ("cause", "times", "above"),
    [
        (Cause.OUT_OF_MEMORY_START, 1, 0.9),
        (Cause.OUT_OF_MEMORY_RUNTIME, 1, 0.9),
        (Cause.MEMORY_OCCUPIED, 1, None),
        (Cause.MEMORY_OCCUPIED, TRIES, None),
        (Cause.KV_CACHE_TOO_SMALL, 1, None),
        (Cause.CRASHED_START, 1, None),
    ],
)
def test_what_bounds_the_range(cause: Cause, times: int, above: float | None) -> None:
    """Memory that others hold for a moment bounds nothing, until it is seen again."""
    assert bounds([failed(0.9, cause)] * times, "eagle", 2)[1] == above


def test_the_search_steps_down_when_memory_runs_out_and_no_launch_is_in_vain() -> None:
    """Next below, then further and further: four failures, not seven."""
    spec = spec_with(0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    records: list[Record] = []
    tried = []
    while not records or any(escaped(spec, records, r) for r in records):
        tried.append(search_utilization(spec, records, BASELINE, 0))
        records.append(failed(tried[-1]))
    assert tried == [0.9, 0.8, 0.6, 0.3]
    assert in_force(spec, records) == records


def test_a_failure_is_no_end_while_another_utilization_may_answer_it() -> None:
    """Out of memory at 0.9: 0.7 is tried; too little cache at 0.9: there is nothing larger."""
    spec = spec_with()
    gone = failed(0.9, name="eagle", k=5)
    assert in_force(spec, [gone]) == []
    assert search_utilization(spec, [gone], "eagle", 5) == 0.7
    assert search_utilization(spec, [gone], "eagle", 3) == 0.9
    small = failed(0.9, Cause.KV_CACHE_TOO_SMALL, name="eagle", k=5)
    assert in_force(spec, [small]) == [small]
    crash = failed(0.9, Cause.CRASHED_START, name="eagle", k=5)
    assert in_force(spec, [crash]) == [crash]
