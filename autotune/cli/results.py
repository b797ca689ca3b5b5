"""What a study leaves: report, figures, exports; and the words it ends with."""

import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from autotune import __version__
from autotune.cli.exits import Exit
from autotune.core.recommendation import Basis, Recommendation, Verdict
from autotune.core.study import JSON, StudySpec
from autotune.core.trial import Launch, Record
from autotune.files import write_text
from autotune.ports import Exporter, find, names
from autotune.tuning.paths import StudyPaths
from autotune.tuning.saved import SavedStudy

HEADLINES = {
    Verdict.SPECULATE: "speculate",
    Verdict.DO_NOT_SPECULATE: "do not speculate",
    Verdict.TIE: "a tie: speculation makes no difference that matters",
    Verdict.INCONCLUSIVE: "inconclusive",
}


def provenance(study: SavedStudy, records: Sequence[Record]) -> dict[str, JSON]:
    """Where the numbers come from: versions, host, time, prompts."""
    facts = next((r.facts for r in reversed(records) if r.facts), None)
    return {
        "autotune_version": __version__,
        "study": study.spec.name,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": platform.node(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "engine": study.spec.target.engine,
        "engine_version": facts.version if facts else "",
        "device": facts.device if facts else study.probe.get("device", ""),
        "driver": study.probe.get("driver", ""),
        "fingerprint": study.fingerprint,
        "prompts_sha256": study.prompts_sha256,
        "candidates_file": study.file,
    }


def write_results(
    spec: StudySpec,
    paths: StudyPaths,
    records: Sequence[Record],
    result: Recommendation,
    about: Mapping[str, JSON],
) -> list[Path]:
    """Write reports/<name>/, whole; gives the files."""
    # matplotlib and pandas take a second to import, and only a finished study needs them.
    from autotune.reporting.report import write_report  # noqa: PLC0415

    files = write_report(paths.report, spec, records, result, about)
    for name in names("exporters"):
        exporter: Exporter = find("exporters", name)
        text = exporter.render(spec, result, about)
        files.append(write_text(paths.report / exporter.filename, text))
    return files


def exit_code(result: Recommendation, *, complete: bool) -> Exit:
    """The exit code of a study; `complete` says that nothing was left to launch."""
    if result.basis is Basis.NOTHING:
        return Exit.CANNOT_RUN if complete else Exit.BUDGET
    if not complete:
        return Exit.BUDGET
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
) -> None:
    """The verdict in words, with its numbers and what remains open."""
    console.print()
    console.print(f"[bold]verdict: {HEADLINES[result.verdict]}[/]{_scope(result)}")
    best = result.finalist
    if best and result.speedup:
        console.print(
            f"  {best.candidate} at K = {best.num_speculative_tokens}: {result.speedup.show()} "
            f"output tokens per second, weighted over concurrency {_levels(spec)}, temperature "
            f"{spec.workload.sampling.temperature:g}"
        )
    for level in result.levels:
        console.print(
            f"  concurrency {level.concurrency}: {level.speedup.show()}, "
            f"{level.baseline_throughput:.1f} -> {level.throughput:.1f} tok/s "
            f"({level.blocks} blocks)"
        )
    for reason in result.reasons:
        console.print(f"  {reason}")
    for launch in left:
        console.print(f"  [yellow]left out for lack of time[/]: {launch.why}")
    console.print(f"  report and configuration: {paths.report}")


def _scope(result: Recommendation) -> str:
    words = {
        Basis.CONFIRMED: " (confirmed as deployed)",
        Basis.SEARCH: " (from the search)",
        Basis.NOTHING: "",
    }
    return words[result.basis]


def _levels(spec: StudySpec) -> str:
    return " and ".join(str(level.concurrency) for level in spec.workload.levels)
