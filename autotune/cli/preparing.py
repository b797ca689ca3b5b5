"""From a candidates file to everything that is known before the first launch.

Rule: nothing is started and nothing is written; every fault of file or machine is a UserError.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.config import LoadedFile, fit, load
from autotune.config.values import parse_duration
from autotune.core.known import other_sampling, warnings
from autotune.core.redaction import is_secret, shown
from autotune.core.study import JSON
from autotune.errors import UserError
from autotune.ports import Engine, find, names
from autotune.tuning.identity import model_defaults, with_weights
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
        )


def prepare(file: Path, budget: str | None, storage: str | None = None) -> Prepared:
    """Read the file and probe the engine; every fault of either is a UserError."""
    budget_s = _seconds(budget) if budget is not None else None
    loaded = fit(load(file, installed=_fields))
    loaded = replace(loaded, spec=with_weights(loaded.spec))
    engine: Engine = find("engines", loaded.spec.target.engine)
    probe = engine.probe(loaded.spec.target.launcher)
    paths = StudyPaths(root=loaded.root, name=loaded.spec.name)
    return Prepared(
        loaded=loaded,
        engine=engine,
        probe=probe,
        paths=paths,
        fingerprint=fingerprint(loaded.spec, probe),
        budget_s=loaded.spec.search.budget_s if budget_s is None else budget_s,
        storage=storage or f"sqlite:///{paths.database}",
    )


def _fields(engine: str, launcher: tuple[str, ...]) -> Mapping[str, JSON]:
    """What the engine's own version may be told; nothing of an engine that does not exist."""
    if engine not in names("engines"):
        return {}
    found: Engine = find("engines", engine)
    return found.speculative_fields(launcher)


def _seconds(budget: str) -> float:
    try:
        return parse_duration(budget)
    except ValueError as error:
        raise UserError(f"--budget: {error}") from error
