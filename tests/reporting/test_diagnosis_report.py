"""The report explains, and docs/troubleshooting.md is what the tables say."""

import re

import pytest

from autotune.core.causes import CAUSES
from autotune.core.diagnosis import DIAGNOSES, Diagnosis
from autotune.core.recommendation import recommend
from autotune.core.trial import Cause
from autotune.reporting.report import render_report
from autotune.reporting.troubleshooting import FILE, text
from tests.builders_demo import DEMO, demo_study
from tests.builders_steps import DRAFT, World, steps_records, steps_spec


def section(report: str) -> str:
    """The part that explains."""
    return report.partition("## Diagnosis")[2].partition("\n## ")[0]


def test_the_report_says_what_holds_and_what_to_change_next() -> None:
    """Of the recorded demo: each diagnosis with numbers and remedy, each step taken apart."""
    told = section(render_report(DEMO, demo_study(), recommend(DEMO, demo_study()), {}))
    assert "**Next:** num_speculative_tokens_per_batch_size of ngram" in told
    assert re.search(
        r"\| draft-2l \| 4 \| draft_too_slow \| the draft takes \d\.\d ms \(2\d%", told
    )
    assert re.search(r"\| all \| 1 \| small_target \|", told)
    head = next(line for line in told.splitlines() if "step ms" in line)
    assert "checking drafts | drafting | overhead" in head
    assert (
        len(
            re.findall(
                r"^\| (?:draft-2l|draft-4l|eagle|ngram) \| [14] \| \d \| ", told, re.MULTILINE
            )
        )
        == 8
    )
    assert not re.search(r"\d\.\d\dx(?! \[)", told)


def test_without_a_diagnosis_it_says_so() -> None:
    """A draft that gains, at every K."""
    world = World(overhead=0.0002, check=0.0001, draft=0.0014, profile=(0.85, 0.7, 0.1))
    records = steps_records({"draft": world})
    spec = steps_spec(DRAFT)
    told = section(render_report(spec, records, recommend(spec, records), {}))
    assert "No diagnosis holds." in told
    assert "drafting and checking" in told


def test_the_page_of_troubleshooting_is_up_to_date() -> None:
    """Renew it with `python -m autotune.reporting.troubleshooting`."""
    assert FILE.read_text(encoding="utf-8") == text()


def test_every_diagnosis_and_every_cause_is_on_the_page_once() -> None:
    """No row without a sign and a remedy, no cause without a row."""
    rows = [line.split(" | ") for line in text().splitlines() if line.startswith("| `")]
    names = [row[0].strip("| `") for row in rows]
    assert sorted(names) == sorted([*(row.id for row in DIAGNOSES), *(c.value for c in Cause)])
    assert set(CAUSES) == set(Cause)
    assert all(len(cell) > 3 for row in rows for cell in row)


@pytest.mark.parametrize("row", DIAGNOSES, ids=lambda row: row.id)
def test_sign_and_remedy_are_parts_of_a_sentence(row: Diagnosis) -> None:
    """`numbers; remedy`, and a cell of a table."""
    assert not row.remedy.endswith(".")
    assert not row.sign.endswith(".")
