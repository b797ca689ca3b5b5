"""Which single thing to change next, or that nothing is left to change.

Rules: one variable at a time, since two changes at once tell nothing of either; what costs a
setting comes before what costs another draft, the recommended candidate before the others, then
what promises more; a promise that is no better than what is there is no reason to try.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autotune.core.causes import CAUSES
from autotune.core.diagnosis.case import Case, Cases
from autotune.core.diagnosis.table import Finding
from autotune.core.methods import MAX_SPECULATIVE_TOKENS, Drafting
from autotune.core.recommendation import Basis, Recommendation
from autotune.core.verdict import Verdict

REACH = 2
"""How far beyond the largest K tried the next one goes, as a factor."""
NEEDS_ANOTHER = "small_target"
"""The diagnosis under which no faster draft can be had."""
FASTER = "draft_too_slow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing to change, and why."""

    what: str
    why: str
    promise: float | None = None
    """The overall speedup to expect of it; None where neither model nor measurement says."""
    another_draft: bool = False
    of_answer: bool = False
    """Whether it is the recommended candidate that is changed."""

    @property
    def sentence(self) -> str:
        """`num_speculative_tokens of eagle: 6, because ...`."""
        told = f"{self.what}, because {self.why}"
        if self.promise is None:
            return told
        return f"{told}; expected: {self.promise:.2f} times plain decoding"


def changes(
    study: Cases, findings: Sequence[Finding], result: Recommendation
) -> tuple[Change, ...]:
    """What may be tried, the next one first; empty where nothing is left."""
    found = [*_larger_k(study, result), *_of_findings(study, findings, result)]
    found += [*_of_failures(study), *_more_of_it(result)]
    worth: dict[str, Change] = {}
    for change in found:
        if _worth(change, study, result):
            worth.setdefault(change.what, change)
    return tuple(sorted(worth.values(), key=_rank))


def _rank(change: Change) -> tuple[bool, bool, float]:
    return change.another_draft, not change.of_answer, -(change.promise or 0.0)


def nothing_left(result: Recommendation) -> str:
    """Why there is nothing to change."""
    if result.speculates and result.basis is Basis.CONFIRMED:
        return "nothing is left to try: the answer is confirmed, and no diagnosis asks for a change"
    if result.speculates:
        return "nothing is left to try but the confirmation: let the study finish"
    return (
        "nothing is left to try with these candidates: no diagnosis asks for a change that would "
        "be enough"
    )


def _of_findings(
    study: Cases, findings: Sequence[Finding], result: Recommendation
) -> Iterator[Change]:
    ids = {finding.diagnosis.id for finding in findings}
    for finding in findings:
        what = finding.seen.change
        hopeless = finding.diagnosis.id == FASTER and NEEDS_ANOTHER in ids
        if not what or hopeless:
            continue
        yield Change(
            what=what,
            why=f"{finding.diagnosis.id}: {finding.seen.numbers}",
            promise=finding.seen.promise,
            another_draft=finding.seen.another_draft,
            of_answer=finding.candidate == _answer(result),
        )


def _larger_k(study: Cases, result: Recommendation) -> Iterator[Change]:
    """Where the best K is the largest tried, unless the model speaks against more, or, where it
    says nothing, the interval does.
    """
    for case in study.cases:
        curve = case.search.get(None)
        block = case.drafting is Drafting.PARALLEL  # it is trained for one length
        if curve is None or not curve.knee.at_edge or block:
            continue
        best = curve.knee.best
        larger = min(best * REACH, MAX_SPECULATIVE_TOKENS)
        if any(r.trial.num_speculative_tokens > best for r, _ in case.failures):
            continue
        now, expected = case.overall(lambda cost, k: cost.speedup(k)), _expected(case, larger)
        open_end = curve.at(best).speedup.high > case.need
        if open_end if now is None or expected is None else expected > now[1]:
            yield Change(
                what=f"num_speculative_tokens of {case.name}: {larger}",
                why=f"its best K, {best}, is the largest tried",
                promise=expected,
                of_answer=case.name == _answer(result),
            )


def _expected(case: Case, k: int) -> float | None:
    """The model's speedup at a K that was not measured; None where a level does not tell."""
    largest = max(case.counted, default=0)
    profile = case.counted[largest].profile if largest else None
    if profile is None:
        return None
    predictions = {c: cost.predicted(k, profile.per_position) for c, cost in case.costs.items()}
    if any(p is None for p in predictions.values()):
        return None
    best = case.overall(lambda cost, _: predictions[cost.concurrency] or 1.0)
    return best[1] if best else None


def _of_failures(study: Cases) -> Iterator[Change]:
    """What keeps a candidate from being measured at all."""
    for case in study.cases:
        if case.measured or not case.failures:
            continue
        record, failure = case.failures[-1]
        k = record.trial.num_speculative_tokens
        yield Change(
            what=f"for {case.name}: {failure.remedy or CAUSES[failure.cause].remedy}",
            why=f"{failure.cause.value} at K = {k}, so that nothing of it was measured",
        )


def _more_of_it(result: Recommendation) -> Iterator[Change]:
    if result.verdict is Verdict.INCONCLUSIVE and result.speedup is not None:
        yield Change(
            what="search.budget, search.max_blocks or search.confirm_rounds: more",
            why=f"the interval of the best candidate, {result.speedup.show()}, decides nothing yet",
        )


def _answer(result: Recommendation) -> str | None:
    """The recommended candidate; None: plain decoding."""
    return result.finalist.candidate if result.speculates and result.finalist else None


def _worth(change: Change, study: Cases, result: Recommendation) -> bool:
    """Whether a promise beats what there is, by more than what counts as the same where it takes
    more than a setting of the recommended candidate.
    """
    if change.promise is None:
        return True
    there = result.speedup.mean if result.speedup else 1.0
    need = max(there, 1 + study.spec.objective.min_gain)
    setting = change.of_answer and not change.another_draft
    more = 0.0 if setting else study.spec.objective.tolerance
    return change.promise > need * (1 + more)
