"""Do the ids of target and draft mean the same tokens? Of methods that need it (core/methods.py).

vLLM compares one number, vocab_size, and loads the target's tokenizer alone: drafts of another
tokenizer with a vocabulary of the same size are served, and never accepted.
"""

from collections.abc import Iterator

from autotune.core.study import Candidate
from autotune.preflight.checkpoint import Checkpoint
from autotune.preflight.facts import Facts
from autotune.preflight.findings import Finding, reject, warn
from autotune.preflight.vocabulary import Compared, compare

FEW_SHARED = 100  # below it vLLM warns, too (vllm/v1/spec_decode/vocab_mapping.py)
HALF = 0.5
SHOWN = 5


def vocabulary_sizes(facts: Facts) -> Iterator[Finding]:
    """vocab_size is the same in both; vLLM refuses the pair otherwise."""
    # verify_equal_vocab_size_if_draft_model in vllm/config/speculative.py.
    for candidate, draft in _pairs(facts, mapped=False):
        mine, theirs = facts.target.vocab_size, draft.vocab_size
        if mine and theirs and mine != theirs:
            found = _compared(facts, draft)
            yield reject(
                candidate,
                f"vocab_size is {theirs} in the draft and {mine} in the target{_why(found)}",
                _remedy(found),
            )


def tokenizers(facts: Facts) -> Iterator[Finding]:
    """The same id is the same token in both tokenizers."""
    for candidate, draft in _pairs(facts, mapped=False):
        found = _compared(facts, draft)
        if found is None or not found.apart or facts.target.vocab_size != draft.vocab_size:
            continue
        both = found.common + found.apart
        told = f"{found.apart} of {both} ids mean another token in the draft than in the target"
        if found.agreement < HALF:
            yield reject(
                candidate,
                f"{told}: hardly a draft could be accepted",
                "choose a draft of the target's family, or set use_heterogeneous_vocab: true",
            )
        else:
            yield warn(candidate, told, "drafts of those tokens are lost; the replies stay right")


def special_tokens(facts: Facts) -> Iterator[Finding]:
    """Special tokens, such as the end of a turn, are the same in both."""
    for candidate, draft in _pairs(facts, mapped=False):
        found = _compared(facts, draft)
        if found is None or not found.special or found.agreement < HALF:
            continue
        shown = ", ".join(found.special[:SHOWN])
        more = f" and {len(found.special) - SHOWN} more" if len(found.special) > SHOWN else ""
        yield warn(
            candidate,
            f"special tokens of target and draft are not the same ({shown}{more})",
            "a draft that has not learnt the target's chat template is accepted less often",
        )


def mapped_vocabularies(facts: Facts) -> Iterator[Finding]:
    """With use_heterogeneous_vocab the two have enough tokens in common."""
    for candidate, draft in _pairs(facts, mapped=True):
        found = _compared(facts, draft)
        if facts.v2_forced:
            yield reject(
                candidate,
                "VLLM_USE_V2_MODEL_RUNNER=1, and that model runner maps no vocabularies",
                "remove the variable, or use_heterogeneous_vocab",
            )
        else:
            yield warn(
                candidate,
                "use_heterogeneous_vocab works with vLLM's V1 model runner alone",
                "the candidate is launched with that one, the baseline may have the newer",
            )
        if found is not None and found.shared < FEW_SHARED:
            yield reject(
                candidate,
                f"the vocabularies have {found.shared} tokens in common",
                "choose a draft that writes the same languages as the target",
            )


def _pairs(facts: Facts, *, mapped: bool) -> Iterator[tuple[Candidate, Checkpoint]]:
    for candidate, draft in facts.with_draft():
        asked = candidate.settings.get("use_heterogeneous_vocab") is True
        if candidate.row.same_vocabulary and asked is mapped:
            yield candidate, draft


def _compared(facts: Facts, draft: Checkpoint) -> Compared | None:
    if facts.target.vocabulary is None or draft.vocabulary is None:
        return None
    return compare(facts.target.vocabulary, draft.vocabulary)


def _why(found: Compared | None) -> str:
    if found is None:
        return ""
    if found.same:
        return f"; the tokenizers are the same {found.common} tokens, so only the padding differs"
    if not found.apart:
        return f"; the {found.common} ids that both tokenizers have are the same tokens"
    return f"; {found.apart} of the ids that both tokenizers have are other tokens"


def _remedy(found: Compared | None) -> str:
    if found is not None and not found.apart:
        return "take a draft of the target's size, or pad its embedding and its head to it"
    return "choose another draft, or set use_heterogeneous_vocab: true (greedy drafts, slower)"
