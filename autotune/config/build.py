"""Sound sections to the core's values: names, absolute paths, the study.

Rule: nothing is checked here; what the core refuses it raises as ValueError, and checks.py gives
it a place.
"""

import re
from pathlib import Path

from pydantic import JsonValue

from autotune.config.candidate import Defaults
from autotune.config.lora import with_path
from autotune.config.models import absolute, beside_file, resolve_model
from autotune.config.prompts import Prompts
from autotune.config.schema import CandidatesFile, TargetSection
from autotune.config.sections import thawed
from autotune.config.workload import WorkloadSection
from autotune.core.study import StudySpec, Target
from autotune.core.workload import Workload


def study_name(file: Path) -> str:
    """The study's name when the file gives none: its own, or its folder's for candidates.yaml."""
    stem = file.parent.name if file.stem == "candidates" else file.stem
    return re.sub(r"[^a-z0-9._-]+", "-", stem.lower()).strip("-._") or "study"


def resolved_model(model: str | None, root: Path) -> str | None:
    """The model as the engine is given it; one that cannot be resolved stays as it is written."""
    if model is None:
        return None
    try:
        return resolve_model(model, root)
    except ValueError:
        return model


def core_workload(workload: WorkloadSection, prompts: Prompts) -> Workload:
    """The workload with its prompts."""
    return Workload(
        search=prompts.search,
        confirmation=prompts.confirmation,
        levels=workload.levels,
        max_tokens=workload.max_tokens,
        sampling=workload.sampling.value(),
        ignore_eos=workload.ignore_eos,
        chat_template_kwargs=thawed(workload.chat_template_kwargs),
        requests_per_stream=workload.requests_per_stream,
        slo=workload.slo.value() if workload.slo else None,
        lora=workload.lora,
        response_format=thawed(workload.response_format) if workload.response_format else None,
    )


def core_study(
    sections: CandidatesFile, prompts: Prompts, file: Path, installed: Defaults
) -> StudySpec:
    """The whole study; `installed` are the fields of the engine's own version."""
    root = file.parent
    target = _target(sections.target, root)
    return StudySpec(
        name=sections.study or study_name(file),
        target=target,
        workload=core_workload(sections.workload, prompts),
        candidates=tuple(
            c.value(resolved_model(c.model, root), target.engine_args, installed)
            for c in sections.candidates
        ),
        search=sections.search.value(),
        objective=sections.objective.value(sections.constraints.value()),
    )


def tracking_uri(given: str | None, root: Path) -> str:
    """MLflow's address; a SQLite file stands in it with its absolute path."""
    scheme, _, path = (given or "sqlite:///studies/mlflow.db").partition(":///")
    return f"{scheme}:///{absolute(path, root)}" if scheme == "sqlite" else f"{given}"


def _target(target: TargetSection, root: Path) -> Target:
    return Target(
        model=resolve_model(target.model, root),
        engine=target.engine,
        engine_args={
            key: with_path(key, value, root)
            for key, value in thawed(
                {k: _beside(v, root) for k, v in target.engine_args.items()}
            ).items()
        },
        env={key: beside_file(value, root) for key, value in target.env.items()},
        launcher=tuple(beside_file(part, root) for part in target.launcher),
    )


def _beside(value: JsonValue, root: Path) -> JsonValue:
    return beside_file(value, root) if isinstance(value, str) else value
