"""`check`: everything that can be known before the first launch, all at once.

Rule: nothing is started but the engine's own Python, which is asked what it has; faults of the file
and findings of the preflight stand side by side, and neither hides the other.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from autotune.cli.exits import Exit
from autotune.config import LoadedFile, fit, load
from autotune.core.counting import counted
from autotune.core.jsontype import JSON
from autotune.core.known import warnings
from autotune.engines._host import memory
from autotune.errors import CandidatesFileError, Fault, UserError
from autotune.preflight import Device, Finding, Severity, findings, gather, ordered, refused
from autotune.tuning.identity import with_weights

console = Console(soft_wrap=True, highlight=False)

LABELS = {
    Severity.REJECT_STUDY: "[bold red]study refused[/]",
    Severity.REJECT_CANDIDATE: "[red]candidate refused[/]",
    Severity.SKIP_K: "[yellow]K skipped[/]",
    Severity.WARN: "[yellow]warning[/]",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """A candidates file, and what is known before any launch."""

    file: str
    loaded: LoadedFile | None = None
    """With the tokens of its prompts; None: it is no sound file."""
    faults: tuple[Fault, ...] = ()
    probe: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()

    @property
    def refused(self) -> bool:
        """Whether nothing can be launched."""
        if self.loaded is None or self.faults:
            return True
        return refused(self.findings, self.loaded.spec)

    @property
    def code(self) -> Exit:
        """0 where there is nothing but warnings, and K that are skipped."""
        bad = (Severity.REJECT_STUDY, Severity.REJECT_CANDIDATE)
        found = any(finding.severity in bad for finding in self.findings)
        return Exit.USER if found or self.refused else Exit.SPECULATE


def check(file: Path, *, as_json: bool) -> int:
    """Print what was found; gives the exit code."""
    looked = look(file)
    if as_json:
        sys.stdout.write(json.dumps(_as_dict(looked), indent=1) + "\n")
        return looked.code
    for fault in looked.faults:
        console.print(f"[bold red]fault[/] {escape(fault.show(looked.file))}")
    for line in lines(_all(looked)):
        console.print(line)
    console.print(_summary(looked))
    return looked.code


def look(file: Path) -> Looked:
    """Read the file, look at everything that it names, and ask every rule."""
    try:
        loaded = load(file, installed=_fields)
    except CandidatesFileError as error:
        return Looked(file=str(file), faults=error.faults)
    loaded = replace(loaded, spec=with_weights(loaded.spec))
    with ThreadPoolExecutor(1) as pool:  # prompts are counted while models are read
        fitting = pool.submit(_fitted, loaded)
        probe, unfit = _probed(loaded)
        facts = gather(loaded.spec, probe, _devices(loaded, probe))
        loaded, faults = fitting.result()
    found = findings(replace(facts, spec=loaded.spec))
    return Looked(
        file=str(file),
        loaded=loaded,
        faults=faults,
        probe=probe,
        findings=tuple(ordered([*unfit, *found])),
    )


def _fields(engine: str, launcher: tuple[str, ...]) -> Mapping[str, JSON]:
    """What the engine's own version may be told; nothing of an engine that does not exist."""
    from autotune.ports import Engine, find, names  # noqa: PLC0415 - see `_probed`

    if engine not in names("engines"):
        return {}
    found: Engine = find("engines", engine)
    return found.speculative_fields(launcher)


def _fitted(loaded: LoadedFile) -> tuple[LoadedFile, tuple[Fault, ...]]:
    try:
        return fit(loaded), ()
    except CandidatesFileError as error:
        return loaded, error.faults


def _probed(loaded: LoadedFile) -> tuple[Mapping[str, str], list[Finding]]:
    """What the engine's interpreter says, or the finding that it says nothing."""
    # It brings scipy along, for half a second in which the prompts are being counted.
    from autotune.ports import Engine, find  # noqa: PLC0415

    target = loaded.spec.target
    try:
        engine: Engine = find("engines", target.engine)
        return engine.probe(target.launcher), []
    except UserError as error:
        severity = Severity.REJECT_STUDY
        return {}, [Finding(rule="engine", severity=severity, evidence=str(error), remedy="")]


def _devices(loaded: LoadedFile, probe: Mapping[str, str]) -> tuple[Device, ...]:
    """The memory of this machine, where the engine runs on it."""
    device = probe.get("device", "simulated")
    if device == "simulated":
        return ()
    env = os.environ | loaded.spec.target.env
    pairs = memory(env.get("CUDA_VISIBLE_DEVICES", ""))
    return tuple(Device(total=total, free=free) for total, free in pairs if total)


def lines(found: Sequence[Finding]) -> Iterator[str]:
    """Two lines for each finding: what and about whom, then what to do."""
    for finding in found:
        about = f" [bold]{escape(finding.candidate)}[/]" if finding.candidate else ""
        ks = f" K = {', '.join(map(str, finding.ks))}" if finding.ks else ""
        head = f"{LABELS[finding.severity]}{about}{ks} ({finding.rule})"
        yield f"{head}: {escape(finding.evidence)}"
        if finding.remedy:
            yield f"    {escape(finding.remedy)}"


def _all(looked: Looked) -> list[Finding]:
    """The findings, and what is known of the engine's build and of the prompts."""
    if looked.loaded is None:
        return list(looked.findings)
    spec = looked.loaded.spec
    told = [*looked.loaded.notes, *warnings(spec.target, spec.workload, looked.probe)]
    known = (Finding(rule="known", severity=Severity.WARN, evidence=x, remedy="") for x in told)
    return [*looked.findings, *known]


def _summary(looked: Looked) -> str:
    found = [finding.severity for finding in _all(looked)]
    told = ", ".join(
        counted(found.count(severity), one, many)
        for severity, one, many in (
            (Severity.REJECT_STUDY, "against the study", "against the study"),
            (Severity.REJECT_CANDIDATE, "against a candidate", "against candidates"),
            (Severity.SKIP_K, "against some K", "against some K"),
            (Severity.WARN, "warning", "warnings"),
        )
        if severity in found
    )
    if looked.faults:
        told = f"{counted(len(looked.faults), 'fault')} in the file"
    end = "nothing can be launched" if looked.refused else "nothing stands against a run"
    if looked.code is Exit.USER and not looked.refused:
        end = "a run goes on without the refused candidates"
    return f"{escape(looked.file)}: {told or 'no findings'}; {end}"


def _as_dict(looked: Looked) -> dict[str, object]:
    return {
        "file": looked.file,
        "exit_code": int(looked.code),
        "faults": [asdict(fault) for fault in looked.faults],
        "findings": [asdict(finding) for finding in _all(looked)],
    }
