"""What the recorded demo's real passes say: three drafts that lose, a lookup that gains for one."""

from autotune.core.diagnosis import Explanation
from tests.builders_demo import DEMO, demo_study
from tests.diagnosing import explained


def of(found: Explanation, candidate: str) -> dict[str, list[int | None]]:
    """Diagnoses of a candidate, with the concurrency of each."""
    told: dict[str, list[int | None]] = {}
    for finding in found.of(candidate):
        told.setdefault(finding.diagnosis.id, []).append(finding.seen.concurrency)
    return told


def test_each_draft_is_poorly_aligned_and_at_four_streams_too_slow() -> None:
    """10 to 16 % accepted at K = 3; the draft's step is a sixth of the target's for one stream,
    which is no fifth, and more than a fifth of it for four.
    """
    found = explained(DEMO, demo_study())
    for name in ("draft-2l", "draft-4l", "eagle"):
        assert of(found, name)["draft_not_aligned"] == [None]
        assert of(found, name)["draft_too_slow"] == [4]


def test_the_lookup_is_switched_off_at_four_streams() -> None:
    """Confirmed 1.2 times the speed for one stream, and nothing left for four."""
    found = explained(DEMO, demo_study())
    assert of(found, "ngram")["batch_too_large"] == [4]
    assert "rarely_proposed" not in of(found, "ngram")
    assert "low_acceptance" not in of(found, "ngram")


def test_a_target_of_135_million_parameters_is_small() -> None:
    """The cheapest of three drafts takes a good sixth of its step."""
    found = explained(DEMO, demo_study())
    assert [f.diagnosis.id for f in found.of(None)] == ["small_target"]


def test_the_next_change_is_a_setting_and_the_drafts_come_after() -> None:
    """The schedule that keeps the gain and drops the loss."""
    found = explained(DEMO, demo_study())
    assert found.changes[0].what.startswith("num_speculative_tokens_per_batch_size of ngram")
    assert [c.another_draft for c in found.changes] == sorted(
        c.another_draft for c in found.changes
    )
