"""Figures of two arms that cannot be, or that need a word beside them."""

from dataclasses import replace

import pytest

from autotune.core.acceptance import SpecCounters
from autotune.core.host import HostLoad
from autotune.core.trial import Record
from tests.builders import make_spec
from tests.builders_arms import SPEC, arm, baseline, changed, found, only, paced


def counted(record: Record, drafts: int, drafted: int, accepted: int) -> Record:
    """The record with these counters in each of its six passes."""
    spec = SpecCounters(drafts=drafts, draft_tokens=drafted, accepted_tokens=accepted)
    return changed(record, spec=spec)


def shorter(record: Record, share: float) -> Record:
    """The record with shorter replies at the same speed."""
    assert record.measurement
    passes = tuple(
        replace(p, output_tokens=round(share * p.output_tokens), duration_s=share * p.duration_s)
        for p in record.measurement.passes
    )
    return replace(record, outcome=replace(record.measurement, passes=passes))


def test_replies_of_another_length_are_told() -> None:
    """More than two percent per reply, on the same prompts; tokens per second stay comparable."""
    doubt = only(baseline(), shorter(arm(), 0.93))
    assert not doubt.invalid
    assert "59.5 tokens per reply, the baseline's have 64.0 on the same prompts" in doubt.why
    assert found(baseline(), shorter(arm(), 0.985)) == {}


def test_forced_replies_of_another_length_are_an_error() -> None:
    """With ignore_eos every reply goes on to max_tokens, so nothing explains a difference."""
    forced = make_spec(workload=replace(SPEC.workload, ignore_eos=True))
    doubt = only(baseline(), shorter(arm(), 0.93), spec=forced)
    assert doubt.invalid
    assert "finish_reason" in doubt.remedy


def test_a_repetition_loop_cannot_win() -> None:
    """In one arm only, and never mind how fast; where both loop the prompts are to blame."""
    doubt = only(baseline(), changed(arm(), looping=2))
    assert doubt.invalid
    assert "50% of the replies are one phrase over and over, 0% of the baseline's" in doubt.why
    assert found(changed(baseline(), looping=2), changed(arm(), looping=2)) == {}


def test_a_speedup_above_k_plus_one_is_an_error() -> None:
    """At concurrency 1 a step gives K + 1 tokens at most, and takes no less time."""
    doubt = only(baseline(), arm(k=2, gain=4.1))
    assert doubt.invalid
    assert doubt.concurrency == 1
    assert doubt.why == "4.1 times the baseline's speed at concurrency 1: K + 1 = 3 is the most"
    assert found(baseline(), arm(k=2, gain=3.0)) == {}


def test_hits_of_the_prefix_cache_in_one_arm_are_told() -> None:
    """Below the limit of a pass, but not the same."""
    doubt = only(baseline(), changed(arm(), prefix_hit_rate=0.04))
    assert not doubt.invalid
    assert "4% of the prompt tokens came from the prefix cache, 0% in baseline" in doubt.why
    assert found(changed(baseline(), prefix_hit_rate=None), arm()) == {}


def test_a_slowdown_with_preemptions_is_memory_and_not_the_draft() -> None:
    """The capacity of both caches is told beside it."""
    doubt = only(baseline(), changed(arm(), preemptions=3))
    assert not doubt.invalid
    assert "9 preemptions, none in the baseline" in doubt.why
    assert "its KV cache holds 176,128 tokens, the baseline's 180,224" in doubt.why
    assert "memory, not the draft" in doubt.why
    assert "gpu_memory_utilization" in doubt.remedy
    assert found(changed(baseline(), preemptions=1), changed(arm(), preemptions=3)) == {}


def test_a_draft_that_never_proposed_has_no_acceptance() -> None:
    """0 of 0 is not 0, and the speedup stands."""
    doubt = only(baseline(), counted(arm("ngram"), 0, 0, 0))
    assert not doubt.invalid
    assert doubt.why.startswith("never proposed: not one draft over 3840 tokens")


def test_acceptance_of_an_engine_without_counters_is_unavailable() -> None:
    """An older or a newer vLLM under other names: never a silent 0."""
    doubt = only(baseline(), changed(arm(), spec=None))
    assert doubt.why.startswith("acceptance unavailable")


def test_a_handful_of_drafts_is_insufficient() -> None:
    """Told with the interval that they allow."""
    doubt = only(baseline(), counted(arm(k=1), 2, 2, 1))
    assert doubt.why == (
        "12 drafts, 6 of 12 tokens (50%, between 25% and 75%) accepted: insufficient, "
        "200 are needed"
    )


def test_short_replies_bias_the_acceptance_length() -> None:
    """What is accepted past their end is counted as accepted."""
    one_line = [shorter(record, 2 / 64) for record in (baseline(), arm())]
    doubt = only(*one_line)
    assert not doubt.invalid
    assert "replies have 2 tokens on average" in doubt.why
    assert "acceptance length is biased upward" in doubt.why


def test_warnings_of_the_log_are_counted() -> None:
    """Grammar errors leave a pass valid; six passes with two each are twelve."""
    doubt = only(baseline(), changed(arm(), warnings={"the grammar refused tokens": 2}))
    assert not doubt.invalid
    assert doubt.why == "the engine's log warns: the grammar refused tokens, 12 times"
    assert "still validate" in doubt.remedy


def test_replies_that_are_no_json_are_counted() -> None:
    """Of both arms: six passes of four or sixteen requests, two bad replies in each."""
    doubt = only(baseline(), changed(arm(), not_json=2))
    assert not doubt.invalid
    assert doubt.why == (
        "12 of 60 replies are no JSON, which response_format asked for; of the baseline's 0 of 60"
    )
    both = only(changed(baseline(), not_json=1), changed(arm(), not_json=2))
    assert both.why.endswith("of the baseline's 6 of 60")
    assert found(changed(baseline(), not_json=1), arm()) == {}


def test_a_host_that_gave_less_is_told() -> None:
    """On either side, with the first reading."""
    doubt = only(changed(baseline(), host=HostLoad(steal=0.2)), arm())
    assert not doubt.invalid
    assert doubt.why.startswith("in 6 of 12 passes 20% of the CPU time went to other machines")


def test_clocks_are_compared_with_the_others_of_the_launch() -> None:
    """One pass of six at half the clock."""
    slow = changed(arm(), host=HostLoad(gpu_mhz=1980.0))
    assert slow.measurement
    first, *others = slow.measurement.passes
    passes = (replace(first, host=HostLoad(gpu_mhz=990.0)), *others)
    outcome = replace(slow.measurement, passes=passes)
    doubt = only(baseline(), replace(slow, outcome=outcome))
    assert doubt.why.startswith("in 1 of 12 passes the GPU ran at 990 MHz")


def test_a_method_that_learns_is_told_cold_and_warm() -> None:
    """Its speedup grows from block to block: neither half is the whole truth."""
    plain = baseline(blocks=4)
    learning = paced(arm("suffix", blocks=4), (1.2, 2.0, 2.4, 2.8), plain)
    doubt = only(plain, learning)
    assert not doubt.invalid
    assert "1.20, 2.00, 2.40, 2.80 of the baseline's speed block by block" in doubt.why
    assert "1.60 in the first half of a launch and 2.60 in the second" in doubt.why
    assert "every launch starts cold" in doubt.why
    assert found(plain, paced(arm("suffix", blocks=4), (1.9, 2.0, 1.8, 2.0), plain)) == {}


@pytest.mark.parametrize("gains", [(1.0, 1.01, 1.02, 1.03), (1.2, 0.9, 1.2, 1.0)])
def test_scatter_is_no_drift(gains: tuple[float, ...]) -> None:
    """Neither a small trend nor a large to and fro."""
    plain = baseline(blocks=4)
    assert found(plain, paced(arm(blocks=4), gains, plain)) == {}
