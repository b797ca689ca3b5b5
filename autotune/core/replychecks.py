"""All that the replies of a study tell beside their speed.

Rule: the sampling temperature decides which comparison of texts holds; nothing here changes a
speedup or a verdict, it is told beside them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.core.buckets import Bucket, bucket_remarks, by_length
from autotune.core.noise import LaunchEffect
from autotune.core.replies import Reply
from autotune.core.textcheck import (
    TextMatch,
    TextShift,
    compare_shifts,
    compare_texts,
    text_remarks,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyChecks:
    """The comparisons of one study; all empty where no replies are kept."""

    matches: tuple[TextMatch, ...] = ()
    """At temperature 0."""
    shifts: tuple[TextShift, ...] = ()
    """At any other."""
    buckets: tuple[Bucket, ...] = ()

    @property
    def remarks(self) -> list[str]:
        """What a reader should not miss."""
        return [*text_remarks(self.matches, self.shifts), *bucket_remarks(self.buckets)]


NO_CHECKS = ReplyChecks()


def check_replies(
    replies: Sequence[Reply], temperature: float, effect: LaunchEffect
) -> ReplyChecks:
    """Texts as the temperature allows, and speedups by prompt length."""
    greedy = temperature == 0
    return ReplyChecks(
        matches=compare_texts(replies) if greedy else (),
        shifts=() if greedy else compare_shifts(replies),
        buckets=by_length(replies, effect),
    )
