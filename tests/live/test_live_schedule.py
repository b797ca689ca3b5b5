"""A schedule of K per batch size on a real vLLM: each batch size has its K in force."""

from pathlib import Path

import pytest

from autotune.core.acceptance import SpecCounters
from autotune.core.schedule import scheduled
from tests.live.real import MODELS, NEEDS, draft, one_pass, serving

pytestmark = NEEDS
EAGLE = draft("eagle", "eagle", MODELS / "eagle")
K = 3
TOKENS = 24


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[SpecCounters, int]]:
    """One launch with K = 3 for one request and 0 for more: counters and tokens by concurrency."""
    candidate = scheduled(EAGLE, ((1, 1, K), (2, 8, 0)))
    folder: Path = tmp_path_factory.mktemp("schedule")
    found = {}
    with serving(folder, candidate, K, live=False) as server:
        assert "schedule_disabled" not in server.facts.resolved
        for concurrency, prompts in ((1, 4), (4, 12)):
            seen = one_pass(
                server, k=None, prompts=prompts, max_tokens=TOKENS, concurrency=concurrency
            )
            assert seen.spec is not None
            tokens = sum(sample.output_tokens for sample in seen.result.samples) - prompts
            found[concurrency] = seen.spec, tokens
    return found


def test_one_request_is_drafted_for_with_its_k(
    counted: dict[int, tuple[SpecCounters, int]],
) -> None:
    """K tokens per draft, but for trimming at the end of a reply, and all tokens from drafts."""
    spec, tokens = counted[1]
    assert 0.9 * K <= spec.draft_tokens / spec.drafts <= K
    assert spec.drafts + spec.accepted_tokens >= 0.9 * tokens


def test_several_requests_are_not_drafted_for(
    counted: dict[int, tuple[SpecCounters, int]],
) -> None:
    """None but the last reply, when it is alone."""
    spec, tokens = counted[4]
    assert spec.drafts + spec.accepted_tokens <= TOKENS < 0.25 * tokens
