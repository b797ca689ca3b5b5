"""report.md: the verdict first, every number with its conditions, every launch accounted for."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.core.acceptance import SpecCounters
from autotune.core.jsontype import JSON
from autotune.core.recommendation import recommend
from autotune.core.replies import Reply
from autotune.core.replychecks import NO_CHECKS, ReplyChecks, check_replies
from autotune.core.study import Target
from autotune.core.trial import BASELINE, Record, Stage
from autotune.core.wording import headline
from autotune.reporting.report import render_report, write_report
from autotune.reporting.tables import _acceptance
from tests.builders import make_failure, make_record, make_spec
from tests.builders_replies import make_reply
from tests.builders_study import make_study_records
from tests.goldens import check_golden

SPEC = make_spec()
PROVENANCE: dict[str, JSON] = {
    "autotune_version": "0.1.0",
    "study": "demo",
    "created": "2026-11-30T12:00:00+00:00",
    "host": "bench-1",
    "engine_version": "0.32.0",
    "device": "Intel Xeon, 2 cores",
    "kv_cache_tokens": 176128,
    "engine_env": {"LD_PRELOAD": "/lib/a b.so", "HF_TOKEN": "s3cret"},
}


def report(records: list[Record], checks: ReplyChecks = NO_CHECKS) -> str:
    """The report of a study with these records."""
    return render_report(SPEC, records, recommend(SPEC, records), PROVENANCE, checks)


def said(records: list[Record], temperature: float) -> ReplyChecks:
    """Replies to short and long prompts: eagle is slow on the long ones, ngram babbles."""
    replies = [
        _said(record, level.concurrency, block, i)
        for record in records
        if record.measurement
        for level in SPEC.workload.levels
        for block in range(3)
        for i in range(8)
    ]
    return check_replies(replies, temperature, recommend(SPEC, records).noise.launch)


def _said(record: Record, concurrency: int, block: int, i: int) -> Reply:
    trial = record.trial
    words = [f"{block}{i}w{n}" for n in range(20)]
    if trial.candidate == "ngram" and i != 3:
        words[1:] = ["the", "loop"] * 8
    elif trial.candidate == "eagle" and i < 2:
        words[10 + i] = "another"
    elif trial.repeat and i == 5:
        words[17] = "another"
    seconds = 2.0 if i % 2 else 1.0
    if trial.candidate == "eagle" and trial.num_speculative_tokens:
        seconds *= 1.4 + 0.01 * block if i % 2 else 0.5 + 0.01 * block
    return make_reply(
        " ".join(words),
        trial.candidate,
        trial.num_speculative_tokens,
        prompt=f"{i}",
        launch=record.launch_id,
        split=trial.stage.prompts,
        concurrency=concurrency,
        block=block,
        prompt_tokens=6000 if i % 2 else 80,
        tokens=25,
        seconds=seconds,
    )


def test_golden() -> None:
    """The report of a study that found a winner, whole."""
    records = make_study_records()
    check_golden("report.md", report(records, said(records, 0.0)))


def test_at_a_temperature_lengths_and_variety_are_compared() -> None:
    """No word of matching; what babbles is flagged, and said at the top."""
    records = make_study_records()
    checks = said(records, 0.7)
    text = report(records, checks)
    assert "replies that match" not in text
    row = next(x for x in text.splitlines() if x.startswith("| search | ngram | 2 |"))
    assert re.search(r"1\.00 → 0\.\d\d \| 0\.\d\dx \[.*\| yes \|$", row)
    assert "- With ngram at K = 0 the replies are not like those of plain decoding" in text


def test_replies_are_never_called_the_same() -> None:
    """They match, or they differ."""
    records = make_study_records()
    text = report(records, said(records, 0.0))
    assert "identical" not in text.lower()
    assert "21 of 24" in text


def test_without_samples_there_is_no_section_of_replies() -> None:
    """Of records that an older autotune left."""
    assert "## Replies" not in report(make_study_records())


def test_one_length_of_prompts_is_no_table() -> None:
    """The speedup by length is that of the whole."""
    records = make_study_records()
    checks = said(records, 0.0)
    first = min(b.bucket for b in checks.buckets)
    kept = tuple(b for b in checks.buckets if b.bucket == first)
    assert "Speedup by prompt length" in report(records, checks)
    assert "Speedup by prompt length" not in report(records, replace(checks, buckets=kept))


def test_golden_do_not_speculate() -> None:
    """The report of a study that advises against, whole."""
    check_golden("report-do-not.md", report(make_study_records(scale=0.6)))


@pytest.mark.parametrize("scale", [1.0, 0.785, 0.6])
def test_the_verdict_comes_first(scale: float) -> None:
    """The first line under the title is the sentence to quote."""
    records = make_study_records(scale=scale)
    lines = report(records).splitlines()
    assert lines[2] == f"**{headline(SPEC, recommend(SPEC, records))}**"


@pytest.mark.parametrize("confirmed", [True, False])
def test_no_speedup_without_its_interval(*, confirmed: bool) -> None:
    """Whatever looks like `1.29x` is followed by `[low, high]`; a bare `1x` is the threshold."""
    for figure in re.finditer(r"\d\.\d\dx", report(make_study_records(confirmed=confirmed))):
        assert re.match(r" \[\d\.\d\d, \d\.\d\d\]", figure.string[figure.end() :])


def test_doubts_stand_among_the_reasons() -> None:
    """A remark about the comparison, and the capacity of every launch's cache beside it."""
    records = [
        replace(
            r,
            facts=replace(
                r.facts, resolved={"async_scheduling": str(r.trial.candidate == BASELINE)}
            ),
        )
        for r in make_study_records()
        if r.facts
    ]
    text = report(records)
    assert "part of the gap is scheduling, not drafting; both run as they would be" in text
    assert "| start s | KV tokens | outcome |" in text
    assert "| 35 | 176,128 | 6 valid passes |" in text


def test_little_evidence_of_acceptance_comes_with_its_interval() -> None:
    """Below 200 drafts the rate alone would say too much."""
    few = SpecCounters(drafts=12, draft_tokens=12, accepted_tokens=9).profile
    many = SpecCounters(drafts=1200, draft_tokens=1200, accepted_tokens=900).profile
    assert _acceptance(few) == ["75% [47%, 91%], insufficient", "1.75"]
    assert _acceptance(many) == ["75%", "1.75"]
    assert _acceptance(None) == ["", ""]


def test_acceptance_by_position_is_labelled() -> None:
    """Unconditional, and diluted where drafts may be short; the rate is no reason to choose a K."""
    text = report(make_study_records())
    assert "Acceptance by position is unconditional" in text
    assert "For ngram it is diluted by short drafts" in text
    assert "The rate falls as K grows by arithmetic alone" in text
    fixed = make_spec(candidates=[c for c in SPEC.candidates if c.row.fixed_length])
    records = [r for r in make_study_records() if r.trial.candidate != "ngram"]
    plain = render_report(fixed, records, recommend(fixed, records), PROVENANCE)
    assert "diluted" not in plain


def test_every_launch_has_its_reason() -> None:
    """One row for each launch, in the order in which they were made."""
    records = make_study_records()
    text = report(records)
    for record in records:
        assert re.search(rf"^\| {record.launch_id} .*{re.escape(record.why)}", text, re.MULTILINE)


def test_a_failure_is_told_with_cause_and_remedy() -> None:
    """And the bars of a log line do not break the table."""
    text = report(make_study_records())
    assert "port_taken" in text
    assert "port 8123 is in use \\| by another process" in text
    assert "tried once more with another port" in text


def test_a_launch_that_failed_is_one_row() -> None:
    """Whatever the number of K that it was made for."""
    failed = [make_record("ngram", k, outcome=make_failure(), launch_id="009") for k in (1, 2, 3)]
    text = report([*make_study_records(), *failed])
    assert re.findall(
        r"^\| 009 \| ngram \| ([^|]+) \| out_of_memory_start", text, re.MULTILINE
    ) == ["1, 2, 3"]


def test_invalid_passes_are_counted_by_cause() -> None:
    """What was left out is said, and why."""
    text = report(make_study_records())
    assert "2 of them invalid" in text
    assert "| the text degenerated into a loop | 2 |" in text


def test_an_unconfirmed_winner_is_called_unverified() -> None:
    """Twice: in the sentence to quote and in a box of its own."""
    text = report(make_study_records(confirmed=False))
    assert "unverified: seen in the search only" in text
    assert "**Unverified.**" in text


def test_what_the_budget_left_out_is_told() -> None:
    """With the reason of each launch; of a whole study nothing is left."""
    text = report(make_study_records(confirmed=False))
    told = text.partition("Not measured, for lack of time")[2].partition("## Evidence")[0]
    assert "exactly as it would be deployed." in told
    assert "Not measured" not in report(make_study_records())


def test_no_secret_is_written() -> None:
    """The name of a credential is told, its value is not."""
    text = report(make_study_records())
    assert "s3cret" not in text
    assert "`HF_TOKEN` (set, its value is not shown)" in text


def test_environment_variables_are_quoted_for_the_shell() -> None:
    """The block under `Deploy` can be pasted."""
    assert "export LD_PRELOAD='/lib/a b.so'" in report(make_study_records())


def test_a_hub_name_is_not_called_a_folder() -> None:
    """Only paths need another name elsewhere."""
    spec = make_spec(target=Target(model="org/model"))
    records = make_study_records(scale=0.6)
    text = render_report(spec, records, recommend(spec, records), PROVENANCE)
    assert "folders of the machine" not in text


def test_a_study_without_a_single_measurement_has_a_report(tmp_path: Path) -> None:
    """The failure is the content; no figure is drawn and none is linked."""
    failed = make_record(stage=Stage.BASELINE, outcome=make_failure())
    written = write_report(tmp_path, SPEC, [failed], recommend(SPEC, [failed]), {})
    assert {p.name for p in written} == {"curves.csv", "report.md"}
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "out_of_memory_start" in text
    assert ".png" not in text


def test_write_report_returns_what_it_wrote(tmp_path: Path) -> None:
    """Six files, nothing else left in the folder."""
    records = make_study_records()
    written = write_report(tmp_path / "new", SPEC, records, recommend(SPEC, records), PROVENANCE)
    assert {p.name for p in written} == {
        "acceptance.png",
        "acceptance.svg",
        "curves.csv",
        "curves.png",
        "curves.svg",
        "report.md",
    }
    assert sorted(written) == sorted((tmp_path / "new").iterdir())


def test_a_file_that_cannot_be_replaced_leaves_nothing_beside_it(tmp_path: Path) -> None:
    """No half-written file that a later glob would pick up."""
    (tmp_path / "curves.csv").mkdir()
    records = [make_record()]
    with pytest.raises(OSError, match=r"curves\.csv"):
        write_report(tmp_path, SPEC, records, recommend(SPEC, records), PROVENANCE)
    assert [path.name for path in tmp_path.iterdir()] == ["curves.csv"]


def test_names_are_written_as_the_file_has_them() -> None:
    """Also where a sentence begins with one."""
    spec = replace(SPEC, left_out={"mine": "it has no weights"})
    records = make_study_records()
    text = render_report(spec, records, recommend(spec, records), PROVENANCE)
    assert "\n- mine was left out before any launch: it has no weights." in text
    assert "\n- The speedup " in text
