"""Diagnoses by what was said (core/textcheck.py).

Rule: greedy and sampled replies are judged apart, each by its own comparison, and beside what plain
decoding does when it is launched twice.
"""

from collections.abc import Iterator

from autotune.core.counting import counted
from autotune.core.diagnosis.case import Case
from autotune.core.diagnosis.table import Diagnosis, Seen
from autotune.core.textcheck import EARLY_TOKENS, TextMatch
from autotune.core.trial import BASELINE

MIN_REPLIES = 20
"""Replies below which a share of them says little."""


def greedy_text_differs(case: Case) -> Iterator[Seen]:
    """Most replies at temperature 0 part at their very beginning."""
    overall = [m for m in case.checks.matches if m.concurrency is None]
    twice = next((m for m in overall if m.candidate == BASELINE), None)
    mine = [m for m in overall if m.candidate == case.name and _told(m)]
    if twice is not None and twice.suspect:
        return
    for m in sorted(mine, key=lambda m: -m.early / m.compared)[:1]:
        beside = f"; between two plain launches {twice.show()}" if twice else ""
        yield Seen(
            numbers=f"{m.early} of {m.compared} replies at K = {m.num_speculative_tokens} part "
            f"from plain decoding within {EARLY_TOKENS} tokens{beside}"
        )


def _told(match: TextMatch) -> bool:
    drafted = match.num_speculative_tokens > 0
    return drafted and match.suspect and match.compared >= MIN_REPLIES


def sampled_text_shifted(case: Case) -> Iterator[Seen]:
    """Length or variety of sampled replies is another."""
    mine = [s for s in case.checks.shifts if s.candidate == case.name and s.shifted]
    for s in sorted(mine, key=lambda s: -len(s.shifted))[:1]:
        yield Seen(
            numbers=f"at K = {s.num_speculative_tokens} {' and '.join(s.shifted)} of plain "
            f"decoding's ({counted(s.blocks, 'block')})"
        )


REPLIES = (
    Diagnosis(
        id="greedy_text_differs",
        sign=f"at temperature 0 most replies part from plain decoding's in the first "
        f"{EARLY_TOKENS} tokens",
        remedy="rounding parts replies later: compare sampling parameters, chat template and dtype "
        "of both, and read some replies before it is deployed",
        check=greedy_text_differs,
    ),
    Diagnosis(
        id="sampled_text_shifted",
        sign="at a temperature above 0 mean length or distinct-2 differ beyond the noise",
        remedy="single replies need not agree, their distribution must: look at temperature, "
        "top_p, top_k and seeds, and at lossy acceptance, which changes it",
        check=sampled_text_shifted,
    ),
)
