"""The report's section that explains: what holds of each candidate, and where a step's time goes.

Rules: a diagnosis stands with its numbers and its remedy; a share with its milliseconds; what the
cost model expects is called that.
"""

from collections.abc import Sequence

from autotune.core.cost import StepCost
from autotune.core.diagnosis import Explanation, explain
from autotune.core.diagnosis.case import Case
from autotune.core.diagnosis.words import PARTS, shares, shown_k
from autotune.core.recommendation import Recommendation
from autotune.core.replychecks import ReplyChecks
from autotune.core.study import StudySpec
from autotune.core.trial import Record
from autotune.reporting.tables import Table

STUDY = "all"


def section(
    spec: StudySpec, records: Sequence[Record], result: Recommendation, checks: ReplyChecks
) -> dict[str, object]:
    """What the section of the report shows."""
    found = explain(spec, records, result, checks)
    return {
        "findings": findings_table(found),
        "costs": costs_table(found),
        "next_change": f"{found.next_change}.",
    }


def findings_table(found: Explanation) -> Table:
    """Every diagnosis that holds; empty without any."""
    rows = [
        [
            finding.candidate or STUDY,
            "" if finding.seen.concurrency is None else str(finding.seen.concurrency),
            finding.diagnosis.id,
            finding.seen.numbers,
            finding.diagnosis.remedy,
        ]
        for finding in found.findings
    ]
    return [["candidate", "concurrency", "diagnosis", "numbers", "remedy"], *rows] if rows else []


def costs_table(found: Explanation) -> Table:
    """A step of each candidate at each level taken apart, and the ceiling; empty without steps."""
    known = [(case, cost) for case in found.study.cases for cost in case.costs.values()]
    used = {name for case, cost in known for name, _, _ in shares(cost, shown_k(case, cost))}
    names = [name for _, name in PARTS if name in used]
    head = ["candidate", "concurrency", "K", "step ms", "tokens per step", *names]
    rows = [_row(case, cost, names) for case, cost in known]
    return [[*head, "ceiling", "a K left out"], *rows] if rows else []


def _row(case: Case, cost: StepCost, names: list[str]) -> list[str]:
    k = shown_k(case, cost)
    parts = {name: f"{s * 1e3:.1f} ms, {share:.0%}" for name, s, share in shares(cost, k)}
    best, ceiling = cost.ceiling
    error = cost.left_out_error
    return [
        case.name,
        str(cost.concurrency),
        str(k),
        f"{cost.at(k).whole_s * 1e3:.1f}",
        f"{cost.at(k).tokens:.2f}",
        *(parts.get(name, "") for name in names),
        f"{ceiling:.2f} at K = {best}",
        "" if error is None else f"{error:.1%}",
    ]
