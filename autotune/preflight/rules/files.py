"""Are the files of each model there and whole, and is it the model that the file says?"""

from collections.abc import Iterator

from autotune.core.methods import taken_for
from autotune.core.study import Candidate
from autotune.preflight.checkpoint import Checkpoint, whole
from autotune.preflight.facts import Facts
from autotune.preflight.findings import Finding, reject, stop, warn

DEFAULT_LORA_RANK = 16  # vllm/config/lora.py


def target_files(facts: Facts) -> Iterator[Finding]:
    """The target's weights are there, whole, and may be read."""
    if facts.real:
        yield from (stop(t.evidence, t.remedy) for t in facts.target.troubles)


def draft_files(facts: Facts) -> Iterator[Finding]:
    """So are each draft's."""
    # vLLM tries such a draft several times and ends with a sentence about repository ids.
    for candidate, draft in facts.with_draft():
        if facts.real:
            yield from (reject(candidate, t.evidence, t.remedy) for t in draft.troubles)


def not_looked_at(facts: Facts) -> Iterator[Finding]:
    """What could not be checked is said, and refuses nothing."""
    remedy = "what the other checks need of it is looked at when it is here"
    for candidate, model in ((None, facts.target), *facts.with_draft()):
        if model.unchecked and facts.real:
            yield warn(candidate, f"{model.name} could not be checked: {model.unchecked}", remedy)


def adapter_files(facts: Facts) -> Iterator[Finding]:
    """LoRA adapters that the engine serves are there, and no larger than it makes room for."""
    limit = whole(facts.arg("max_lora_rank")) or DEFAULT_LORA_RANK
    for name, adapter in facts.adapters.items() if facts.real else ():
        yield from (stop(t.evidence, t.remedy) for t in adapter.troubles)
        rank = whole(adapter.config.get("r"))
        if rank and rank > limit:
            told = f"the LoRA adapter {name!r} has rank {rank}, and the engine makes room for"
            yield stop(f"{told} {limit}", f"set target.engine_args.max_lora_rank: {rank}")


def speculators_target(facts: Facts) -> Iterator[Finding]:
    """The target is no speculators repository: vLLM would serve another model in its place."""
    # maybe_override_with_speculators in vllm/transformers_utils/config.py.
    if facts.target.speculators:
        verifier = _verifier(facts.target) or "the model that it names"
        yield stop(
            f"{facts.target.name} is a draft in the format of speculators: vLLM would serve "
            f"{verifier} with it, whatever this file says",
            f"name {verifier} as target.model, and this repository as a candidate's model",
        )


def other_verifier(facts: Facts) -> Iterator[Finding]:
    """A draft that names its target names this one."""
    for candidate, draft in facts.with_draft():
        verifier = _verifier(draft)
        own = str(facts.target.config.get("_name_or_path") or facts.target.name)
        if verifier and _last(verifier) not in (_last(facts.target.name), _last(own)):
            yield warn(
                candidate,
                f"it was made for {verifier}, and the target is {facts.target.name}",
                "expect fewer accepted drafts if the two are not the same model",
            )


def method_of_path(facts: Facts) -> Iterator[Finding]:
    """The path of the model does not make vLLM run another method."""
    for candidate in facts.spec.candidates:
        if not (candidate.row.needs_model or candidate.row.target_owns_draft):
            continue
        model = candidate.model or facts.spec.target.model
        taken = taken_for(candidate.row, model)
        if taken != candidate.method:
            yield reject(
                candidate,
                f"vLLM would run the method {taken} instead of {candidate.method}: it decides by "
                f"the path of the model, {model}",
                "give the folder another name (a link will do), or write that method",
            )


def twin_weights(facts: Facts) -> Iterator[Finding]:
    """No two candidates are the same draft under two paths."""
    seen: dict[tuple[object, ...], Candidate] = {}
    for candidate in facts.spec.candidates:
        if not candidate.weights or not facts.real:
            continue
        parts = (candidate.settings, candidate.engine_args, candidate.space)
        settings = [str(sorted((key, str(value)) for key, value in p.items())) for p in parts]
        ks = facts.spec.ks(candidate)
        first = seen.setdefault((candidate.method, candidate.weights, *settings, ks), candidate)
        if first is not candidate:
            yield reject(
                candidate,
                f"its model is a copy of that of {first.name!r}, and all else is the same, too",
                f"the results of {first.name!r} hold for it",
            )


def _verifier(model: Checkpoint) -> str:
    found = model.speculators.get("verifier")
    name = found.get("name_or_path") if isinstance(found, dict) else None
    return name if isinstance(name, str) else ""


def _last(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2].lower()
