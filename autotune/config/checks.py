"""What no section can see alone: prompts, models, twins, and settings that contradict each other.

Rule: each check takes the file's data, passes over sections that are not sound (the schema has
said so), and yields places and messages.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from autotune.config.build import core_workload, resolved_model
from autotune.config.candidate import CandidateSection, Defaults, field_fault
from autotune.config.faults import Place, Said
from autotune.config.lora import lora_fault
from autotune.config.messages import said
from autotune.config.models import check_model, resolve_model
from autotune.config.prompts import Prompts
from autotune.config.schema import (
    CandidatesFile,
    ObjectiveSection,
    SearchSection,
    TargetSection,
)
from autotune.config.sections import thawed, underscored
from autotune.config.vllm_fields import KV_CACHE_ARGS, KV_CACHE_ENV
from autotune.config.workload import WorkloadSection
from autotune.core.axes import start
from autotune.core.jsontype import JSON
from autotune.core.settings import contradictions
from autotune.core.space import is_legal, points, values_of, variant
from autotune.core.study import Candidate, Target, objective_problem

S = TypeVar("S", bound=BaseModel)
Data = Mapping[str, JSON]

MANY = 2


def sound(section: type[S], data: JSON) -> S | None:
    """The section if nothing is wrong with it."""
    try:
        return section.model_validate(data)
    except ValidationError:
        return None


def sound_candidates(data: Data) -> dict[int, CandidateSection]:
    """The candidates with which nothing is wrong, by their position."""
    entries = data.get("candidates")
    found = enumerate(entries if isinstance(entries, list) else [])
    return {i: c for i, entry in found if (c := sound(CandidateSection, entry)) is not None}


def schema_faults(data: Data) -> Iterator[Said]:
    """What the sections themselves refuse."""
    try:
        CandidatesFile.model_validate(data)
    except ValidationError as error:
        yield from said(error)


def field_faults(data: Data, installed: Defaults) -> Iterator[Said]:
    """Further keys of candidates that the engine's own version of vLLM does not have."""
    entries = data.get("candidates")
    for i, entry in enumerate(entries if isinstance(entries, list) else []):
        if not isinstance(entry, dict):
            continue
        own = set(CandidateSection.model_fields) - {CandidateSection.rest}
        for key in map(underscored, entry):
            fault = None if key in own else field_fault(key, entry.get("method"), installed)
            if fault:
                yield ("candidates", i, key), fault


def workload_faults(data: Data, prompts: Prompts | None) -> Iterator[Said]:
    """What is wrong with the prompts, and levels that they cannot fill."""
    workload = sound(WorkloadSection, data.get("workload"))
    if workload is None or prompts is None:
        return
    if prompts.faults:
        yield from ((("workload", "prompts"), message) for message in prompts.faults)
        return
    try:
        core_workload(workload, prompts)
    except ValueError as error:
        yield ("workload",), str(error)


def model_faults(data: Data, root: Path, *, look: bool) -> Iterator[Said]:
    """Models that are neither here nor on the hub; `look` asks for the folders, too."""
    target = sound(TargetSection, data.get("target"))
    models: dict[Place, str] = {("target", "model"): target.model} if target else {}
    for i, candidate in sound_candidates(data).items():
        if candidate.model is not None:
            models["candidates", i, "model"] = candidate.model
    for place, model in models.items():
        try:
            if look:
                check_model(model, root)
            else:
                resolve_model(model, root)
        except ValueError as error:
            yield place, str(error)


def name_faults(data: Data) -> Iterator[Said]:
    """Candidates that share a name, or bear that of plain decoding."""
    names: dict[str, int] = {}
    for i, candidate in sound_candidates(data).items():
        place: Place = ("candidates", i, "name")
        first = names.setdefault(candidate.label, i)
        if candidate.label == "baseline":
            yield place, "'baseline' is the name of plain decoding: choose another"
        elif first != i:
            taken = f"the name {candidate.label!r} is taken by candidates[{first}]"
            yield place, f"{taken}: give each a `name` of its own"


def twin_faults(data: Data, root: Path) -> Iterator[Said]:
    """Candidates of which the engine makes the same."""
    candidates = sound_candidates(data)
    made = {i: c.value(resolved_model(c.model, root)) for i, c in candidates.items()}
    engines: dict[tuple[object, ...], int] = {}
    for i, candidate in candidates.items():
        first = engines.setdefault(candidate.identity(resolved_model(candidate.model, root)), i)
        if first != i:
            yield ("candidates", i), _twins(first, candidates[first].label, candidate)
            continue
        for j, other in made.items():
            ranged_before = other.space and (j < i or not made[i].space)
            if j != i and ranged_before and (common := _common(made[i], other)):
                yield ("candidates", i), _inside(made[i], common, j, other)
                break


def combination_faults(data: Data) -> Iterator[Said]:
    """Settings of which the engine refuses every combination, or the only one."""
    section = sound(TargetSection, data.get("target"))
    if section is None:
        return
    target = Target(model=section.model, engine_args=thawed(section.engine_args))
    found: list[Said] = []
    for i, candidate in sound_candidates(data).items():
        made = candidate.value(candidate.model, target.engine_args)
        for key, rule in _refused_together(target, made):
            if key in candidate.engine_args:
                found.append((("candidates", i, "engine_args", key), rule))
            elif key in target.engine_args:
                found.append((("target", "engine_args", key), rule))
            else:
                found.append((("candidates", i, key), rule))
    yield from dict.fromkeys(found)


def _refused_together(target: Target, candidate: Candidate) -> Iterator[tuple[str, str]]:
    """The rule that is broken; of a candidate with ranges only if nothing in them keeps it."""
    first = variant(candidate, {name: start(axis) for name, axis in candidate.space.items()})
    if is_legal(target, first) or (candidate.space and points(target, candidate)):
        return
    args = {**target.engine_args, **first.engine_args}
    ranges = "no combination of its values is allowed: " if candidate.space else ""
    for key, rule in contradictions(first.row, first.settings, args):
        yield key, f"{ranges}{rule}"


def _common(one: Candidate, other: Candidate) -> Candidate | None:
    """What both would launch: the candidate itself, or one of the values of its ranges."""
    anywhere = Target(model="")  # what an engine refuses is told of each candidate by itself
    mine = [variant(one, values) for values in points(anywhere, one)] if one.space else [one]
    return next((v for v in mine if values_of(other, v) is not None), None)


def _inside(one: Candidate, common: Candidate, place: int, other: Candidate) -> str:
    if one.space:
        return (
            f"{common.name!r} is one of the values that candidates[{place}] {other.name!r} "
            "searches, too: leave it to one of them"
        )
    return (
        f"{one.name!r} is one of the values that candidates[{place}] {other.name!r} searches: "
        "remove it, every K is measured there"
    )


def _twins(first: int, name: str, second: CandidateSection) -> str:
    settings = second.value(second.model).settings
    resolved = ", ".join(f"{key}: {value}" for key, value in settings.items())
    as_vllm = f" (as vLLM resolves them: {resolved})" if resolved else ""
    return (
        f"{second.label!r} is the same engine configuration as candidates[{first}] {name!r}"
        f"{as_vllm}: remove one, and give the other every K"
    )


def lora_faults(data: Data) -> Iterator[Said]:
    """An adapter that requests name and the engine does not serve."""
    target = sound(TargetSection, data.get("target"))
    workload = sound(WorkloadSection, data.get("workload"))
    if target is None or workload is None or workload.lora is None:
        return
    if fault := lora_fault(workload.lora, thawed(target.engine_args)):
        yield ("workload", "lora"), fault


def memory_faults(data: Data, environ: Mapping[str, str]) -> Iterator[Said]:
    """What sets the KV cache while gpu_memory_utilization, which would, is searched."""
    search = sound(SearchSection, data.get("search", {}))
    target = sound(TargetSection, data.get("target"))
    shares = search.gpu_memory_utilization if search else ()
    if len(shares) < MANY or target is None:
        return
    searched = f"search.gpu_memory_utilization has {len(shares)} values to choose from"
    remedy = "remove it, or give one gpu_memory_utilization"
    for name, why in KV_CACHE_ARGS.items():
        if target.engine_args.get(name) is not None:
            yield ("target", "engine_args", name), f"{name} is set: {why}, but {searched}; {remedy}"
    for name, variable in KV_CACHE_ENV.items():
        if name in target.env and target.env[name] not in variable.off:
            why = f"{name} is set: {variable.why}, but {searched}"
            yield ("target", "env", name), f"{why}; {remedy}"
        elif name not in target.env and environ.get(name, "") not in variable.off:
            why = f"but {name} is set in the environment of autotune: {variable.why}"
            yield ("search", "gpu_memory_utilization"), f"{searched}, {why}; unset it"


def objective_faults(data: Data) -> Iterator[Said]:
    """An objective that the workload gives nothing to measure."""
    objective = sound(ObjectiveSection, data.get("objective", {}))
    workload = sound(WorkloadSection, data.get("workload"))
    if objective and workload and (problem := objective_problem(objective.metric, workload)):
        yield ("objective", "metric"), problem


def context_faults(data: Data) -> Iterator[Said]:
    """Replies that cannot fit into the context."""
    target = sound(TargetSection, data.get("target"))
    workload = sound(WorkloadSection, data.get("workload"))
    limit = target.engine_args.get("max_model_len") if target else None
    if workload and isinstance(limit, int) and workload.max_tokens >= limit:
        too_long = f"max_tokens = {workload.max_tokens} leaves no room for a prompt"
        remedy = "lower it, or raise max_model_len in target.engine_args"
        yield ("workload", "max_tokens"), f"{too_long} in max_model_len = {limit}: {remedy}"
