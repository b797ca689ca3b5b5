"""docs/troubleshooting.md: every diagnosis and every cause of a failure, from the tables in use.

Rule: nothing is written by hand; `python -m autotune.reporting.troubleshooting` renews the file,
and a test fails when it is old.
"""

from pathlib import Path

from autotune.core.causes import CAUSES
from autotune.core.diagnosis import DIAGNOSES
from autotune.reporting.tables import Table, markdown

FILE = Path(__file__).parents[2] / "docs" / "troubleshooting.md"

_HEAD = """\
# Troubleshooting

What may be the matter when speculation gives nothing, or when a launch gives no number; how it
shows; what to do. This page is made by `python -m autotune.reporting.troubleshooting` from the
tables that the tool itself goes by.

    autotune explain STUDY              # what holds of this study, with its numbers
    autotune explain STUDY CANDIDATE    # of one candidate

It works while a study runs, and after it was interrupted. The report has the same under
**Diagnosis**, MLflow in the tags `diagnosis.<candidate>` and `next_change` of the study's run.
"""
_DIAGNOSES = """\
## Measured, and no gain

A diagnosis needs enough drafts and passes, and the whole of its figure's interval beyond the
threshold; more than one may hold. Change one thing at a time: `explain` names the next one.
"""
_CAUSES = """\
## Failures

A launch or a K that gives no number is a failure with a cause. The study goes on with the others,
as the last column says; the whole log is in `studies/<study>/launches/NNN/engine.log`.
"""


def text() -> str:
    """The page as it should be."""
    diagnoses: Table = [["diagnosis", "sign", "remedy"]]
    diagnoses += [[f"`{row.id}`", row.sign, row.remedy] for row in DIAGNOSES]
    causes: Table = [["cause", "sign", "remedy", "then"]]
    causes += [
        [f"`{cause.value}`", row.sign, row.remedy, row.policy.value.replace("_", " ")]
        for cause, row in CAUSES.items()
    ]
    parts = (_HEAD, _DIAGNOSES, markdown(diagnoses), "", _CAUSES, markdown(causes), "")
    return "\n".join(parts)


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
