"""The report's tables of what was said: replies beside those of plain decoding, prompts by length.

Rules: replies match or differ, they are never called the same; of the search only the knees are
shown and what is suspect, of the confirmation everything; lengths are a table only where the
prompts fill two buckets.
"""

from collections.abc import Collection, Sequence

from autotune.core.buckets import Bucket
from autotune.core.recommendation import Recommendation
from autotune.core.replychecks import ReplyChecks
from autotune.core.textcheck import EARLY_TOKENS, TextMatch
from autotune.core.trial import BASELINE
from autotune.reporting.tables import Table

CONFIRMATION = "confirmation"
PLAIN_AGAIN = "plain decoding, launched again"

_Point = tuple[str, str, int]


def matches_table(checks: ReplyChecks, result: Recommendation) -> Table:
    """How many replies match, at each level and together, and where the others part."""
    rows = [m for m in checks.matches if m.concurrency is None]
    shown = [m for m in rows if m.suspect or _point(m) in _shown(result, rows)]
    if not shown:
        return []
    levels = sorted({m.concurrency for m in checks.matches if m.concurrency is not None})
    by_place = {(_point(m), m.concurrency): m for m in checks.matches}
    head = [
        "prompts",
        "candidate",
        "K",
        *(f"concurrency {c}" for c in levels),
        "replies that match",
    ]
    head += ["words before the first difference", f"differ within {EARLY_TOKENS} tokens"]
    table = [head]
    for m in shown:
        places = [by_place.get((_point(m), concurrency)) for concurrency in (*levels, None)]
        table.append(
            [
                m.split,
                PLAIN_AGAIN if m.candidate == BASELINE else m.candidate,
                str(m.num_speculative_tokens),
                *(f"{p.matched} of {p.compared}" if p else "" for p in places),
                "" if m.words_before is None else f"{m.words_before:.1f} (mean)",
                f"{m.early}, suspect" if m.suspect else str(m.early),
            ]
        )
    return table


def shifts_table(checks: ReplyChecks, result: Recommendation) -> Table:
    """Mean length and distinct-2 of both arms, and their ratios."""
    points = {(s.split, s.candidate, s.num_speculative_tokens): s for s in checks.shifts}
    knees = _knees(result)
    shown = [s for p, s in points.items() if s.shifted or p[0] == CONFIRMATION or p in knees]
    if not shown:
        return []
    head = ["prompts", "candidate", "K", "blocks", "mean tokens", "ratio", "distinct-2", "ratio"]
    return [[*head, "beyond noise"]] + [
        [
            s.split,
            s.candidate,
            str(s.num_speculative_tokens),
            str(s.blocks),
            f"{s.baseline_mean_tokens:.1f} → {s.mean_tokens:.1f}",
            s.tokens.show(),
            _arrow(s.baseline_distinct_2, s.distinct_2),
            s.variety.show() if s.variety else "",
            "yes" if s.shifted else "",
        ]
        for s in shown
    ]


def buckets_table(checks: ReplyChecks, result: Recommendation) -> Table:
    """The speedup of each point in each bucket that its prompts fill."""
    shown = [b for b in checks.buckets if b.split == CONFIRMATION or _at(b) in _knees(result)]
    if len({b.bucket for b in shown}) < 2:  # noqa: PLR2004 - one bucket is no comparison
        return []
    head = ["prompts", "candidate", "K", "concurrency", "prompt tokens", "number", "speedup"]
    return [head] + [
        [
            b.split,
            b.candidate,
            str(b.num_speculative_tokens),
            str(b.concurrency),
            b.label,
            str(b.prompts),
            b.speedup.show(),
        ]
        for b in shown
    ]


def _shown(result: Recommendation, rows: Sequence[TextMatch]) -> Collection[_Point]:
    """Knees, the whole confirmation, and what tells how far plain decoding repeats itself."""
    referenced = {m.split for m in rows if m.candidate == BASELINE}
    knees = _knees(result)
    return {
        _point(m)
        for m in rows
        if m.candidate == BASELINE
        or m.split == CONFIRMATION
        or _point(m) in knees
        or (m.num_speculative_tokens == 0 and m.split not in referenced)
    }


def _knees(result: Recommendation) -> Collection[_Point]:
    return {
        ("search", curve.candidate, curve.knee.num_speculative_tokens)
        for curve in result.search
        if curve.concurrency is None
    }


def _point(match: TextMatch) -> _Point:
    return match.split, match.candidate, match.num_speculative_tokens


def _at(bucket: Bucket) -> _Point:
    return bucket.split, bucket.candidate, bucket.num_speculative_tokens


def _arrow(before: float | None, after: float | None) -> str:
    return "" if before is None or after is None else f"{before:.2f} → {after:.2f}"
