"""`explain`: why a study came out as it did, candidate by candidate, and what to change next.

Rule: only what is stored is asked, the passes of a launch that runs or was interrupted included; it
changes nothing.
"""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich.markup import escape

from autotune.cli.showing import Opened, console, nothing_measured, open_study
from autotune.core.causes import CAUSES
from autotune.core.counting import counted
from autotune.core.diagnosis import Explanation, Finding, explain
from autotune.core.diagnosis.case import Case
from autotune.core.diagnosis.words import (
    ceiling_words,
    error_words,
    finding_words,
    shown_k,
    speed_words,
    split_words,
)
from autotune.core.plan import baseline_failed, pending
from autotune.core.recommendation import Recommendation, recommend
from autotune.core.replychecks import check_replies
from autotune.core.space import with_variants
from autotune.core.study import StudySpec
from autotune.core.trial import Failure, Record
from autotune.core.wording import conditions, headline
from autotune.errors import UserError
from autotune.tuning.journal import salvage
from autotune.tuning.replies import replies_of
from autotune.tuning.search import propose
from autotune.tuning.tuner import usable


def show(name: str, root: Path | None, candidate: str | None) -> None:
    """Print the verdict, what holds of each candidate or of the one named, and the next change."""
    opened = open_study(name, root)
    under_way = _under_way(opened)
    records = [*opened.records, *under_way]
    spec = with_variants(opened.study.spec, records)
    if candidate is not None:
        _check_name(spec, candidate)
    if not records:
        raise nothing_measured(opened)
    result = recommend(spec, records)
    temperature = spec.workload.sampling.temperature
    replies = replies_of(opened.paths, records)
    found = explain(spec, records, result, check_replies(replies, temperature, result.noise.launch))
    for line in _lines(opened, result, found, candidate, records):
        console.print(line)


def _check_name(spec: StudySpec, candidate: str) -> None:
    names = [c.name for c in spec.candidates]
    if candidate in names:
        return
    near = difflib.get_close_matches(candidate, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise UserError(
        f"no candidate {candidate!r} in study {spec.name!r}{hint} (there are: {', '.join(names)})"
    )


def _under_way(opened: Opened) -> list[Record]:
    """What launches without a trial have measured so far: one that runs, or that a kill ended."""
    folders = sorted(opened.paths.launches.glob("[0-9]*"))
    found = [r for f in folders if f.name not in opened.told for r in salvage(f)]
    return usable(found, opened.study.fingerprint, opened.study.spec)


def _lines(
    opened: Opened,
    result: Recommendation,
    found: Explanation,
    candidate: str | None,
    records: Sequence[Record],
) -> Iterator[str]:
    yield f"[bold]{escape(headline(with_variants(opened.study.spec, records), result))}[/]"
    yield from (f"  {escape(reason)}" for reason in result.reasons[1:])
    yield from _state(opened, records)
    for case in found.study.cases:
        if candidate in (None, case.name):
            yield ""
            yield from _candidate(case, found)
    study = found.of(None)
    if study and candidate is None:
        yield ""
        yield "[bold]the study as a whole[/]"
        yield from _findings(study)
    yield ""
    failed = baseline_failed(records)
    yield f"[bold]next[/]: {escape(failed.remedy if failed else found.next_change)}"


def _state(opened: Opened, records: Sequence[Record]) -> Iterator[str]:
    """What is still to come, and what ended without a measurement of plain decoding."""
    told = {r.launch_id for r in records} - opened.told
    for launch_id in sorted(told):
        yield f"  launch {launch_id} runs or was interrupted; what it has measured counts here"
    left = list(pending(opened.study.spec, records, propose))
    if left:
        yield (
            f"  {counted(len(left), 'launch', 'launches')} left, so that all of this may change: "
            f"autotune run {escape(opened.study.file)}"
        )
    failed = baseline_failed(records)
    if failed:
        yield f"  [red]the baseline cannot run[/]: {escape(_failure(failed))}"


def _candidate(case: Case, found: Explanation) -> Iterator[str]:
    method = case.candidate.method
    yield f"[bold]{escape(case.name)}[/] ({method}); {escape(conditions(case.spec))}"
    speeds = speed_words(case)
    yield from (f"  {escape(line)}" for line in speeds or ["not measured beside plain decoding"])
    yield from _model(case)
    yield from _findings(found.of(case.name))
    for record, failure in case.failures:
        k = record.trial.num_speculative_tokens
        yield f"  [red]failed[/] at K = {k}, launch {record.launch_id}: {escape(_failure(failure))}"
    if speeds and not found.of(case.name):
        yield "  no diagnosis holds"


def _findings(found: Iterable[Finding]) -> Iterator[str]:
    for finding in found:
        numbers, remedy = finding_words(finding)
        yield f"  [yellow]{escape(numbers)}[/]"
        yield f"    {escape(remedy)}"


def _model(case: Case) -> Iterator[str]:
    for c, cost in case.costs.items():
        yield f"  concurrency {c}: {split_words(cost, shown_k(case, cost))}"
        ends = (ceiling_words(cost), error_words(cost))
        yield f"    {'; '.join(part for part in ends if part)}"


def _failure(failure: Failure) -> str:
    remedy = failure.remedy or CAUSES[failure.cause].remedy
    return f"{failure.cause.value}: {failure.detail}; {remedy}"
