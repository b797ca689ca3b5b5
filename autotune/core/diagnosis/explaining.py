"""A study explained: what holds of each candidate, of all together, and what to change next.

Rule: it changes no number and no verdict; every row of the table is asked, in its order.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autotune.core.diagnosis._acceptance import ACCEPTANCE
from autotune.core.diagnosis._cost import COST, STUDY_COST
from autotune.core.diagnosis._load import LOAD, STUDY_LOAD
from autotune.core.diagnosis._replies import REPLIES
from autotune.core.diagnosis.case import Case, Cases, cases
from autotune.core.diagnosis.next_change import Change, changes, nothing_left
from autotune.core.diagnosis.table import Diagnosis, Finding
from autotune.core.recommendation import Recommendation
from autotune.core.replychecks import NO_CHECKS, ReplyChecks
from autotune.core.study import StudySpec
from autotune.core.trial import Record

DIAGNOSES: tuple[Diagnosis, ...] = (*LOAD, *ACCEPTANCE, *COST, *REPLIES, *STUDY_LOAD, *STUDY_COST)
"""All of them, in the order in which they are told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a study says beside its verdict."""

    study: Cases
    findings: tuple[Finding, ...]
    """In the order of the candidates, those of the study as a whole last."""
    changes: tuple[Change, ...]
    """What may be changed, the next one first."""
    nothing_left: str
    """Why there is nothing to change; empty where there is."""

    def of(self, candidate: str | None) -> tuple[Finding, ...]:
        """What holds of a candidate; None: of the study as a whole."""
        return tuple(finding for finding in self.findings if finding.candidate == candidate)

    @property
    def next_change(self) -> str:
        """The single change to try next, and why; or that nothing is left."""
        return self.changes[0].sentence if self.changes else self.nothing_left


def explain(
    spec: StudySpec,
    records: Sequence[Record],
    result: Recommendation,
    checks: ReplyChecks = NO_CHECKS,
) -> Explanation:
    """Ask every diagnosis of every candidate; `result` is the answer of the same records."""
    study = cases(spec, records, result, checks)
    findings = (*(f for case in study.cases for f in _of_case(case)), *_of_study(study))
    ranked = changes(study, findings, result)
    return Explanation(
        study=study,
        findings=findings,
        changes=ranked,
        nothing_left="" if ranked else nothing_left(result),
    )


def _of_case(case: Case) -> Iterator[Finding]:
    for row in DIAGNOSES:
        for seen in row.check(case) if row.check else ():
            yield Finding(diagnosis=row, candidate=case.name, seen=seen)


def _of_study(study: Cases) -> Iterator[Finding]:
    for row in DIAGNOSES:
        for seen in row.study_check(study) if row.study_check else ():
            yield Finding(diagnosis=row, candidate=None, seen=seen)
