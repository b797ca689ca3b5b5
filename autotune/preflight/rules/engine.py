"""Do the engine's arguments, its environment and its machine allow the candidate?"""

from collections.abc import Iterator

from autotune.core.methods import Runner, Stages
from autotune.core.study import Candidate
from autotune.preflight.checkpoint import whole
from autotune.preflight.facts import Facts, parallel
from autotune.preflight.findings import Finding, reject, stop, warn

MASK_KEYS = ("mask_token_id", "dspark_noise_token_id", "pard_token", "ptd_token_id")
"""_init_parallel_drafting_params in vllm/v1/spec_decode/llm_base_proposer.py."""


def method_there(facts: Facts) -> Iterator[Finding]:
    """vLLM still runs the method, on this machine."""
    for candidate in facts.spec.candidates:
        row = candidate.row
        if row.gone and facts.real:
            told = f"vLLM 0.32 does not run {row.name}: {row.gone}"
            yield (reject if facts.verified else warn)(candidate, told, "remove the candidate")
        elif row.needs_gpu and facts.on_cpu:
            told = f"{row.name} works on a GPU alone, and the engine runs on the CPU"
            yield reject(candidate, told, "take ngram instead")
        elif row.runner is Runner.V2 and facts.v1_runner and facts.real:
            told = f"{row.name} is part of vLLM's V2 model runner, which needs a GPU and Triton"
            yield reject(candidate, told, "run it on a GPU, without VLLM_USE_V2_MODEL_RUNNER=0")
        elif row.runner is Runner.V1 and facts.v2_forced:
            told = f"VLLM_USE_V2_MODEL_RUNNER=1, and that model runner has no {row.name}"
            yield reject(candidate, told, "remove the variable")


def package_there(facts: Facts) -> Iterator[Finding]:
    """The engine's interpreter has what the method needs beside vLLM."""
    for candidate in facts.spec.candidates:
        package = candidate.row.package
        name = package.partition("==")[0]
        if not package or not facts.real:
            continue
        remedy = f"install it there: pip install {package}"
        if facts.probed and not facts.probe.get(name):
            told = f"method {candidate.method} needs {name}, which the engine's Python has not"
            yield reject(candidate, told, remedy)
        elif not facts.probed:
            told = f"whether the engine's environment has {name} could not be checked"
            yield warn(candidate, told, f"without it the candidate does not start; {remedy}")


def tensor_parallel(facts: Facts) -> Iterator[Finding]:
    """The draft is split over as many GPUs as the target, or not at all where that is possible."""
    # _verify_and_get_draft_tp in vllm/config/speculative.py; _raise_if_draft_tp_mismatch in
    # vllm/v1/spec_decode/draft_model.py, found out only when both are loaded.
    target = facts.size("tensor_parallel_size")
    for candidate in facts.spec.candidates:
        asked = whole(candidate.settings.get("draft_tensor_parallel_size"))
        if asked is None or asked == target:
            continue
        told = f"draft_tensor_parallel_size is {asked}, the target's tensor_parallel_size {target}"
        if candidate.row.target_tensor_parallel:
            same = f"vLLM runs {candidate.method} with the target's and no other: remove it"
            yield reject(candidate, told, same)
        elif asked != 1:
            yield reject(candidate, told, f"vLLM takes 1 or {target}")


def pipeline_parallel(facts: Facts) -> Iterator[Finding]:
    """A draft, which is whole on the last pipeline stage, finds there what it needs."""
    stages = facts.size("pipeline_parallel_size")
    for candidate in facts.spec.candidates if stages > 1 else ():
        told = f"with {stages} pipeline stages {candidate.method}"
        match candidate.row.stages:
            case Stages.HIDDEN_STATES:
                yield _without_hidden_states(facts, candidate, told)
            case Stages.EMBEDDINGS:
                yield from _without_embeddings(facts, candidate, told)
            case Stages.NOTHING:
                pass


def _without_hidden_states(facts: Facts, candidate: Candidate, told: str) -> Finding:
    told = f"{told} reads layers that are on other stages"
    remedy = "serve the target with tensor parallelism alone"
    if facts.v1_runner:
        return reject(candidate, f"{told}, which vLLM's V1 model runner does not hand on", remedy)
    few = "vLLM hands them on for some models only, and refuses the others at their start"
    return warn(candidate, f"{told}: {few}", remedy)


def _without_embeddings(facts: Facts, candidate: Candidate, told: str) -> Iterator[Finding]:
    draft = facts.drafts.get(candidate.name, facts.target)
    told = f"{told} shares no embedding with the target, which has it on the first stage"
    remedy = "serve the target with tensor parallelism alone, or take a draft with its own"
    if draft.tensors and not draft.has_tensor(r"embed_tokens|word_embeddings|wte"):
        yield reject(candidate, f"{told}, and {draft.name} has none", remedy)
    else:
        yield warn(candidate, told, f"{remedy}; little is known of this combination")


def data_parallel(facts: Facts) -> Iterator[Finding]:
    """With several data-parallel ranks the schedule of K per batch size is off."""
    # _maybe_disable_dynamic_sd_for_data_parallel in vllm/config/vllm.py.
    ranks = facts.size("data_parallel_size")
    if ranks > 1:
        yield warn(
            None,
            f"with data_parallel_size = {ranks} every K gets a launch of its own: the ranks could "
            "not agree on another one from step to step",
            "tune one rank (data_parallel_size: 1), and deploy what was found with several",
        )


def async_scheduling(facts: Facts) -> Iterator[Finding]:
    """Asynchronous scheduling is not forced on a method that cannot have it."""
    # vllm/config/vllm.py; left alone it is switched off for these methods. CPUs never have it.
    for candidate in facts.spec.candidates if facts.arg("async_scheduling") is True else ():
        if not candidate.row.async_scheduling:
            told = f"async_scheduling: true, and vLLM refuses that with {candidate.method}"
            yield reject(candidate, told, "remove it from target.engine_args: it is the default")
        elif candidate.settings.get("disable_padded_drafter_batch") is True:
            told = "async_scheduling: true is refused with disable_padded_drafter_batch"
            yield reject(candidate, told, "remove one of them")


def padded_batch(facts: Facts) -> Iterator[Finding]:
    """Drafts that take slots of the batch keep it padded."""
    # _raise_if_padded_drafter_batch_disabled in vllm/v1/spec_decode/llm_base_proposer.py.
    for candidate in facts.spec.candidates:
        slots = candidate.row.extra_slots(2, parallel=parallel(candidate))
        if slots and candidate.settings.get("disable_padded_drafter_batch") is True:
            told = "disable_padded_drafter_batch does not work with draft models and parallel ones"
            yield reject(candidate, told, "remove it")


def mask_token(facts: Facts) -> Iterator[Finding]:
    """A draft that proposes all its tokens in one pass says which token stands for them."""
    for candidate, draft in facts.with_draft():
        inner = draft.text.get("dflash_config")
        nested = isinstance(inner, dict) and inner.get("mask_token_id") is not None
        known = nested or any(draft.text.get(key) is not None for key in MASK_KEYS)
        if parallel(candidate) and draft.config and not known:
            yield reject(
                candidate,
                f"its config.json has none of dflash_config.mask_token_id, {', '.join(MASK_KEYS)}, "
                "and a parallel draft needs one",
                "only drafts trained for it can draft in parallel: remove parallel_drafting, or "
                "take such a draft",
            )


def parallel_runner(facts: Facts) -> Iterator[Finding]:
    """parallel_drafting is known to need the older model runner."""
    for candidate in facts.spec.candidates:
        if candidate.settings.get("parallel_drafting") is not True or candidate.row.block:
            continue
        if facts.v2_forced:
            told = "VLLM_USE_V2_MODEL_RUNNER=1, and that model runner has no parallel_drafting"
            yield reject(candidate, told, "remove the variable")
        else:
            told = "parallel_drafting works with vLLM's V1 model runner alone"
            yield warn(candidate, told, "the baseline may have the newer one: part of the gap")


def multimodal(facts: Facts) -> Iterator[Finding]:
    """Drafts that take slots of the batch know neither images nor M-RoPE."""
    # _raise_if_mrope and _warn_if_multimodal in vllm/v1/spec_decode/llm_base_proposer.py.
    for candidate, draft in facts.with_draft():
        if not candidate.row.extra_slots(2, parallel=parallel(candidate)):
            continue
        if draft.mrope:
            told = "its positions have several dimensions (M-RoPE), which vLLM does not draft with"
            yield reject(candidate, told, "take a draft that reads text alone")
        elif facts.target.multimodal:
            told = "the target takes more than text, and the draft sees the text alone"
            yield warn(candidate, told, "measure with the images that production sends, or none")


def quantized_draft(facts: Facts) -> Iterator[Finding]:
    """A head on a quantized target is loaded as what it is."""
    # The draft's own quantization_config decides; without it the field `quantization` of the
    # candidate does, else none (ModelConfig in vllm/config/speculative.py).
    target = str(facts.arg("quantization") or facts.target.quantization or "")
    for candidate, draft in facts.with_draft():
        asked = candidate.settings.get("quantization")
        own = draft.quantization
        if own and isinstance(asked, str) and not _alike(asked, own):
            told = f"quantization: {asked}, and its config.json says {own}"
            yield reject(candidate, told, "remove it: vLLM reads it from the checkpoint")
        elif target and draft.config and not own and not asked:
            yield warn(
                candidate,
                f"the target is quantized ({target}), the draft is not",
                "a start that ends at scales or packed weights of the draft means that it was "
                "taken for quantized; heads are accepted less on a target that was rotated",
            )


def _alike(asked: str, own: str) -> bool:
    """gptq_marlin is how gptq is run, modelopt_fp4 a kind of modelopt."""
    one, other = (name.replace("-", "_").lower() for name in (asked, own))
    return one.startswith(other) or other.startswith(one)


def utilization_overridden(facts: Facts) -> Iterator[Finding]:
    """gpu_memory_utilization is what decides about the KV cache."""
    # vllm/config/cache.py; vllm/platforms/cpu.py reads the variable.
    given = [f"target.engine_args.{name}" for name in _OVERRIDES if facts.arg(name) is not None]
    if facts.env.get(_SPACE) and not facts.probe.get("device", "").startswith("NVIDIA"):
        given.append(f"the environment variable {_SPACE}")
    values = facts.spec.search.gpu_memory_utilization
    if not given:
        return
    told = f"{' and '.join(given)} sets the KV cache, whatever gpu_memory_utilization says"
    if len(values) > 1:
        yield stop(
            told,
            "remove it, or the search over gpu_memory_utilization: all its points are"
            " the same engine",
        )
    else:
        yield warn(None, told, "remove it where gpu_memory_utilization is meant to decide")


_SPACE = "VLLM_CPU_KVCACHE_SPACE"
_OVERRIDES = ("kv_cache_memory_bytes", "num_gpu_blocks_override")
