"""Live K on a real vLLM: what was asked for is in force, and equals a launch with that K."""

from pathlib import Path

import pytest

from autotune.ports import Server
from tests.live.real import MODELS, NEEDS, Seen, draft, one_pass, serving

pytestmark = NEEDS
EAGLE = draft("eagle", "eagle", MODELS / "eagle")
K_MAX = 3
KS = (0, 1, 2)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Seen]:
    """One launch at K_max = 3, a pass at each K, the largest first."""
    with serving(tmp_path_factory.mktemp("live"), EAGLE, K_MAX, live=True) as server:
        assert isinstance(server.facts.kv_cache_tokens, int)
        _mixed(server)
        return {k: one_pass(server, k=k) for k in reversed(KS)}


def _mixed(server: Server) -> None:
    # Also the warm-up: several streams at once must not fall back to K_max.
    assert set(one_pass(server, k=1, max_tokens=8, concurrency=3).steps) == {1}


@pytest.mark.parametrize("k", KS)
def test_the_scheduler_had_this_k_in_force_at_every_step(seen: dict[int, Seen], k: int) -> None:
    """The steps that the engine wrote down have the K of the requests and no other."""
    assert set(seen[k].steps) == {k}
    assert seen[k].steps[k] > 0


def test_the_counters_agree(seen: dict[int, Seen]) -> None:
    """No draft at K = 0; else K tokens per draft, but for trimming at the end of a reply."""
    assert seen[0].spec is not None
    assert seen[0].spec.drafts == 0
    for k in (1, 2):
        spec = seen[k].spec
        assert spec is not None
        assert 0.9 * k <= spec.draft_tokens / spec.drafts <= k
        assert spec.accepted_tokens > 0
        assert len(spec.accepted_per_pos) >= k
        assert sum(spec.accepted_per_pos[k:]) == 0


def test_a_larger_k_needs_fewer_steps(seen: dict[int, Seen]) -> None:
    """The draft is worth something: the same prompts take fewer steps the larger K is."""
    steps = [seen[k].steps[k] for k in KS]
    assert steps == sorted(steps, reverse=True)
    assert steps[-1] < steps[0]


def test_live_k_equals_static_k(seen: dict[int, Seen], tmp_path: Path) -> None:
    """A launch with K = 2 drafts and accepts what live K = 2 did, within 2 %."""
    with serving(tmp_path, EAGLE, 2, live=False) as server:
        static = one_pass(server, k=None).spec
    live = seen[2].spec
    assert static is not None
    assert live is not None
    assert live.drafts == pytest.approx(static.drafts, rel=0.02)
    assert live.draft_tokens == pytest.approx(static.draft_tokens, rel=0.02)
    assert live.accepted_tokens == pytest.approx(static.accepted_tokens, rel=0.02)
