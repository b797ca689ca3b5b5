"""The cost model and the findings in words.

Rules: a share never stands without its milliseconds, a prediction is called one, and a measured
speedup has its interval; what is not known is not mentioned.
"""

from collections.abc import Iterator

from autotune.core.cost import Split, StepCost
from autotune.core.diagnosis.case import Case
from autotune.core.diagnosis.table import Finding
from autotune.core.methods import Drafting
from autotune.core.wording import level_words

PARTS = (
    ("target_s", "target"),
    ("checking_s", "checking drafts"),
    ("drafting_s", "drafting"),
    ("together_s", "drafting and checking"),
    ("overhead_s", "overhead"),
    ("speculating_s", "speculating"),
    ("carried_s", "prefills of others"),
)
"""The parts of a split, and what they are called."""
SMALLEST = 0.005
"""Share of a step below which a part is not told."""


def finding_words(finding: Finding) -> tuple[str, str]:
    """`draft_too_slow at concurrency 4: numbers`, and the remedy."""
    row = finding.diagnosis
    return f"{row.id}{finding.where}: {finding.seen.numbers}", f"remedy: {row.remedy}"


def speed_words(case: Case) -> list[str]:
    """The best point of each level, as measured."""
    told = []
    for level in case.spec.workload.levels:
        point = case.point(level.concurrency)
        if point is not None:
            proof = "confirmed" if level.concurrency in case.confirmation else "in the search"
            told.append(
                f"{level_words(level)}: {point.speedup.show()} at K = "
                f"{point.num_speculative_tokens}, {proof}"
            )
    return told


def shown_k(case: Case, cost: StepCost) -> int:
    """The K whose step is taken apart: that of the level's best point, else the largest."""
    point = case.point(cost.concurrency)
    k = point.num_speculative_tokens if point else 0
    return k if k in cost.ks else cost.ks[-1]


def shares(cost: StepCost, k: int) -> Iterator[tuple[str, float, float]]:
    """Name, seconds and share of each part of a step that is worth a word."""
    split: Split = cost.split(k)
    whole = cost.at(k).whole_s
    for field, name in PARTS:
        seconds = getattr(split, field)
        if seconds is not None and abs(seconds) >= SMALLEST * whole:
            yield name, seconds, seconds / whole


def split_words(cost: StepCost, k: int) -> str:
    """`a step of K = 3 takes 29.2 ms for 1.31 tokens: target 16.1 ms (55%), ...`."""
    step = cost.at(k)
    parts = ", ".join(
        f"{name} {seconds * 1e3:.1f} ms ({share:.0%})" for name, seconds, share in shares(cost, k)
    )
    return (
        f"a step of K = {k} takes {step.whole_s * 1e3:.1f} ms for {step.tokens:.2f} tokens: {parts}"
    )


def ceiling_words(cost: StepCost) -> str:
    """What the acceptance would allow, drafting and overhead for free."""
    k, speedup = cost.ceiling
    free = (
        "without overhead"
        if cost.drafting is Drafting.LOOKUP
        else "with a free draft and no overhead"
    )
    checked = "" if cost.check else ", checking for free as well"
    return f"{free} this acceptance allows {speedup:.2f} times plain decoding, at K = {k}{checked}"


def error_words(cost: StepCost) -> str:
    """How well the cost model predicts a K from the others; empty with too few K."""
    error = cost.left_out_error
    return "" if error is None else f"the cost model misses a K left out by {error:.1%} at most"
