"""The report's section on K per batch size: offered, refused with its reason, or not there."""

import re
from collections.abc import Sequence

from autotune.core.recommendation import recommend
from autotune.core.trial import Record, Stage
from autotune.reporting.report import render_report
from tests.builders import make_spec
from tests.builders_schedule import IGNORED, SPEC, confirmed
from tests.builders_study import make_study_records


def section(records: Sequence[Record]) -> str:
    """What the report says of the schedule."""
    text = render_report(SPEC, records, recommend(SPEC, records), {})
    return text.partition("## Schedule\n")[2].partition("\n## ")[0]


def test_one_that_is_offered_has_its_file_and_its_figures() -> None:
    """Ranges in words, the file, and every level beside the static K."""
    told = section(confirmed({1: 1.6, 4: 1.0}))
    assert "K = 3 up to a batch of 1, 0 beyond" in told
    assert "`vllm-schedule.yaml` serves so" in told
    assert "Not offered" not in told
    rows = r"\| 1 \| 3 \| 1\.\d\dx .* 3\.00 \|\n\| 4 \| 0 \| 1\.2\dx \[.*\| 10% \| 100% \| 3\.00 \|"
    assert re.search(rows, told)


def test_one_that_is_refused_says_why_and_shows_what_it_did() -> None:
    """The counters of each level stand beside the reason."""
    told = section(confirmed({1: 1.6, 4: 1.0}, IGNORED))
    assert "**Not offered**: not in force at concurrency 4, where K = 0 was planned" in told
    assert "| 4 | 0 | " in told
    assert "vllm-schedule.yaml" not in told


def test_one_that_was_not_launched_has_no_table() -> None:
    """The budget had no time for it."""
    records = [r for r in confirmed({1: 1.6, 4: 1.0}) if r.trial.stage is not Stage.SCHEDULE]
    told = section(records)
    assert "**Not offered**: it was not launched." in told
    assert "|" not in told


def test_where_one_k_is_best_everywhere_there_is_no_section() -> None:
    """A sentence among the reasons is enough."""
    spec, records = make_spec(), make_study_records()
    text = render_report(spec, records, recommend(spec, records), {})
    assert "## Schedule" not in text
    assert "No schedule of K per batch size is offered: no other K is sure to give" in text
