"""Levels at a request rate: E2E latency is what is compared, and every text says so."""

import math
from dataclasses import replace

import pytest

from autotune.core.noise import noise_of
from autotune.core.recommendation import recommend
from autotune.core.speedup import SpeedupCurve, curves
from autotune.core.trial import Record
from autotune.core.wording import headline, level_words, over_levels, short_headline, slo_words
from autotune.core.workload import Level, Slo
from tests.builders import make_pass, make_record, make_spec, make_workload
from tests.builders_study import at_rate, make_open_records, make_open_spec

SPEC = make_open_spec(slo=Slo(ttft_ms=100.0))
RECORDS = make_open_records()
SEARCH = make_open_records(confirmed=False)


def curve(records: list[Record], concurrency: int) -> SpeedupCurve:
    """The head's curve at one level."""
    found = curves(SPEC, records, noise_of(records, SPEC.workload.levels))
    return next(c for c in found if (c.candidate, c.concurrency) == ("eagle", concurrency))


@pytest.mark.parametrize("rate", [0.0, -1.0, math.inf, math.nan])
def test_a_rate_is_a_positive_number(rate: float) -> None:
    """Infinity is the closed loop's business."""
    with pytest.raises(ValueError, match="requests per second"):
        Level(concurrency=4, request_rate=rate)


def test_speed_is_throughput_in_a_closed_loop_and_e2e_at_a_rate() -> None:
    """Half the latency is twice the speed, whatever the throughput."""
    closed = make_pass(k=0, concurrency=4)
    assert closed.log_speed == closed.log_throughput
    at = replace(closed, request_rate=2.5)
    assert at.times
    faster = replace(at, times=replace(at.times, e2e_ms=tuple(t / 2 for t in at.times.e2e_ms)))
    assert faster.log_speed - at.log_speed == pytest.approx(math.log(2))
    assert faster.log_throughput == at.log_throughput
    with pytest.raises(ValueError, match=r"2\.5 requests/s without a success"):
        _ = replace(at, times=None).log_speed


def test_the_curve_is_the_ratio_of_e2e_latencies() -> None:
    """Baseline over candidate, block by block; the throughput stays what was measured."""
    point = curve(SEARCH, 4).at(2)
    arms = {
        name: next(
            r.measurement
            for r in SEARCH
            if (r.trial.candidate, r.trial.num_speculative_tokens) == (name, k) and r.measurement
        ).at(4)
        for name, k in (("baseline", 0), ("eagle", 2))
    }
    logs = [
        math.log((b.mean_e2e_ms or 0) / (e.mean_e2e_ms or 0))
        for b, e in zip(arms["baseline"], arms["eagle"], strict=True)
    ]
    assert point.speedup.mean == pytest.approx(math.exp(sum(logs) / len(logs)))
    closed = curve([at_rate(r, None) for r in SEARCH], 4).at(2)
    assert point.throughput == pytest.approx(closed.throughput)
    assert point.speedup.mean != pytest.approx(closed.speedup.mean, rel=1e-3)
    assert (curve(RECORDS, 4).request_rate, curve(RECORDS, 1).request_rate) == (2.5, None)


def test_evidence_has_both_latencies_and_goodputs() -> None:
    """The ratio of the two latencies shown is the speedup shown."""
    closed, level = recommend(SPEC, RECORDS).levels
    assert (closed.request_rate, closed.compared) == (None, "output_throughput")
    assert (level.request_rate, level.compared) == (2.5, "e2e")
    assert level.value
    assert level.baseline_value
    ratio = level.baseline_value / level.value
    assert ratio == pytest.approx(level.speedup.mean)
    assert closed.goodput
    assert closed.goodput.share.mean == 1.0  # TTFT is 52 to 94 ms at concurrency 1
    assert level.goodput
    assert 0.5 < level.goodput.share.mean < 1.0  # 88 to 158 ms at 4: the slowest break the bound


def test_without_objectives_there_is_no_goodput_in_the_evidence() -> None:
    """Nothing is shown that was not asked for."""
    levels = recommend(make_open_spec(), RECORDS).levels
    assert [(lv.goodput, lv.baseline_goodput) for lv in levels] == [(None, None)] * 2


def test_passes_of_other_rates_are_taken_away() -> None:
    """Only those of a concurrency that now has another rate; the launch is then not whole."""
    measured = make_record("eagle", 2).measurement
    assert measured
    assert measured.at_rates({1: None, 4: None}) is measured
    assert measured.at_rates({}) is measured
    kept = measured.at_rates({4: 2.5})
    assert {p.concurrency for p in kept.passes} == {1}
    assert kept.cut_short


def test_every_sentence_says_that_it_is_latency_at_that_rate() -> None:
    """With what else is compared at the other levels."""
    result = recommend(SPEC, RECORDS)
    where = (
        "weighted over time per reply at concurrency 1 and mean E2E latency at 2.5 requests/s "
        "(at most 4 under way)"
    )
    assert over_levels(SPEC) == where
    assert f"the speed of plain decoding, {where}, temperature 0" in headline(SPEC, result)
    assert where in short_headline(SPEC, result)
    alone = make_spec(
        workload=replace(make_workload(), levels=(Level(concurrency=4, request_rate=2.5),))
    )
    assert over_levels(alone) == "in mean E2E latency at 2.5 requests/s (at most 4 under way)"
    assert level_words(alone.workload.levels[0]) == "2.5 requests/s (at most 4 under way)"


def test_objectives_are_named_with_their_bounds() -> None:
    """Only those that were set."""
    assert slo_words(Slo(ttft_ms=300.0, e2e_ms=2000.0)) == "TTFT <= 300 ms, E2E <= 2000 ms"
