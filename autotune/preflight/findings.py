"""What a check finds, and what follows from it for the study.

Rule: a finding has evidence and a remedy, in plain words; what could not be checked is a warning,
never a refusal. A refused candidate stays visible: the study keeps its name with the reason.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from autotune.core.study import Candidate, StudySpec


class Severity(StrEnum):
    """What a finding does, the worst first."""

    REJECT_STUDY = "reject_study"
    REJECT_CANDIDATE = "reject_candidate"
    SKIP_K = "skip_k"
    WARN = "warn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a rule has to say."""

    rule: str = ""
    severity: Severity
    candidate: str | None = None
    """None: it is about the target or the study."""
    ks: tuple[int, ...] = ()
    """The K that are not launched (skip_k)."""
    evidence: str
    remedy: str

    def __post_init__(self) -> None:
        one = self.severity in (Severity.REJECT_CANDIDATE, Severity.SKIP_K)
        if one and self.candidate is None:
            raise ValueError(f"{self.severity} needs a candidate: {self.evidence}")
        if bool(self.ks) != (self.severity is Severity.SKIP_K):
            raise ValueError(f"skip_k, and nothing else, names K: {self.evidence}")

    def told(self) -> str:
        """Evidence and remedy in one line."""
        return f"{self.evidence}: {self.remedy}" if self.remedy else self.evidence


def stop(evidence: str, remedy: str) -> Finding:
    """Nothing can be measured."""
    return Finding(severity=Severity.REJECT_STUDY, evidence=evidence, remedy=remedy)


def reject(candidate: Candidate, evidence: str, remedy: str) -> Finding:
    """This candidate would fail, or would not be what the file says."""
    return Finding(
        severity=Severity.REJECT_CANDIDATE,
        candidate=candidate.name,
        evidence=evidence,
        remedy=remedy,
    )


def skip(candidate: Candidate, ks: Iterable[int], evidence: str, remedy: str) -> Iterator[Finding]:
    """These K of it would fail or tell nothing; no finding without any."""
    if found := tuple(ks):
        yield Finding(
            severity=Severity.SKIP_K,
            candidate=candidate.name,
            ks=found,
            evidence=evidence,
            remedy=remedy,
        )


def warn(candidate: Candidate | None, evidence: str, remedy: str) -> Finding:
    """It runs, and something about it should be known."""
    name = candidate.name if candidate else None
    return Finding(severity=Severity.WARN, candidate=name, evidence=evidence, remedy=remedy)


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """The worst first; of equals as they were found."""
    ranks = list(Severity)
    return sorted(findings, key=lambda finding: ranks.index(finding.severity))


def refused(findings: Sequence[Finding], spec: StudySpec) -> bool:
    """Whether nothing can be launched: the study is refused, or each of its candidates."""
    if any(finding.severity is Severity.REJECT_STUDY for finding in findings):
        return True
    return not kept(spec, findings).candidates


def kept(spec: StudySpec, findings: Sequence[Finding]) -> StudySpec:
    """The study without the candidates and K that are refused, and with the reasons for that."""
    left_out = dict(spec.left_out)
    candidates = []
    for candidate in spec.candidates:
        mine = [finding for finding in findings if finding.candidate == candidate.name]
        told = _reasons(mine)
        left = _left(spec, candidate, mine)
        if left is not None:
            candidates.append(left)
        if told:
            left_out[candidate.name] = "; ".join(told)
    return replace(spec, candidates=tuple(candidates), left_out=left_out)


def _left(spec: StudySpec, candidate: Candidate, mine: Sequence[Finding]) -> Candidate | None:
    if any(finding.severity is Severity.REJECT_CANDIDATE for finding in mine):
        return None
    skipped = {k for finding in mine for k in finding.ks}
    if not skipped:
        return candidate
    ks = tuple(k for k in spec.ks(candidate) if k not in skipped)
    return replace(candidate, num_speculative_tokens=ks) if ks else None


def _reasons(mine: Sequence[Finding]) -> list[str]:
    """Why a candidate, or some of its K, are not launched."""
    return [
        f"K = {', '.join(map(str, f.ks))}: {f.told()}" if f.ks else f.told()
        for f in mine
        if f.severity in (Severity.REJECT_CANDIDATE, Severity.SKIP_K)
    ]
