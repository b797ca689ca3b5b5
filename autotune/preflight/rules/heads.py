"""Is the draft what its method needs, and was it made for this target?

Heads over the target's hidden states (EAGLE, Medusa, DFlash, DSpark) and MTP layers fit one target;
vLLM finds out when it has loaded the target, in the shape of a tensor or not at all.
"""

import re
from collections.abc import Iterator

from autotune.core.counting import counted
from autotune.core.jsontype import JSON
from autotune.core.methods import Method, Signs
from autotune.core.study import Candidate
from autotune.preflight.checkpoint import Checkpoint, whole
from autotune.preflight.facts import Facts
from autotune.preflight.findings import Finding, reject, warn
from autotune.preflight.vllm_models import (
    HEAD_CLASSES,
    MTP_KINDS,
    MTP_LAYERS,
    ONE_MTP_LAYER,
    SPECULATORS,
)


def head_checkpoint(facts: Facts) -> Iterator[Finding]:
    """What is called a head is one."""
    for candidate, draft in facts.with_draft():
        signs = candidate.row.signs
        if signs is None or not draft.config or _shown(signs, draft):
            continue
        told = f"{draft.name} shows no sign of a head for the method {candidate.method}"
        remedy = "name the head that was made for this target, or write method: draft_model"
        if draft.tensors:
            ordinary = f"{told}: {counted(len(draft.tensors), 'tensor')}, as of an ordinary model"
            yield reject(candidate, ordinary, remedy)
        else:
            yield warn(candidate, f"{told} in its config.json", remedy)


def _shown(signs: Signs, draft: Checkpoint) -> bool:
    names = any(re.search(signs.architecture, name) for name in draft.architectures)
    keys = any(draft.config.get(key) is not None for key in signs.keys)
    return names or keys or draft.has_tensor(signs.tensor)


def head_class(facts: Facts) -> Iterator[Finding]:
    """vLLM has a class for it under the name that it makes of its architecture."""
    for candidate, draft in facts.with_draft():
        signs = candidate.row.signs
        told = draft.model_type == "eagle" or draft.speculators or mtp_kind(draft)
        if signs is None or not signs.class_prefix or told:
            continue
        for name in draft.architectures:
            made = _class_name(signs.class_prefix, name)
            if made not in HEAD_CLASSES:
                yield _unless_newer(
                    facts,
                    candidate,
                    f"vLLM would look for {made}, and version 0.32 has no such class",
                    f"a {candidate.method} head of another architecture, or a newer vLLM",
                )


def _class_name(prefix: str, name: str) -> str:
    """EAGLEConfig in vllm/transformers_utils/configs/eagle.py."""
    if name.startswith(prefix) or name == "LiLiCorrDraftModel":
        return name
    return name if prefix != "Eagle" and name.endswith(prefix) else f"{prefix}{name}"


def speculators_method(facts: Facts) -> Iterator[Finding]:
    """A speculators repository is run by the method that it was made with."""
    for candidate, draft in facts.with_draft():
        kind = draft.config.get("speculators_model_type")
        if not isinstance(kind, str):
            continue
        method = SPECULATORS.get(kind)
        if method is None:
            known = f"version 0.32 knows {', '.join(SPECULATORS)}"
            told = f"vLLM does not know speculators of the kind {kind!r}"
            yield _unless_newer(facts, candidate, f"{told}; {known}", "take another draft")
        elif method != candidate.method:
            told = f"it was made as {kind}, which is the method {method}, not {candidate.method}"
            yield reject(candidate, told, f"write method: {method}")
        elif kind == "peagle" and candidate.settings.get("parallel_drafting") is not True:
            told = "it was trained to draft all tokens in one pass, and is asked for one at a time"
            yield warn(candidate, told, "set parallel_drafting: true for this candidate")


def hidden_sizes(facts: Facts) -> Iterator[Finding]:
    """A head takes hidden states as wide as the target's."""
    mine = facts.target.hidden_size
    for candidate, draft in facts.with_draft():
        theirs = _expected_width(candidate.row, draft)
        if candidate.row.signs and mine and theirs and mine != theirs:
            yield reject(
                candidate,
                f"it takes hidden states of width {theirs}, and the target's have {mine}",
                "it was made for another model: name the head of this target",
            )


def _expected_width(row: Method, draft: Checkpoint) -> int | None:
    """target_hidden_size, else the width of the head itself (llama_eagle3.py, qwen3_dflash.py)."""
    given = draft.number("target_hidden_size") if row.aux_layers else None
    return given or draft.hidden_size


def aux_layers(facts: Facts) -> Iterator[Finding]:
    """The layers that a head reads from are layers of the target."""
    depth = facts.target.layers
    for candidate, draft in facts.with_draft():
        ids = aux_layer_ids(draft) if candidate.row.aux_layers else ()
        beyond = [i for i in ids if depth and not 0 <= i <= depth]
        if beyond:
            yield reject(
                candidate,
                f"it reads the target's layers {', '.join(map(str, ids))}, and the target has "
                f"{depth}",
                "it was made for a deeper model: name the head of this target",
            )


def aux_layer_ids(draft: Checkpoint) -> tuple[int, ...]:
    """The ids as vLLM counts them, in the order in which it looks.

    _get_eagle3_aux_layers_from_config in v1/worker/gpu_model_runner.py, and
    get_eagle3_aux_layers_from_config in v1/worker/gpu/spec_decode/eagle/eagle3_utils.py.
    """
    config, dflash = draft.text, draft.text.get("dflash_config")
    eagle = draft.text.get("eagle_config")
    after = config.get("dspark_target_layer_ids") or config.get("target_layer_ids")
    for given, offset in (
        (config.get("eagle_aux_hidden_state_layer_ids"), 0),
        (config.get("aux_hidden_state_layer_ids"), 0),  # speculators
        (dflash.get("target_layer_ids") if isinstance(dflash, dict) else None, 1),
        (after, 1),
        (eagle.get("eagle_aux_hidden_state_layer_ids") if isinstance(eagle, dict) else None, 0),
    ):
        if isinstance(given, list) and given:
            return tuple(i + offset for v in given if (i := whole(v)) is not None)
    return ()


MTP_TENSOR = r"mtp|nextn|eh_proj|enorm"
LAYER = r"layers\.(\d+)\."


def mtp_kind(model: Checkpoint) -> str:
    """What makes vLLM look for MTP layers in it; empty: nothing does."""
    kind = str(model.config.get("model_type") or "")
    names = (kind, *model.architectures)
    if kind.endswith("_mtp"):
        return kind
    found = next((name for name in names if name in MTP_KINDS), "")
    return "" if found.startswith("nemotron_h") and not mtp_layers(model) else found


def mtp_layers(model: Checkpoint) -> int | None:
    """How many MTP layers its config promises; None: it does not say."""
    inner = model.config.get("mtp_config")
    nested = inner.get("num_nextn_predict_layers") if isinstance(inner, dict) else None
    found = model.number(*MTP_LAYERS)
    if found is None and whole(nested) is None:
        known = {str(model.config.get("model_type")), *model.architectures}
        return 1 if known & ONE_MTP_LAYER else None
    return whole(nested) if found is None else found


def mtp_head(facts: Facts) -> Iterator[Finding]:
    """Who asks for MTP has a checkpoint with MTP layers."""
    for candidate in facts.spec.candidates:
        model = facts.drafts.get(candidate.name, facts.target)
        if not candidate.row.target_owns_draft or not model.config:
            continue
        if model.config.get("model_type") == "deepseek_v41":
            told = "DeepSeek V4.1 has DSpark stages in place of MTP layers"
            yield reject(candidate, told, "write method: dspark")
        elif not mtp_layers(model):
            yield reject(
                candidate,
                f"{model.name} has no MTP layers: its config.json has none of "
                f"{', '.join(MTP_LAYERS)}, or 0",
                "only models that ship with them can use method: mtp; try ngram, or a draft_model",
            )
        elif not mtp_kind(model):
            kind = model.config.get("model_type")
            told = f"vLLM 0.32 runs no MTP layers of models of the type {kind}"
            yield _unless_newer(facts, candidate, told, "try ngram, or a newer vLLM")
        elif candidate.name not in facts.drafts and model.tensors and not _has_mtp(model):
            yield warn(
                candidate,
                f"config.json promises MTP layers, and no tensor of {model.name} has their name",
                "quantized copies often leave them out: take the original checkpoint",
            )


def _has_mtp(model: Checkpoint) -> bool:
    depth = model.layers or 0
    layers = (int(n) for name in model.tensors for n in re.findall(LAYER, name))
    return model.has_tensor(MTP_TENSOR) or any(layer >= depth for layer in layers)


def taken_for_mtp(facts: Facts) -> Iterator[Finding]:
    """A draft model is not of a kind that vLLM takes for a head whatever the method says."""
    # "Automatically detect the method" in vllm/config/speculative.py, after hf_config_override.
    for candidate, draft in facts.with_draft():
        kind = draft.config.get("model_type")
        other: JSON = kind if kind in ("medusa", "mlp_speculator") else None
        other = other or ("mtp" if mtp_kind(draft) else None)
        if candidate.row.same_vocabulary and other:
            yield _unless_newer(
                facts,
                candidate,
                f"vLLM would run the method {other} instead of {candidate.method}: it takes every "
                f"draft of the type {kind} for that",
                "take a draft without MTP layers of its own, or write that method",
            )


def _unless_newer(facts: Facts, candidate: Candidate, evidence: str, remedy: str) -> Finding:
    """A refusal by the version whose source was read, a warning by any other."""
    return (reject if facts.verified else warn)(candidate, evidence, remedy)
