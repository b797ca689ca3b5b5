"""Drafts whose acceptance is known beforehand: the counters must show it."""

from pathlib import Path

import pytest

from tests.live.real import MODELS, NEEDS, draft, one_pass, serving, untrained

pytestmark = NEEDS
K = 3


def test_the_target_as_its_own_draft(tmp_path: Path) -> None:
    """Nearly every drafted token is accepted, and a step gives nearly K + 1 tokens."""
    twin = draft("twin", "draft_model", MODELS / "target")
    with serving(tmp_path, twin, K, live=True) as server:
        seen = one_pass(server, k=K)
    assert seen.spec is not None
    assert seen.spec.profile is not None
    assert seen.rate > 0.9
    assert seen.spec.profile.length == pytest.approx(K + 1, rel=0.1)


def test_an_untrained_draft(tmp_path: Path) -> None:
    """Next to no drafted token is accepted, and every draft has K tokens all the same."""
    useless = draft("untrained", "draft_model", untrained(tmp_path / "untrained", layers=2))
    with serving(tmp_path / "launch", useless, K, live=True) as server:
        seen = one_pass(server, k=K)
    assert seen.spec is not None
    assert seen.spec.drafts > 50
    assert seen.rate < 0.05  # here 8 of 390: two layers get a lucky one now and then
    assert seen.spec.draft_tokens / seen.spec.drafts == pytest.approx(K, rel=0.1)
