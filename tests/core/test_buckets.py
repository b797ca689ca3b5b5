"""Speedups by prompt length: totals by hand, and buckets that disagree."""

import math
from dataclasses import replace

import pytest

from autotune.core.buckets import bucket_of, bucket_remarks, by_length, log_ratio_of_totals
from autotune.core.noise import LaunchEffect
from autotune.core.replies import Reply
from autotune.core.trial import BASELINE
from tests.builders_replies import make_reply

QUIET = LaunchEffect(sd=0.0, dof=4.0, launches=0)
SHORT, LONG = 100, 5000


@pytest.mark.parametrize(
    ("tokens", "bucket"),
    [
        (0, 0),
        (255, 0),
        (256, 1),
        (1023, 1),
        (1024, 2),
        (4095, 2),
        (4096, 3),
        (16383, 3),
        (16384, 4),
    ],
)
def test_edges_belong_to_the_bucket_they_begin(tokens: int, bucket: int) -> None:
    """0-256, 256-1k, 1k-4k, 4k-16k, 16k and more."""
    assert bucket_of(tokens) == bucket


def test_the_ratio_is_one_of_totals() -> None:
    """Plain 4 s for 40 tokens, the other 3 s for 40: 4/3, though the mean of ratios is 1.5.

    Shares of prompt 1: (1/4 - 10/40) - (0.5/3 - 10/40) = 1/12, of prompt 2: -1/12; the variance
    is 2/1 * 2/144 = 1/36.
    """
    estimate = log_ratio_of_totals([(1.0, 10), (3.0, 30)], [(0.5, 10), (2.5, 30)])
    assert estimate.mean == pytest.approx(math.log(4 / 3))
    assert estimate.variance == pytest.approx(1 / 36)
    assert (estimate.dof, estimate.n) == (1, 2)


def test_one_prompt_has_no_interval() -> None:
    """A ratio, and nothing known of its spread."""
    estimate = log_ratio_of_totals([(2.0, 10)], [(1.0, 10)])
    assert estimate.mean == pytest.approx(math.log(2))
    assert estimate.interval().high == math.inf


def arm(
    times: dict[int, float], candidate: str = BASELINE, k: int = 0, launch: str = "000"
) -> list[Reply]:
    """Five prompts of each length, one token in so many seconds, each a little different."""
    return [
        make_reply(
            candidate=candidate,
            k=k,
            launch=launch,
            prompt=f"{length}-{i}",
            prompt_tokens=length,
            tokens=10,
            seconds=10 * seconds * (1 + 0.01 * i * (1 + k)),
        )
        for length, seconds in times.items()
        for i in range(5)
    ]


def test_each_bucket_is_compared_on_its_own() -> None:
    """Twice as fast on short prompts, half as fast on long ones, with five prompts each."""
    replies = arm({SHORT: 1.0, LONG: 1.0}) + arm({SHORT: 0.5, LONG: 2.0}, "eagle", 2, "001")
    short, long = by_length(replies, QUIET)
    assert (short.label, long.label) == ("below 256", "4k to 16k")
    # Sums over i = 0..4 of 1 + 0.01 i and of 1 + 0.03 i: 5.1 and 5.3.
    assert short.speedup.mean == pytest.approx(2 * 5.1 / 5.3)
    assert long.speedup.mean == pytest.approx(0.5 * 5.1 / 5.3)
    assert short.prompts == long.prompts == 5
    (remark,) = bucket_remarks([short, long])
    assert "at K = 2 eagle helps some prompts and hurts others" in remark
    assert "with below 256 tokens, but 0.48x [" in remark


def test_buckets_that_agree_are_not_remarked() -> None:
    """Nor those of which one is not known well enough."""
    same = arm({SHORT: 1.0, LONG: 1.0}) + arm({SHORT: 0.5, LONG: 0.8}, "eagle", 2, "001")
    assert bucket_remarks(by_length(same, QUIET)) == []
    loud = LaunchEffect(sd=0.5, dof=4.0, launches=0)
    unlike = arm({SHORT: 1.0, LONG: 1.0}) + arm({SHORT: 0.5, LONG: 2.0}, "eagle", 2, "001")
    assert bucket_remarks(by_length(unlike, loud)) == []


def test_a_candidate_has_one_remark_and_the_confirmation_goes_first() -> None:
    """However many of its points are divided by length."""
    plain, slow = arm({SHORT: 1.0, LONG: 1.0}), {SHORT: 0.5, LONG: 2.0}
    searched = [r for k in (1, 2, 3) for r in arm(slow, "eagle", k, f"{k}")]
    cold = [replace(r, split="confirmation") for r in [*plain, *arm(slow, "eagle", 2, "7")]]
    (remark,) = bucket_remarks(by_length([*plain, *searched, *cold], QUIET))
    assert "confirmation prompts" in remark


def test_one_length_is_no_table() -> None:
    """All prompts in one bucket: the speedup of the point says it already."""
    assert by_length(arm({SHORT: 1.0}) + arm({SHORT: 0.5}, "eagle", 2, "001"), QUIET) == ()
    assert by_length([], QUIET) == ()


def test_equal_launches_are_averaged_prompt_by_prompt() -> None:
    """Two plain launches of 1 s and 3 s a token are one of 2 s."""
    plain = arm({SHORT: 1.0, LONG: 1.0}) + arm({SHORT: 3.0, LONG: 3.0}, launch="002")
    short, _ = by_length([*plain, *arm({SHORT: 1.0, LONG: 1.0}, "eagle", 2, "001")], QUIET)
    assert short.speedup.mean == pytest.approx(2 * 5.1 / 5.3)


def test_only_prompts_of_both_arms_count() -> None:
    """What one arm alone was asked tells nothing."""
    extra = make_reply(prompt="alone", prompt_tokens=SHORT, seconds=1000.0)
    replies = [extra, *arm({SHORT: 1.0, LONG: 1.0}), *arm({SHORT: 0.5, LONG: 1.0}, "eagle", 2, "1")]
    assert by_length(replies, QUIET)[0].prompts == 5
