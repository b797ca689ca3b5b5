"""What a study leaves: exports, report, figures; and the words it ends with.

Rule: the exports are written first; nothing that is only for people can cost them.
"""

import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from autotune.cli.exits import Exit
from autotune.core.counting import counted
from autotune.core.evidence import LevelEvidence
from autotune.core.jsontype import JSON
from autotune.core.objective import FIGURES
from autotune.core.recommendation import Basis, Recommendation
from autotune.core.replychecks import ReplyChecks, check_replies
from autotune.core.space import with_variants
from autotune.core.study import StudySpec
from autotune.core.trial import Launch, Record, Stage
from autotune.core.verdict import Verdict
from autotune.core.wording import headline, level_words
from autotune.files import write_text
from autotune.ports import Exporter, find, names
from autotune.reporting.provenance import gather
from autotune.tuning.paths import StudyPaths
from autotune.tuning.replies import replies_of
from autotune.tuning.saved import SavedStudy


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What was written, and what was found on the way."""

    files: list[Path]
    checks: ReplyChecks


def provenance(
    study: SavedStudy, paths: StudyPaths, records: Sequence[Record], result: Recommendation
) -> dict[str, JSON]:
    """Where the numbers come from: versions, host, time, and the engine's environment."""
    return gather(
        with_variants(study.spec, records),
        records,
        result,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        host=platform.node(),
        probe=study.probe,
        engine_env=_engine_env(paths, records),
        target_files=study.target_files,
    )


def _engine_env(paths: StudyPaths, records: Sequence[Record]) -> dict[str, str]:
    """What the engine was started with beyond the caller's environment, live K's own left out."""
    for record in reversed(records):
        note = paths.launches / record.launch_id / "launch.argv.json"
        if not record.trial.live and note.exists():
            env: dict[str, str] = json.loads(note.read_text(encoding="utf-8"))["env"]
            return {name: value for name, value in env.items() if name != "PYTHONPATH"}
    return {}


def write_results(
    spec: StudySpec,
    paths: StudyPaths,
    records: Sequence[Record],
    result: Recommendation,
    about: Mapping[str, JSON],
) -> Written:
    """Write reports/<name>/, whole; the replies are compared when the exports are on disk."""
    files = []
    for name in names("exporters"):
        exporter: Exporter = find("exporters", name)
        text, file = exporter.render(spec, result, about), paths.report / exporter.filename
        if text:
            files.append(write_text(file, text))
        else:
            file.unlink(missing_ok=True)  # that of an earlier answer
    # matplotlib and pandas take a second to import, and only a finished study needs them.
    from autotune.reporting.report import write_report  # noqa: PLC0415

    temperature = spec.workload.sampling.temperature
    checks = check_replies(replies_of(paths, records), temperature, result.noise.launch)
    files += write_report(paths.report, spec, records, result, about, checks)
    return Written(files=files, checks=checks)


def answered(result: Recommendation, left: Sequence[Launch]) -> bool:
    """Whether the launches that are left may not change the answer to another kind of it.

    A gain that is confirmed is one, whoever else was left out; that nothing pays is only known when
    everybody was tried.
    """
    confirming = any(launch.stage is Stage.CONFIRM for launch in left)
    sure = result.basis is Basis.CONFIRMED and result.speculates and not confirming
    return sure or not left


def exit_code(result: Recommendation, *, complete: bool) -> Exit:
    """The exit code of a study; `complete` says that it came to its answer."""
    if not complete:
        return Exit.BUDGET
    if result.basis is Basis.NOTHING:
        # Candidates that were measured could run; that none of them qualifies is an answer.
        return Exit.UNDECIDED if result.search else Exit.CANNOT_RUN
    match result.verdict:
        case Verdict.SPECULATE:
            return Exit.SPECULATE if result.basis is Basis.CONFIRMED else Exit.UNDECIDED
        case Verdict.DO_NOT_SPECULATE:
            return Exit.DO_NOT_SPECULATE
        case Verdict.TIE | Verdict.INCONCLUSIVE:
            return Exit.UNDECIDED


def announce(
    console: Console,
    spec: StudySpec,
    result: Recommendation,
    paths: StudyPaths,
    left: Sequence[Launch],
    remarks: Sequence[str] = (),
) -> None:
    """The verdict in words, with its numbers and what remains open."""
    console.print()
    console.print(f"[bold]{escape(headline(spec, result))}[/]")
    for line in level_lines(result):
        console.print(line)
    for reason in (*result.reasons[1:], *remarks):
        console.print(f"  {escape(reason)}")
    for launch in left:
        console.print(f"  [yellow]left out for lack of time[/]: {escape(launch.why)}")
    console.print(f"  report and configuration: {paths.report}")


def level_lines(result: Recommendation) -> Iterator[str]:
    """What was measured at each level, both arms beside each other."""
    for level in result.levels:
        yield (
            f"  {level_words(level)}: {level.speedup.show()}, {_compared(level)} "
            f"({counted(level.blocks, 'block')})"
        )
        if level.baseline_goodput and level.goodput:
            good = f"{level.baseline_goodput.show()} -> {level.goodput.show()}"
            yield f"    goodput {escape(good)}"


def _compared(level: LevelEvidence) -> str:
    """Both arms' figure of what the speedup is a ratio of."""
    if level.compared == "output_throughput" or level.baseline_value is None or level.value is None:
        return f"{level.baseline_throughput:.1f} -> {level.throughput:.1f} tok/s"
    return f"{level.baseline_value:.1f} -> {FIGURES[level.compared].shown(level.value)}"
