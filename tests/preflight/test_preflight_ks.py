"""Which K a candidate may have: skipped ones have a reason, and the others go on."""

from typing import Any

import pytest

from autotune.core.methods import METHODS
from autotune.core.study import Search
from autotune.preflight import Finding, Severity, findings, kept, refused
from tests.preflight.folders import HEAD, candidate, facts, model, only, said, study

BLOCK5 = model(tensors=HEAD, architectures=["DFlashDraftModel"], block_size=5)
FEW = Search(num_speculative_tokens=(1, 5, 7))


def test_k_stays_below_the_context() -> None:
    """A K as long as the context could never be drafted."""
    found = facts(candidate("ngram", 2, 64, 100), max_model_len=64)
    finding = only(found, "context_ceiling")
    assert (finding.severity, finding.ks) == (Severity.SKIP_K, (64, 100))


def test_the_default_grid_stops_at_the_trained_block() -> None:
    """Who wants more gives the candidate K of its own, and is warned."""
    finding = only(
        facts(spec=study(candidate("dflash"), search=FEW), draft=BLOCK5), "trained_block"
    )
    assert (finding.severity, finding.ks) == (Severity.SKIP_K, (7,))
    assert "blocks of 5 tokens" in finding.evidence
    asked = only(facts(candidate("dflash", 5, 7), draft=BLOCK5), "trained_block")
    assert asked.severity is Severity.WARN
    assert "K = 7 is asked for" in asked.evidence


@pytest.mark.parametrize(
    ("config", "ks"),
    [
        ({"block_size": 5}, (7,)),
        ({"dflash_config": {"block_size": 6}}, (7,)),
        ({"dspark_block_size": 7}, ()),
        ({"block_size": 8, "speculators_config": {"x": 1}}, ()),
        ({"block_size": 7, "speculators_config": {"x": 1}}, (7,)),
        ({"block_size": 7, "speculators_config": {"x": 1}, "sample_from_anchor": True}, ()),
    ],
)
def test_a_block_is_read_where_each_format_keeps_it(
    config: dict[str, Any], ks: tuple[int, ...]
) -> None:
    """Speculators count the anchor in, unless it is sampled from."""
    spec = study(candidate("dflash"), search=FEW)
    found = said(facts(spec=spec, draft=model(tensors=HEAD, **config)), "trained_block")
    assert tuple(k for f in found for k in f.ks) == ks


def test_the_omni_variant_takes_its_block_and_no_other_k() -> None:
    """vLLM checks that one itself."""
    draft = model(tensors=HEAD, architectures=["Qwen3OmniDSparkModel"], block_size=7)
    finding = only(facts(candidate("dspark", 3, 7), draft=draft), "trained_block")
    assert (finding.severity, finding.ks) == (Severity.SKIP_K, (3,))


def test_medusa_has_no_more_k_than_heads() -> None:
    """vLLM makes K heads and finds no weights for the last."""
    draft = model(tensors=HEAD, medusa_num_heads=4)
    finding = only(facts(candidate("medusa", 2, 4, 5), draft=draft), "trained_heads")
    assert finding.ks == (5,)


def test_k_beyond_the_mtp_layers_is_a_multiple_and_decays() -> None:
    """What vLLM refuses is skipped; what it runs is annotated, and no fault of its."""
    one = model(model_type="deepseek_v3", num_nextn_predict_layers=1)
    finding = only(facts(candidate("mtp", 1, 2, 8), target=one), "mtp_modules")
    assert finding.severity is Severity.WARN
    assert "1 MTP layer: K = 2, 8 runs the same again" in finding.evidence
    two = model(model_type="deepseek_v3", num_nextn_predict_layers=2)
    skipped, warned = said(facts(candidate("mtp", 1, 3, 4), target=two), "mtp_modules")
    assert (skipped.severity, skipped.ks) == (Severity.SKIP_K, (3,))
    assert "K = 4" in warned.evidence


def test_a_suffix_k_beyond_the_tree_is_never_reached() -> None:
    """K is a ceiling there; the default depth is 24."""
    finding = only(facts(candidate("suffix", 8, 32)), "tree_depth")
    assert finding.severity is Severity.WARN
    assert "K = 32 is never reached" in finding.evidence
    deep = candidate("suffix", 32, suffix_decoding_max_tree_depth=64)
    assert said(facts(deep), "tree_depth") == []


@pytest.mark.parametrize(
    ("method", "parallel", "slots"),
    [
        ("eagle3", False, 0),
        ("eagle3", True, 7),
        ("dflash", False, 8),
        ("dspark", False, 7),
        ("mtp", False, 0),
        ("ngram", False, 0),
        ("draft_model", False, 1),
        ("draft_model", True, 8),
        ("medusa", False, 0),
    ],
)
def test_slots_of_the_token_budget_are_those_of_vllm(
    *, method: str, parallel: bool, slots: int
) -> None:
    """The table of SpeculativeConfig.max_num_new_slots_for_drafting, at K = 8."""
    assert METHODS[method].extra_slots(8, parallel=parallel) == slots


def test_k_that_leave_no_token_of_the_budget_are_skipped() -> None:
    """The message has both knobs; a draft model needs one slot and no more."""
    pard = candidate("draft_model", 4, 8, parallel_drafting=True)
    finding = only(facts(pard, max_num_batched_tokens=8), "token_budget")
    assert finding.ks == (8,)
    assert "max_num_batched_tokens" in finding.remedy
    assert "lower K" in finding.remedy
    assert said(facts(candidate("draft_model", 4), max_num_batched_tokens=8), "token_budget") == []


def test_a_skipped_k_leaves_the_others_and_its_reason() -> None:
    """What is launched has no such K; the study keeps why."""
    spec = study(candidate("dflash"), candidate("ngram", name="n"), search=FEW)
    found = findings(facts(spec=spec, draft=BLOCK5))
    left = kept(spec, [f for f in found if f.rule == "trained_block"])
    assert left.ks(left.candidate("c")) == (1, 5)
    assert left.ks(left.candidate("n")) == (1, 5, 7)
    assert left.left_out["c"].startswith("K = 7: the draft was trained for blocks of 5 tokens")


def test_a_candidate_without_any_k_left_is_out() -> None:
    """And a study without any candidate left is refused."""
    spec = study(candidate("ngram", 64), max_model_len=64)
    found = findings(facts(spec=spec))
    assert kept(spec, found).candidates == ()
    assert refused(found, spec)


def test_every_launch_has_its_k() -> None:
    """vLLM's own default for a missing K is an error of one kind or another."""
    for method in METHODS:
        spec = study(candidate(method))
        (one,) = spec.candidates
        for k in spec.ks(one):
            config = one.speculative_config(k)
            assert config is not None
            assert config["num_speculative_tokens"] == k


def test_a_finding_about_k_names_them() -> None:
    """And no other does."""
    with pytest.raises(ValueError, match="names K"):
        Finding(severity=Severity.WARN, ks=(3,), evidence="x", remedy="y")
    with pytest.raises(ValueError, match="needs a candidate"):
        Finding(severity=Severity.REJECT_CANDIDATE, evidence="x", remedy="y")
