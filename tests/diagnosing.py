"""What the diagnoses say of records, for tests."""

from collections.abc import Sequence

from autotune.core.diagnosis import Explanation, Finding, explain
from autotune.core.recommendation import recommend
from autotune.core.replychecks import NO_CHECKS, ReplyChecks
from autotune.core.study import StudySpec
from autotune.core.trial import Record


def explained(
    spec: StudySpec, records: Sequence[Record], checks: ReplyChecks = NO_CHECKS
) -> Explanation:
    """The study explained."""
    return explain(spec, records, recommend(spec, records), checks)


def ids(spec: StudySpec, records: Sequence[Record], checks: ReplyChecks = NO_CHECKS) -> list[str]:
    """The diagnoses that hold, each once, in their order."""
    found = explained(spec, records, checks).findings
    return list(dict.fromkeys(finding.diagnosis.id for finding in found))


def the(
    name: str, spec: StudySpec, records: Sequence[Record], checks: ReplyChecks = NO_CHECKS
) -> Finding:
    """The first finding of that id."""
    found = explained(spec, records, checks).findings
    mine = [finding for finding in found if finding.diagnosis.id == name]
    assert mine, [finding.diagnosis.id for finding in found]
    return mine[0]
