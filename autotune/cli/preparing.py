"""From a candidates file to everything that is known before the first launch.

Rule: nothing is started and nothing is written; every fault of file or machine is a UserError.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.cli.checking import Looked, look
from autotune.config import LoadedFile
from autotune.config.values import parse_duration
from autotune.core.known import other_sampling, warnings
from autotune.core.redaction import is_secret, shown
from autotune.errors import CandidatesFileError, UserError
from autotune.ports import Engine, find
from autotune.preflight import Finding, Severity, kept
from autotune.tuning.identity import files_of, model_defaults
from autotune.tuning.paths import StudyPaths
from autotune.tuning.saved import SavedStudy
from autotune.tuning.tuner import fingerprint


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A loaded file, its engine, and what the engine's host says."""

    loaded: LoadedFile
    engine: Engine
    probe: Mapping[str, str]
    paths: StudyPaths
    fingerprint: str
    budget_s: float | None
    storage: str
    findings: tuple[Finding, ...] = ()
    """Of the preflight; what they refuse is no part of the study any more."""

    @property
    def on_gpu(self) -> bool:
        """Whether the engine will capture CUDA graphs."""
        return not self.probe["device"].startswith(("cpu", "simulated"))

    @property
    def warnings(self) -> list[str]:
        """What to know before the first launch, each in one sentence."""
        spec = self.loaded.spec
        sampling = other_sampling(spec.workload.sampling, model_defaults(spec.target))
        told = [*self.loaded.notes, *warnings(spec.target, spec.workload, self.probe)]
        return [*told, sampling] if sampling else told

    @property
    def saved(self) -> SavedStudy:
        """What the study folder keeps of it."""
        spec = self.loaded.spec
        # Credentials are needed to run, not to show.
        args = {name: v for name, v in spec.target.engine_args.items() if not is_secret(name)}
        target = replace(spec.target, env=shown(spec.target.env), engine_args=args)
        return SavedStudy(
            spec=replace(spec, target=target),
            file=str(self.loaded.path),
            fingerprint=self.fingerprint,
            storage=self.storage,
            probe=self.probe,
            target_files=files_of(spec.target),
        )


def prepare(file: Path, budget: str | None, storage: str | None = None) -> Prepared:
    """Read the file, probe the engine, and check; what stands against a run is a UserError."""
    budget_s = seconds(budget) if budget is not None else None
    looked = look(file)
    loaded, probe = _sound(looked), looked.probe
    engine: Engine = find("engines", loaded.spec.target.engine)
    paths = StudyPaths(root=loaded.root, name=loaded.spec.name)
    return Prepared(
        loaded=loaded,
        engine=engine,
        probe=probe,
        paths=paths,
        fingerprint=fingerprint(loaded.spec, probe),
        budget_s=loaded.spec.search.budget_s if budget_s is None else budget_s,
        storage=storage or f"sqlite:///{paths.database}",
        findings=looked.findings,
    )


def _sound(looked: Looked) -> LoadedFile:
    """The file without what the preflight refuses; raises UserError if nothing is left."""
    if looked.loaded is None or looked.faults:
        raise CandidatesFileError(looked.file, looked.faults)
    if looked.refused:
        told = [
            f"{f.candidate or 'the study'} ({f.rule}): {f.told()}"
            for f in looked.findings
            if f.severity is not Severity.WARN
        ]
        raise UserError("\n".join(["nothing can be launched", *told]))
    return replace(looked.loaded, spec=kept(looked.loaded.spec, looked.findings))


def seconds(budget: str) -> float:
    """The seconds of `--budget 45m`; raises UserError."""
    try:
        return parse_duration(budget)
    except ValueError as error:
        raise UserError(f"--budget: {error}") from error
