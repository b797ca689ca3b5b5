"""Rules of thumb about drafts: advice, never a refusal, for what counts is measured."""

from collections.abc import Iterator

from autotune.core.study import Candidate
from autotune.preflight.checkpoint import Checkpoint
from autotune.preflight.facts import Facts
from autotune.preflight.findings import Finding, warn

BILLION = 1e9
SIZES = ((10.0, 1.0), (30.0, 3.0), (float("inf"), 7.0))
"""Target up to so many billions of parameters: draft up to so many (7B: 0.5 to 1B, 13B: 1 to 3B,
70B: at most 7B)."""
SMALL_TARGET = 1.0
"""Billions of parameters; below, no smaller model is small enough for the table above."""
CHEAP = 5.0
"""Decoding is bound by reading weights: a draft of a fifth of them costs a fifth of a step."""


def draft_size(facts: Facts) -> Iterator[Finding]:
    """A draft model is of the size that usually pays for this target."""
    for candidate, draft in _models(facts):
        mine, theirs = facts.target.parameters, draft.parameters
        if not mine or not theirs or mine < SMALL_TARGET * BILLION:
            continue
        most = next(size for limit, size in SIZES if mine <= limit * BILLION)
        if theirs > most * BILLION:
            told = f"the draft has {_billions(theirs)} parameters, the target {_billions(mine)}"
            yield warn(candidate, told, f"drafts of up to {most:g}B usually pay for that size")


def draft_cost(facts: Facts) -> Iterator[Finding]:
    """A draft model reads at most a fifth of the target's weights for each token."""
    for candidate, draft in _models(facts):
        mine, theirs = facts.target.weight_bytes, draft.weight_bytes
        if mine and theirs and mine < CHEAP * theirs:
            yield warn(
                candidate,
                f"the target's weights are only {mine / theirs:.1f} times the draft's",
                f"below {CHEAP:g} times the drafts cost much of what they gain; try a smaller one, "
                "an EAGLE head, or n-gram",
            )


def same_family(facts: Facts) -> Iterator[Finding]:
    """A draft model is of the target's family."""
    for candidate, draft in _models(facts):
        mine, theirs = facts.target.model_type, draft.model_type
        if mine and theirs and mine != theirs:
            told = f"the draft is of the family {theirs}, the target of {mine}"
            yield warn(candidate, told, "drafts trained on the target's data are accepted more")


def ngram_window(facts: Facts) -> Iterator[Finding]:
    """An n-gram window is one that chat prompts can match."""
    for candidate in facts.spec.candidates:
        low = candidate.settings.get("prompt_lookup_min")
        if isinstance(low, int) and low >= LONG_WINDOW:
            yield warn(
                candidate,
                f"prompt_lookup_min is {low}: so many tokens in a row rarely stand in a short "
                "prompt twice",
                "for chat try prompt_lookup_min: 1 or 2",
            )


LONG_WINDOW = 5  # what vLLM takes when nothing is said


def _models(facts: Facts) -> Iterator[tuple[Candidate, Checkpoint]]:
    """Candidates whose draft is a language model of its own."""
    for candidate, draft in facts.with_draft():
        if candidate.row.same_vocabulary:
            yield candidate, draft


def _billions(parameters: int) -> str:
    return f"{parameters / BILLION:.2g}B"
