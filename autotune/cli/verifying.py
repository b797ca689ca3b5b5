"""`verify`: whether a deployed configuration still pays here and now.

Rule: it is measured, never concluded from what has changed; what has changed is told beside it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from autotune.cli.exits import Exit
from autotune.cli.preparing import seconds
from autotune.cli.progress import screen
from autotune.cli.results import level_lines, provenance
from autotune.cli.running import end_orphans
from autotune.config.prompts import read_prompts
from autotune.core.counting import counted
from autotune.core.jsontype import JSON
from autotune.core.statistics import Interval
from autotune.core.study import Search, StudySpec
from autotune.core.trial import Launch, Record
from autotune.core.verification import (
    Change,
    State,
    Verification,
    changes,
    launches_ahead,
    verification,
)
from autotune.core.wording import conditions
from autotune.core.workload import Prompt
from autotune.errors import UserError
from autotune.exporters.best_config import prompts_sha256
from autotune.exporters.deployed import Deployed, read_deployed
from autotune.exporters.vllm_yaml import render_engine_args
from autotune.files import write_bytes, write_text
from autotune.ports import Engine, LoadGenerator, find, names
from autotune.tuning import saved
from autotune.tuning.identity import files_of, with_weights
from autotune.tuning.lock import held
from autotune.tuning.paths import StudyPaths
from autotune.tuning.runner import Rig
from autotune.tuning.saved import SavedStudy
from autotune.tuning.tuner import fingerprint
from autotune.tuning.verifying import measure

EXITS = {
    State.STILL_GOOD: Exit.SPECULATE,
    State.STALE: Exit.DO_NOT_SPECULATE,
    State.UNDECIDED: Exit.UNDECIDED,
    State.BROKEN: Exit.CANNOT_RUN,
    State.NOT_DONE: Exit.BUDGET,
}
STDOUT = "-"

console = Console(soft_wrap=True, highlight=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A deployment, and everything that is known before it is launched."""

    deployed: Deployed
    spec: StudySpec
    engine: Engine
    probe: Mapping[str, str]
    paths: StudyPaths
    budget_s: float | None

    @property
    def study(self) -> SavedStudy:
        """As the parts that read a study want it; it is not stored."""
        return SavedStudy(
            spec=self.spec,
            file=str(self.deployed.file),
            fingerprint=fingerprint(self.spec, self.probe),
            storage="",
            probe=self.probe,
            target_files=files_of(self.spec.target),
        )


def verify(
    file: Path, prompts: Path | None, budget: str | None, root: Path | None, output: str | None
) -> int:
    """Measure it again beside plain decoding; gives the exit code."""
    case = _case(file, prompts, budget, root)
    paths = case.paths.verification
    with held(paths.lock):
        end_orphans(paths)
        _greet(case)
        try:
            records = _measured(case)
        except KeyboardInterrupt:
            console.print("\ninterrupted; nothing is left running, and nothing is known yet")
            return Exit.INTERRUPTED
        found = _judged(case, records)
    _tell(case, found)
    _write(case, found, output)
    return EXITS[found.state]


def _case(file: Path, prompts: Path | None, budget: str | None, root: Path | None) -> _Case:
    deployed = read_deployed(file)
    base = (root or saved.find_root(file.absolute().parent)).resolve()
    paths = StudyPaths(root=base, name=deployed.study)
    engine: Engine = find("engines", deployed.engine)
    budget_s = seconds(budget) if budget is not None else None
    sent, search = _prompts(deployed, paths, prompts)
    try:
        spec = with_weights(deployed.spec(sent, base, search))
    except ValueError as error:
        raise UserError(f"{file} cannot be verified: {error}") from error
    return _Case(
        deployed=deployed,
        spec=spec,
        engine=engine,
        probe=engine.probe(deployed.launcher),
        paths=paths,
        budget_s=budget_s,
    )


def _prompts(
    deployed: Deployed, paths: StudyPaths, given: Path | None
) -> tuple[Sequence[Prompt], Search | None]:
    """The prompts that were recorded, or those of the file; and how the study searched."""
    kept = saved.load(paths) if (paths.folder / "spec.json").exists() else None
    search = kept.spec.search if kept else None
    if given is not None:
        return _of_file(deployed, given), search
    if kept is not None:
        work = kept.spec.workload
        for split in (work.confirmation, work.search):
            if prompts_sha256(split) == deployed.prompts_sha256:
                return split, search
    raise UserError(
        f"the prompts that {deployed.file} was measured on are not under {paths.folder}: name a "
        "file with --prompts (the same ones, or those that you serve today), or the folder that "
        "holds studies/ with --root"
    )


def _of_file(deployed: Deployed, file: Path) -> Sequence[Prompt]:
    """The split that was recorded, if the file holds it; else all of its prompts."""
    found = read_prompts(file, seed=0)
    if found.faults:
        raise UserError("\n".join(f"--prompts: {fault}" for fault in found.faults))
    for split in (found.confirmation, found.search):
        if prompts_sha256(split) == deployed.prompts_sha256:
            return split
    return (*found.search, *found.confirmation)


def _greet(case: _Case) -> None:
    spec, deployed = case.spec, case.deployed
    what = f"{spec.candidates[0].name}" if deployed.speculates else "plain decoding"
    console.print(f"verifying [bold]{escape(str(deployed.file))}[/]: {what}, {conditions(spec)}")
    if deployed.speedup and deployed.speculates:
        console.print(f"  recorded: {deployed.speedup.show()}")
    count = counted(launches_ahead(spec), "launch", "launches")
    console.print(f"  {count}, {case.probe['device']}; logs in {_logs(case)}")
    for text in _doubts(deployed):
        console.print(f"  [yellow]warning[/]: {escape(text)}")


def _logs(case: _Case) -> Path:
    return case.paths.verification.launches


def _doubts(deployed: Deployed) -> list[str]:
    told = []
    if deployed.unverified:
        told.append("the file says `unverified`: it was never launched as it is deployed")
    if deployed.vllm_yaml.is_file() and not deployed.as_measured:
        told.append(
            f"{deployed.vllm_yaml} is not the file that was measured (another hash): what is "
            f"launched here is what {deployed.file.name} says"
        )
    return told


def _measured(case: _Case) -> list[Record]:
    generators: dict[str, LoadGenerator] = {n: find("loadgens", n) for n in names("loadgens")}
    records: list[Record] = []
    with screen(console, case.spec, case.budget_s) as view:
        rig = Rig(
            spec=case.spec,
            engine=case.engine,
            load_generators=generators,
            paths=case.paths.verification,
            fingerprint=case.study.fingerprint,
            notify=view.on,
        )
        for new in measure(rig, _config_writer(case), budget_s=case.budget_s):
            records += new
    return records


def _config_writer(case: _Case) -> Callable[[Launch, Path], Path]:
    """Writes the deployed file itself for the deployment; without speculation for the baseline."""
    deployed = case.deployed

    def write(launch: Launch, folder: Path) -> Path:
        own = (launch.candidate is not None) == deployed.speculates
        if own and deployed.as_measured:
            return write_bytes(folder / "vllm.yaml", deployed.vllm_yaml.read_bytes())
        text = render_engine_args(
            case.spec, launch.candidate, launch.k_max, launch.gpu_memory_utilization
        )
        return write_text(folder / "vllm.yaml", text)

    return write


def _judged(case: _Case, records: Sequence[Record]) -> Verification:
    first = verification(case.spec, records)
    about = provenance(case.study, case.paths.verification, records, first.result)
    old, now = case.deployed.document, case.deployed.now(about, case.spec)
    return verification(case.spec, records, changes(old, now, case.deployed.stale_paths))


def _tell(case: _Case, found: Verification) -> None:
    console.print()
    speedup = found.result.speedup
    ratio = f", {speedup.show()} {conditions(case.spec)}" if speedup else ""
    console.print(f"[bold]{found.state.value}[/]: {escape(found.reason)}{escape(ratio)}")
    for line in level_lines(found.result):
        console.print(line)
    for text in _remarks(case, found):
        console.print(f"  {escape(text)}")
    for change in found.changes:
        console.print(f"  [yellow]changed[/] {escape(change.show())}")


def _remarks(case: _Case, found: Verification) -> list[str]:
    told, recorded, now = [], case.deployed.speedup, found.result.speedup
    if recorded and now and _apart(recorded, now):
        told.append(f"recorded was {recorded.show()}: beyond both intervals that is another figure")
    if found.state is State.STILL_GOOD and found.changes:
        told.append("the evidence in the file is of before these changes; `autotune run` renews it")
    if found.state is State.STALE:
        told.append("another K or draft may still pay: run the study again")
    return [*told, *found.result.reasons[1:]]


def _apart(one: Interval, other: Interval) -> bool:
    return one.high < other.low or other.high < one.low


def _write(case: _Case, found: Verification, output: str | None) -> None:
    text = json.dumps(_summary(case, found), indent=1) + "\n"
    if output == STDOUT:
        print(text, end="")
        return
    file = Path(output) if output else case.paths.report / "verify.json"
    console.print(f"  written: {write_text(file, text)}")


def _summary(case: _Case, found: Verification) -> dict[str, JSON]:
    """What CI reads: the state, both speedups, and each change with both values."""
    return {
        "state": found.state.value.replace(" ", "_"),
        "exit_code": int(EXITS[found.state]),
        "reason": found.reason,
        "file": str(case.deployed.file),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "conditions": conditions(case.spec),
        "recorded_speedup": _ends(case.deployed.speedup),
        "speedup": _ends(found.result.speedup),
        "levels": [
            {"concurrency": lv.concurrency, "blocks": lv.blocks, "speedup": _ends(lv.speedup)}
            for lv in found.result.levels
        ],
        "changed": [_change(one) for one in found.changes],
        "launches": str(_logs(case)),
    }


def _change(one: Change) -> dict[str, JSON]:
    return {"field": one.path, "old": one.old, "new": one.new}


def _ends(interval: Interval | None) -> JSON:
    """An end without a bound is null."""
    if interval is None:
        return None
    high = interval.high if interval.high < float("inf") else None
    return {"mean": interval.mean, "low": interval.low, "high": high}
