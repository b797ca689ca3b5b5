"""A candidates file to a StudySpec: every fault at once, each with its line.

Rule: sections are judged one by one, so that a fault in one hides none in another; files beside it
(prompts, models) are looked at as soon as the section that names them is sound.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from autotune.config.build import core_study, tracking_uri
from autotune.config.candidate import NONE, Defaults
from autotune.config.checks import (
    combination_faults,
    context_faults,
    field_faults,
    lora_faults,
    memory_faults,
    model_faults,
    name_faults,
    objective_faults,
    schema_faults,
    sound,
    twin_faults,
    workload_faults,
)
from autotune.config.faults import Said, fault_at, line_of
from autotune.config.models import absolute, beside_file
from autotune.config.prompts import HubDataset, Prompts, read_hub, read_prompts
from autotune.config.schema import CandidatesFile, MlflowSection, SearchSection, TargetSection
from autotune.config.workload import PromptsSection, WorkloadSection
from autotune.config.yamlfile import Document, read_yaml
from autotune.core.jsontype import JSON
from autotune.core.study import StudySpec
from autotune.errors import CandidatesFileError, Fault

Installed = Callable[[str, tuple[str, ...]], Defaults]
"""Engine and launcher to the fields that its SpeculativeConfig has, with their defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracking:
    """Where MLflow keeps the study; a database file stands there with its absolute path."""

    uri: str
    experiment: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedFile:
    """A candidates file, read and found sound."""

    spec: StudySpec
    tracking: Tracking | None
    path: Path
    root: Path
    """The folder of the file, which holds studies/ and reports/."""
    prompts_sha256: str
    prompt_lines: Mapping[str, int] = field(default_factory=dict)
    """Where each prompt stands in its file, by id."""
    prompts_at: int | None = None
    """The line of workload.prompts."""
    drop_too_long: bool = False
    """Whether prompts that do not fit into the context are dropped; they are refused else."""
    notes: tuple[str, ...] = ()
    """What is no fault but must be told before anything is launched."""


def load(
    path: Path | str,
    *,
    check_models: bool = True,
    environ: Mapping[str, str] | None = None,
    installed: Installed | None = None,
) -> LoadedFile:
    """Read a candidates file; raises CandidatesFileError with every fault there is.

    `installed` asks the engine's own version for its fields; without it the table's are taken.
    """
    file = Path(absolute(str(path), Path.cwd()))
    text = _read(file, shown=str(path))
    environ = os.environ if environ is None else environ
    document = read_yaml(text, environ)
    prompts = _prompts(document.data, Path(path).parent)
    fields = _fields(document.data, file.parent, installed)
    said = list(_said(document.data, prompts, file.parent, fields, check_models=check_models))
    said += memory_faults(document.data, environ) if isinstance(document.data, dict) else ()
    faults = _merged(document, [fault_at(document.lines, *one) for one in said])
    if faults:
        raise CandidatesFileError(str(path), sorted(faults, key=lambda fault: fault.line or 0))
    at = line_of(document.lines, ("workload", "prompts"))
    return replace(_loaded(document.data, prompts or Prompts(), file, fields), prompts_at=at)


def _read(file: Path, shown: str) -> str:
    def fault(message: str, line: int | None = None) -> CandidatesFileError:
        return CandidatesFileError(shown, [Fault(path="", line=line, message=message)])

    try:
        raw = file.read_bytes()
        return raw.decode("utf-8-sig")
    except FileNotFoundError as error:
        raise fault("there is no such file; `autotune init MODEL` writes a first one") from error
    except IsADirectoryError as error:
        raise fault("is a folder; name the candidates.yaml in it") from error
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise fault("not UTF-8: save the file as UTF-8", line) from error
    except OSError as error:
        raise fault(f"cannot be read: {error.strerror}") from error


def _merged(document: Document, faults: list[Fault]) -> list[Fault]:
    """All faults; what could not be read is not judged as well."""
    unread = {fault.path for fault in document.faults}
    return [*document.faults, *(fault for fault in faults if fault.path not in unread)]


def _prompts(data: JSON, root: Path) -> Prompts | None:
    """The prompts, if the section that names them is sound."""
    if not isinstance(data, dict):
        return None
    workload = sound(WorkloadSection, data.get("workload"))
    search = sound(SearchSection, data.get("search", {}))
    if workload is None:
        return None
    return _read_prompts(workload.prompts, root, seed=search.seed if search else 0)


def _read_prompts(source: PromptsSection, root: Path, *, seed: int) -> Prompts:
    if source.hf is not None:
        hub = HubDataset(
            name=source.hf,
            split=source.split or "train",
            subset=source.subset,
            column=source.column,
            limit=source.limit,
        )
        return read_hub(hub, seed=seed)
    return read_prompts(
        root / f"{source.file}", seed=seed, format_name=source.format, limit=source.limit
    )


def _fields(data: JSON, root: Path, installed: Installed | None) -> Defaults:
    """What the engine says of its fields, if the section that names it is sound."""
    target = sound(TargetSection, data.get("target")) if isinstance(data, dict) else None
    if target is None or installed is None:
        return NONE
    return installed(target.engine, tuple(beside_file(part, root) for part in target.launcher))


def _said(
    data: JSON, prompts: Prompts | None, root: Path, fields: Defaults, *, check_models: bool
) -> Iterator[Said]:
    if not isinstance(data, dict):
        yield (), "the file must be a mapping with target, workload and candidates"
        return
    unknown = dict(field_faults(data, fields))
    yield from unknown.items()
    # Of a key that there is not, what it says is no matter.
    yield from (one for one in schema_faults(data) if one[0] not in unknown)
    yield from combination_faults(data)
    yield from workload_faults(data, prompts)
    yield from model_faults(data, root, look=check_models)
    yield from name_faults(data)
    yield from twin_faults(data, root)
    yield from lora_faults(data)
    yield from context_faults(data)
    yield from objective_faults(data)


def _loaded(data: JSON, prompts: Prompts, file: Path, fields: Defaults) -> LoadedFile:
    sections = CandidatesFile.model_validate(data)
    spec = core_study(sections, prompts, file, fields)
    return LoadedFile(
        spec=spec,
        tracking=_tracking(sections.tracking.mlflow, file.parent, spec.name),
        path=file,
        root=file.parent,
        prompts_sha256=prompts.sha256,
        prompt_lines=prompts.lines,
        drop_too_long=sections.workload.too_long == "drop",
        notes=prompts.notes,
    )


def _tracking(mlflow: MlflowSection | None, root: Path, study: str) -> Tracking | None:
    if mlflow is None:
        return None
    return Tracking(uri=tracking_uri(mlflow.uri, root), experiment=mlflow.experiment or study)
