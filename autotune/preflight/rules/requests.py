"""Do requests and replies fit the draft, and does the engine take them while it speculates?

What stands in the file itself (min_p, logit_bias, prompts that are too long for the target) is
refused when the file is read; here is what other files bring in.
"""

from collections.abc import Iterator

from autotune.core.jsontype import JSON
from autotune.core.methods import Runner
from autotune.core.study import Candidate
from autotune.preflight.checkpoint import whole
from autotune.preflight.facts import Facts
from autotune.preflight.findings import Finding, reject, stop, warn

SMALLEST_MIN_P = 1e-5  # _SAMPLING_EPS in vllm/sampling_params.py


def default_min_p(facts: Facts) -> Iterator[Finding]:
    """The model's own sampling defaults hold nothing that is refused while drafting."""
    # get_diff_sampling_param in vllm/config/model.py; _validate_spec_decode in sampling_params.py.
    source = facts.arg("generation_config") or "auto"
    override = facts.arg("override_generation_config")
    own = facts.target.generation.get("min_p") if source == "auto" else None
    given = override.get("min_p", own) if isinstance(override, dict) else own
    if _number(given) > SMALLEST_MIN_P:
        yield stop(
            f"generation_config.json of {facts.target.name} sets min_p = {given} for all requests, "
            "and vLLM refuses min_p while it speculates: the baseline alone would run",
            "set target.engine_args.generation_config: vllm, and give temperature, top_p and top_k "
            "in workload.sampling",
        )


def _number(value: JSON) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def logits_processors(facts: Facts) -> Iterator[Finding]:
    """The server has no logits processors that vLLM refuses while it speculates."""
    # V1: STR_SPEC_DEC_REJECTS_LOGITSPROCS in vllm/v1/sample/logits_processor. V2 takes those of its
    # own interface (v1/worker/gpu/sample/logits_processor/loader.py).
    if not facts.arg("logits_processors"):
        return
    told = "target.engine_args.logits_processors: vLLM's V1 model runner refuses them with drafts"
    if facts.v1_runner:
        yield stop(f"{told}, and that is what runs here", "remove them, or do not speculate")
        return
    for candidate in facts.spec.candidates:
        if candidate.row.runner is Runner.V1:
            remedy = f"{candidate.method} runs on no other: remove them, or the candidate"
            yield reject(candidate, told, remedy)
    yield warn(None, told, "the V2 model runner takes those that are written for it")


def draft_context(facts: Facts) -> Iterator[Finding]:
    """The draft reaches as far as prompts and replies do."""
    # V1: _input_fits_in_drafter in v1/worker/gpu_model_runner.py, by the draft's own context, that
    # of a head that is stretched, too. V2 knows no such bound (v1/worker/gpu/spec_decode).
    for candidate, draft in facts.with_draft():
        asked = whole(candidate.settings.get("max_model_len"))
        limit = min(filter(None, (asked, draft.context)), default=None)
        if limit is None:
            continue
        k = min(facts.spec.ks(candidate))
        told = f"its context has {limit} tokens"
        if facts.v1_runner and facts.shortest is not None and facts.shortest + k > limit:
            told = f"{told}, and the shortest prompt {facts.shortest}: it would never draft"
            yield reject(candidate, told, "take a draft with a longer context")
        elif facts.longest is not None and facts.longest + k > limit:
            told = f"{told}, and prompts with their replies up to {facts.longest}"
            yield warn(candidate, told, _beyond(facts, candidate))
        elif facts.longest is None and facts.max_model_len and facts.max_model_len > limit:
            told = f"{told}, and the target's {facts.max_model_len}"
            yield warn(candidate, told, _beyond(facts, candidate))


def _beyond(facts: Facts, candidate: Candidate) -> str:
    if facts.v1_runner:
        return (
            "while one request is beyond it nothing is drafted for the whole batch: the gain "
            "shrinks though acceptance looks fine"
        )
    if candidate.row.stretched:
        return "vLLM stretches it to the target's context; expect fewer accepted drafts there"
    return (
        "vLLM's V2 model runner drafts on beyond it, where the draft knows no positions; the V1 "
        "one drafts nothing, for the whole batch"
    )


def length_switch(facts: Facts) -> Iterator[Finding]:
    """max_model_len of a candidate is no switch for long requests."""
    # _maybe_override_draft_max_model_len in vllm/config/speculative.py.
    for candidate, draft in facts.with_draft():
        asked = whole(candidate.settings.get("max_model_len"))
        if asked is None:
            continue
        limits = {"the draft's own context": draft.context, "the target's": facts.max_model_len}
        over = [f"{name}, {limit}" for name, limit in limits.items() if limit and asked > limit]
        if over:
            told = f"max_model_len: {asked} is larger than {' and '.join(over)}: vLLM refuses it"
            yield reject(candidate, told, "remove it")
        else:
            yield warn(
                candidate,
                f"max_model_len: {asked} switches drafting off for longer requests, and for all "
                "that are served with them",
                "it is meant for tests: measure without it",
            )
