"""Whether a point may be compared with the baseline, and what to know before believing it.

Rules: every doubt is a row (check, remedy) and names its numbers; a doubt that makes the comparison
invalid keeps the point out of the curves, any other is a remark; what the engine deploys by itself
when it speculates is part of the answer, so it is told and never corrected for.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from autotune.core.pairs import Row, pairs
from autotune.core.parity_figures import FIGURES
from autotune.core.parity_settings import SETTINGS
from autotune.core.study import StudySpec
from autotune.core.trial import Pass, Record

ROWS = (*SETTINGS, *FIGURES)
UNFAIR = tuple(row for row in ROWS if row.invalid)


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Something about a point, at one level or (None) at all of them."""

    candidate: str
    num_speculative_tokens: int
    concurrency: int | None
    prompts: str
    """The split that it was measured on, which the stages of a study share."""
    what: str
    why: str
    remedy: str
    invalid: bool


def doubts(
    spec: StudySpec, records: Sequence[Record], rows: Sequence[Row] = ROWS
) -> tuple[Doubt, ...]:
    """Everything that the rows have to say, point by point."""
    return tuple(
        Doubt(
            candidate=pair.candidate,
            num_speculative_tokens=pair.num_speculative_tokens,
            concurrency=pair.concurrency,
            prompts=pair.arm.records[0].trial.stage.prompts,
            what=row.what,
            why=why,
            remedy=row.remedy,
            invalid=row.invalid,
        )
        for pair in pairs(spec, records)
        for row in rows
        if row.per_level == (pair.concurrency is not None) and (why := row.check(pair)) is not None
    )


def fair(spec: StudySpec, records: Sequence[Record]) -> list[Record]:
    """The records with the passes of unfair comparisons marked invalid, each with its cause."""
    found = doubts(spec, records, UNFAIR)
    return [_judged(record, found) for record in records] if found else list(records)


def ruled_out(spec: StudySpec, records: Sequence[Record]) -> dict[tuple[str, int], str]:
    """Candidate and K of every comparison that is invalid at any level, with the cause."""
    return {
        (doubt.candidate, doubt.num_speculative_tokens): doubt.why
        for doubt in reversed(doubts(spec, records, UNFAIR))
    }


def remarks(spec: StudySpec, records: Sequence[Record]) -> list[str]:
    """One sentence for each kind of doubt about each candidate, the invalid ones first."""
    groups: dict[tuple[str, str], list[Doubt]] = {}
    for doubt in doubts(spec, records):
        groups.setdefault((doubt.candidate, doubt.what), []).append(doubt)
    ordered = sorted(groups.values(), key=lambda group: not group[0].invalid)
    return [_sentence(group) for group in ordered]


def _sentence(group: Sequence[Doubt]) -> str:
    first = group[0]
    where = f"{first.candidate} at K = {_listed(d.num_speculative_tokens for d in group)}"
    levels = {d.concurrency for d in group if d.concurrency is not None}
    where += f", concurrency {_listed(levels)}" if levels else ""
    which = ""
    if len({d.why for d in group}) > 1:
        level = "" if first.concurrency is None else f" at concurrency {first.concurrency}"
        which = f" (so at K = {first.num_speculative_tokens}{level})"
    kept_out = "left out, " if first.invalid else ""
    remedy = f"; {first.remedy}" if first.remedy else ""
    return f"{kept_out}{where}: {first.why}{which}{remedy}"


def _judged(record: Record, found: Sequence[Doubt]) -> Record:
    trial = record.trial
    mine = [
        d
        for d in found
        if (d.candidate, d.num_speculative_tokens, d.prompts)
        == (trial.candidate, trial.num_speculative_tokens, trial.stage.prompts)
    ]
    if record.measurement is None or not mine:
        return record
    passes = tuple(_judged_pass(p, mine) for p in record.measurement.passes)
    return replace(record, outcome=replace(record.measurement, passes=passes))


def _judged_pass(measured: Pass, found: Sequence[Doubt]) -> Pass:
    mine = next((d for d in found if d.concurrency in {None, measured.concurrency}), None)
    if measured.invalid or mine is None:
        return measured
    return replace(measured, invalid=mine.why, remedy=mine.remedy)


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(str(n) for n in sorted(set(numbers)))
