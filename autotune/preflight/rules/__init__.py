"""Every rule there is, in the order in which they are asked.

Rule: one function, one sentence that should hold; it takes the Facts and yields a Finding for each
time that it does not. A new rule is a function and its name in this table.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from autotune.preflight.facts import Facts
from autotune.preflight.findings import Finding, ordered
from autotune.preflight.memory import memory
from autotune.preflight.rules import advice, engine, files, heads, ks, requests, vocabularies

Rule = Callable[[Facts], Iterator[Finding]]

RULES: tuple[Rule, ...] = (
    files.target_files,
    files.speculators_target,
    files.adapter_files,
    files.draft_files,
    files.method_of_path,
    files.twin_weights,
    files.other_verifier,
    files.not_looked_at,
    engine.method_there,
    engine.package_there,
    heads.head_checkpoint,
    heads.head_class,
    heads.speculators_method,
    heads.hidden_sizes,
    heads.aux_layers,
    heads.mtp_head,
    heads.taken_for_mtp,
    vocabularies.vocabulary_sizes,
    vocabularies.tokenizers,
    vocabularies.special_tokens,
    vocabularies.mapped_vocabularies,
    ks.context_ceiling,
    ks.trained_block,
    ks.trained_heads,
    ks.mtp_modules,
    ks.tree_depth,
    ks.token_budget,
    engine.tensor_parallel,
    engine.pipeline_parallel,
    engine.data_parallel,
    engine.async_scheduling,
    engine.padded_batch,
    engine.mask_token,
    engine.parallel_runner,
    engine.multimodal,
    engine.quantized_draft,
    engine.utilization_overridden,
    requests.default_min_p,
    requests.logits_processors,
    requests.draft_context,
    requests.length_switch,
    memory,
    advice.draft_size,
    advice.draft_cost,
    advice.same_family,
    advice.ngram_window,
)


def findings(facts: Facts) -> list[Finding]:
    """What all rules find, the worst first."""
    return ordered(
        replace(finding, rule=rule.__name__) for rule in RULES for finding in rule(facts)
    )
