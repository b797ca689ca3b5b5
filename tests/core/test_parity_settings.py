"""Two arms that were not started alike are not compared; what the engine changes itself is told."""

from dataclasses import replace

import pytest

from autotune.core.parity_settings import AS_DEPLOYED, MUST_BE_EQUAL
from tests.builders import make_spec
from tests.builders_arms import SPEC, arm, baseline, found, only, resolved


def test_equal_arms_leave_no_doubt() -> None:
    """Nothing is said where nothing is to be said."""
    assert found(baseline(), arm()) == {}


@pytest.mark.parametrize("name", MUST_BE_EQUAL)
def test_a_setting_that_differs_between_arms_makes_a_comparison_invalid(name: str) -> None:
    """Both values are named."""
    doubt = only(resolved(baseline(), **{name: "one"}), resolved(arm(), **{name: "two"}))
    assert doubt.invalid
    assert doubt.why == f"{name} is two, the baseline's one"
    assert "target.launcher" in doubt.remedy


@pytest.mark.parametrize("name", AS_DEPLOYED)
def test_what_the_engine_changes_because_it_speculates_is_a_remark(name: str) -> None:
    """With the same arguments it would do so in production, too."""
    doubt = only(resolved(baseline(), **{name: "one"}), resolved(arm(), **{name: "two"}))
    assert not doubt.invalid
    assert f"{name} is two, the baseline's one" in doubt.why
    assert "as they would be deployed" in doubt.remedy


def test_a_setting_that_one_engine_does_not_tell_is_no_difference() -> None:
    """Older records know fewer settings."""
    assert found(resolved(baseline(), kv_cache_dtype="auto"), arm()) == {}


def test_scheduling_is_named_as_part_of_the_gap() -> None:
    """Asynchronous in the baseline, not with n-gram: a remark, no verdict."""
    plain = resolved(baseline(), async_scheduling="True")
    doubt = only(plain, resolved(arm("ngram"), async_scheduling="False"))
    assert not doubt.invalid
    assert "part of the gap is scheduling, not drafting" in doubt.why
    assert found(plain, resolved(arm("eagle"), async_scheduling="True")) == {}
    off = resolved(baseline(), async_scheduling="False")
    assert found(off, resolved(arm("ngram"), async_scheduling="False")) == {}


def test_batch_invariant_mode_in_one_arm_is_unfair() -> None:
    """A variable of the shell that was set when the study went on."""
    doubt = only(baseline(), resolved(arm(), VLLM_BATCH_INVARIANT="1"))
    assert doubt.invalid
    assert doubt.why == "VLLM_BATCH_INVARIANT is 1, in the baseline 0"


def test_batch_invariant_mode_in_both_arms_is_told() -> None:
    """It changes speeds."""
    both = (resolved(record, VLLM_BATCH_INVARIANT="1") for record in (baseline(), arm()))
    doubt = only(*both)
    assert not doubt.invalid
    assert "in both arms: speeds hold for that mode only" in doubt.why


def test_whether_an_arm_speculates_is_read_from_what_was_resolved() -> None:
    """Counters prove nothing: they may be shown at 0 without speculation."""
    on = "SpeculativeConfig(method='eagle', num_spec_tokens=2)"
    plain = resolved(baseline(), speculative_config="None")
    assert found(plain, resolved(arm(), speculative_config=on)) == {}
    off = only(plain, resolved(arm(), speculative_config="None"))
    assert off.invalid
    assert "K = 2 was asked for, the engine resolved speculative_config to None" in off.why
    odd = only(resolved(baseline(), speculative_config=on), arm())
    assert odd.invalid
    assert f"the baseline was started with {on}" in odd.why


def test_other_prompts_or_another_engine_are_not_compared() -> None:
    """The fingerprint holds prompts in their order, sampling, engine and device."""
    doubt = only(baseline(), replace(arm(), fingerprint="another"))
    assert doubt.invalid
    assert "other prompts, sampling parameters, engine or device" in doubt.why


@pytest.mark.parametrize(
    "said",
    [
        {"cudagraph_truncated_to": "8", "max_cudagraph_capture_size": "512"},
        {"max_cudagraph_capture_size": "8"},
    ],
)
def test_graphs_that_do_not_cover_a_step_are_told(said: dict[str, str]) -> None:
    """4 streams x (K + 1) = 12 tokens, graphs up to 8: at that level a part ran eagerly."""
    doubt = only(baseline(), resolved(arm(k=2), cudagraph_mode="FULL_AND_PIECEWISE", **said))
    assert doubt.concurrency == 4
    assert not doubt.invalid
    assert "ran partly eager: 4 x (K + 1) = 12 tokens in a step" in doubt.why
    assert "max_cudagraph_capture_size: 12" in doubt.why


@pytest.mark.parametrize(
    "said",
    [
        {"cudagraph_mode": "NONE", "cudagraph_truncated_to": "8"},
        {"cudagraph_mode": "FULL", "max_cudagraph_capture_size": "12"},
        {"cudagraph_truncated_to": "8"},
        {"cudagraph_mode": "FULL"},
    ],
)
def test_graphs_that_cover_every_step_or_are_not_used_are_not_told(said: dict[str, str]) -> None:
    """Nor are those of which nothing is known."""
    assert found(baseline(), resolved(arm(k=2), **said)).keys() <= {"resolved flags"}


def test_engine_arguments_of_the_candidate_alone_are_told_and_compared() -> None:
    """The file asks for the difference: the speedup is that of both changes together."""
    own = replace(SPEC.candidate("eagle"), engine_args={"max_num_seqs": 4})
    spec = make_spec(candidates=(own,))
    doubt = only(
        resolved(baseline(), max_num_seqs="8"), resolved(arm(), max_num_seqs="4"), spec=spec
    )
    assert not doubt.invalid
    assert doubt.why == "max_num_seqs is 4, the baseline's 8"
    assert "both changes together" in doubt.remedy
    other = only(resolved(baseline(), dtype="one"), resolved(arm(), dtype="two"), spec=spec)
    assert other.invalid
