"""Which K each candidate may have, and why others are skipped.

The sampler's ceiling of 128 is checked when the file is read (core/study.py). A K that was asked
for by name is launched where it can be; one that stands in the search for all is not forced on a
draft that was not trained for it.
"""

from collections.abc import Iterator

from autotune.core.methods import KCeiling
from autotune.core.study import Candidate
from autotune.preflight.checkpoint import Checkpoint, whole
from autotune.preflight.facts import Facts, parallel
from autotune.preflight.findings import Finding, skip, warn
from autotune.preflight.rules.heads import mtp_kind, mtp_layers

OMNI = "Qwen3OmniDSparkModel"
EVERY_MODULE_TRAINED = ("step3p5", "inkling")  # vLLM does not warn for these


def context_ceiling(facts: Facts) -> Iterator[Finding]:
    """K leaves room in the context."""
    limit = facts.max_model_len
    for candidate in facts.spec.candidates:
        beyond = [k for k in facts.spec.ks(candidate) if limit is not None and k >= limit]
        told = f"the context has {limit} tokens"
        yield from skip(candidate, beyond, told, "a K is at most a small part of it")


def trained_block(facts: Facts) -> Iterator[Finding]:
    """K is at most the block that the draft was trained for."""
    for candidate, draft in _under(facts, KCeiling.BLOCK):
        block = block_size(draft)
        if block is None:
            continue
        ks = facts.spec.ks(candidate)
        if OMNI in draft.architectures:
            # _validate_qwen3_omni_dspark in vllm/config/speculative.py.
            other = [k for k in ks if k != block]
            told = f"vLLM takes the trained block of {block} tokens for this draft, and no other K"
            yield from skip(candidate, other, told, f"give num_speculative_tokens: {block}")
            continue
        beyond = [k for k in ks if k > block]
        told = f"the draft was trained for blocks of {block} tokens"
        if candidate.num_speculative_tokens and beyond:
            yield warn(
                candidate,
                f"{told}, and K = {_listed(beyond)} is asked for",
                "beyond the trained block acceptance falls at every position, the first included",
            )
        else:
            remedy = "to try it all the same, give the candidate num_speculative_tokens of its own"
            yield from skip(candidate, beyond, told, remedy)


def block_size(draft: Checkpoint) -> int | None:
    """Tokens that the draft proposes in one pass, as it was trained.

    Speculators count the anchor in, unless it is sampled from (speculators/algos.py).
    """
    config = draft.text
    inner = config.get("dflash_config")
    nested = inner.get("block_size") if isinstance(inner, dict) else None
    size = whole(nested) or draft.number("block_size", "dspark_block_size")
    anchored = draft.speculators and config.get("sample_from_anchor") is not True
    return size - 1 if size and anchored else size


def trained_heads(facts: Facts) -> Iterator[Finding]:
    """Each of the K positions has a head of its own."""
    for candidate, draft in _under(facts, KCeiling.HEADS):
        heads = draft.number("medusa_num_heads", "num_heads", "n_predict")
        beyond = [k for k in facts.spec.ks(candidate) if heads and k > heads]
        told = f"the draft has {heads} heads, one for each position"
        yield from skip(candidate, beyond, told, f"vLLM loads no more: K is at most {heads}")


def mtp_modules(facts: Facts) -> Iterator[Finding]:
    """K beyond the trained MTP layers is a multiple of them, and known to decay."""
    for candidate in facts.spec.candidates:
        model = facts.drafts.get(candidate.name, facts.target)
        layers = mtp_layers(model)
        if candidate.row.k_ceiling is not KCeiling.LAYERS or not layers:
            continue
        beyond = [k for k in facts.spec.ks(candidate) if k > layers]
        uneven = [k for k in beyond if k % layers]
        told = f"the checkpoint has {layers} MTP layers, and vLLM takes multiples of that beyond"
        yield from skip(candidate, uneven, told, f"give multiples of {layers}")
        even = [k for k in beyond if k not in uneven]
        if even and not mtp_kind(model).startswith(EVERY_MODULE_TRAINED):
            yield warn(
                candidate,
                f"the checkpoint has {layers} MTP {'layer' if layers == 1 else 'layers'}: K = "
                f"{_listed(even)} runs the same again",
                "legal, and accepted less from position to position; that is no fault of vLLM",
            )


def tree_depth(facts: Facts) -> Iterator[Finding]:
    """K is a bound for the suffix tree, whose depth is another."""
    for candidate in facts.spec.candidates:
        if candidate.row.k_ceiling is not KCeiling.TREE:
            continue
        depth = whole(candidate.settings.get("suffix_decoding_max_tree_depth")) or 24
        useless = [k for k in facts.spec.ks(candidate) if k >= depth]
        if useless:
            yield warn(
                candidate,
                f"K = {_listed(useless)} is never reached: match and draft together are at most "
                f"suffix_decoding_max_tree_depth = {depth} tokens",
                "K is a ceiling here; smaller ones, or a deeper tree, make a difference",
            )


def token_budget(facts: Facts) -> Iterator[Finding]:
    """Drafting leaves a token of the batch's budget for each step."""
    # _set_max_num_scheduled_tokens in vllm/config/vllm.py.
    budget = whole(facts.arg("max_num_batched_tokens"))
    for candidate in facts.spec.candidates if budget is not None else ():
        row, shape = candidate.row, parallel(candidate)
        over = [
            k
            for k in facts.spec.ks(candidate)
            if (budget or 0) <= row.extra_slots(k, parallel=shape)
        ]
        most = max((row.extra_slots(k, parallel=shape) for k in over), default=0)
        told = f"drafting takes up to {most} slots of max_num_batched_tokens = {budget}"
        remedy = "raise max_num_batched_tokens in target.engine_args, or lower K"
        yield from skip(candidate, over, told, remedy)


def _under(facts: Facts, ceiling: KCeiling) -> Iterator[tuple[Candidate, Checkpoint]]:
    for candidate, draft in facts.with_draft():
        if candidate.row.k_ceiling is ceiling:
            yield candidate, draft


def _listed(ks: list[int]) -> str:
    return ", ".join(map(str, ks))
