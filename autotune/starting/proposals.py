"""Which ways to draft are worth naming for a target, and why: one proposal each.

Rule: pure. What is at hand comes before what is only known of; what cannot work as it stands, or
would cost launches beyond the first few, is proposed as a comment. Nothing here says that a draft
pays.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from autotune.core.checkpoint import Checkpoint
from autotune.core.families import (
    RATIO,
    SMALLER,
    Sibling,
    family_of,
    heads_for,
    same_model,
    small_enough,
)
from autotune.core.jsontype import JSON

MOST = 3
"""Heads, and draft models, that are not comments: each is a launch or more."""
_NGRAM_KS = (1, 3, 5, 8)
_SUFFIX_KS = (8, 24)
_MTP_KS = (1, 2, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One entry of `candidates`, and what to know about it."""

    entry: Mapping[str, JSON]
    why: tuple[str, ...]
    active: bool = True
    """False: written as a comment."""


def propose(
    target: Checkpoint, near: Sequence[Checkpoint], *, suffix: bool | None
) -> list[Proposal]:
    """All proposals for a target; `near` are the models at hand.

    `suffix` is whether the engine's environment can draft with suffix trees; None: not known.
    """
    return _named(
        [
            *_mtp(target),
            *_few(_heads(target, near)),
            *_few([*_models(target, near), *_siblings(target, near)]),
            _ngram(),
            _suffix(there=suffix),
        ]
    )


def _mtp(target: Checkpoint) -> Iterator[Proposal]:
    layers = target.mtp_layers
    if not target.mtp_known:
        if layers:
            yield Proposal(
                entry={"method": "mtp"},
                why=(
                    f"the config tells of {layers} MTP layers, but vLLM 0.32 does not draft with",
                    f"those of a {target.model_type!r}; a newer one may",
                ),
                active=False,
            )
        return
    if not layers:
        yield Proposal(
            entry={"method": "mtp", "num_speculative_tokens": list(_MTP_KS)},
            why=(
                f"vLLM drafts with the MTP layers of a {target.model_type!r}, but this config",
                "does not tell of any; quantized copies often lack them",
            ),
            active=False,
        )
        return
    # vLLM refuses a K above the number of layers that is no multiple of it.
    ks = _MTP_KS if layers == 1 else range(1, layers + 1)
    yield Proposal(
        entry={"method": "mtp", "num_speculative_tokens": list(ks)},
        why=(
            f"the target's own multi-token-prediction layers ({layers} in its config); no further",
            "model, and trained with it. A K above their number runs them again, less accepted",
        ),
    )


def _heads(target: Checkpoint, near: Sequence[Checkpoint]) -> Iterator[Proposal]:
    known = {head.model: head for head in heads_for(target.name)}
    for one in near:
        method = known[one.name].method if one.name in known else one.heads
        if method is None or not _fits(one, target, listed=one.name in known):
            continue
        sure = one.name in known or same_model(one.verifier, target.name)
        yield Proposal(
            entry={"method": method, "model": one.name},
            why=("a head over the target's hidden states; at hand",)
            if sure
            else (
                "a head over hidden states as wide as the target's; at hand. Which target it was",
                "trained for its files do not say: the acceptance will tell",
            ),
        )
    there = {one.name for one in near}
    for head in known.values():
        if head.model not in there:
            yield Proposal(
                entry={"method": head.method, "model": head.model},
                why=(
                    "a head that was trained for this target; not on this machine, vLLM will",
                    f"download it (listed in {head.source})",
                ),
            )


def _fits(head: Checkpoint, target: Checkpoint, *, listed: bool) -> bool:
    if listed:
        return True
    if head.verifier:
        return same_model(head.verifier, target.name)
    widths = head.number("target_hidden_size") or head.number("hidden_size")
    return widths is not None and widths == target.number("hidden_size")


def _models(target: Checkpoint, near: Sequence[Checkpoint]) -> Iterator[Proposal]:
    """Models at hand with the target's vocabulary, the largest that is small enough first."""
    found = [
        one
        for one in near
        if one.heads is None
        and one.architecture.endswith("ForCausalLM")
        and one.name not in {head.model for head in heads_for(target.name)}
        and _related(one, target)
        and (size := _ratio(one.billions, target)) is not None
        and size >= 1 / SMALLER
        and small_enough(one.billions or 0.0, target.billions or 0.0)
    ]
    for one in sorted(found, key=lambda model: -(model.billions or 0.0)):
        sizes = _sizes(one.billions, target)
        yield _checked(one.name, one, target, f"a smaller model{sizes}; at hand")


def _related(one: Checkpoint, target: Checkpoint) -> bool:
    family = family_of(target)
    if family is not None:
        return family.has(one)
    return one.model_type == target.model_type and one.vocab_size == target.vocab_size


def _siblings(target: Checkpoint, near: Sequence[Checkpoint]) -> Iterator[Proposal]:
    """Models that the table names and that are not at hand."""
    family, size = family_of(target), target.billions
    if family is None or size is None:
        return
    there = {one.name for one in near}
    small = [
        s
        for s in family.siblings
        if s.model not in there
        and small_enough(s.billions, size)
        and not same_model(s.model, target.name)
    ]
    for sibling in sorted(small, key=lambda s: -s.billions):
        about = f"{family.name} of {sibling.billions:g}B{_sizes(sibling.billions, target)}"
        unseen = Checkpoint(name=sibling.model, config=_config_of(sibling))
        yield _checked(sibling.model, unseen, target, f"{about}; vLLM will download it")


def _config_of(sibling: Sibling) -> Mapping[str, JSON]:
    return {"vocab_size": sibling.vocab_size}


def _checked(name: str, draft: Checkpoint, target: Checkpoint, about: str) -> Proposal:
    """A draft model, as far as both vocabularies are known."""
    entry: dict[str, JSON] = {"method": "draft_model", "model": name}
    mine, theirs = target.vocab_size, draft.vocab_size
    if mine is None:
        return Proposal(entry=entry, why=(about, "its vocabulary was not compared: see above"))
    if theirs != mine:
        return Proposal(
            entry=entry | {"use_heterogeneous_vocab": True},
            why=(
                about,
                f"vocabulary of {theirs}, the target's is {mine}: vLLM refuses the pair unless",
                "use_heterogeneous_vocab is true, which maps the tokens that both have",
            ),
            active=False,
        )
    if draft.vocabulary and target.vocabulary:
        if draft.vocabulary != target.vocabulary:
            return Proposal(
                entry=entry,
                why=(
                    about,
                    f"both have {mine} tokens, but not the same ones (tokenizer.json): what it",
                    "drafts would mean something else to the target",
                ),
                active=False,
            )
        return Proposal(entry=entry, why=(about, f"the same {mine} tokens (tokenizer.json)"))
    return Proposal(entry=entry, why=(about, f"both configs say vocab_size {mine}"))


def _ratio(size: float | None, target: Checkpoint) -> float | None:
    whole = target.billions
    return whole / size if size and whole else None


def _sizes(size: float | None, target: Checkpoint) -> str:
    ratio = _ratio(size, target)
    if ratio is None:
        return ""
    hint = "" if ratio >= RATIO else f", less than the {RATIO:.0f} that usually pays"
    return f", 1/{ratio:.2g} of the target's size{hint}"


def _ngram() -> Proposal:
    return Proposal(
        entry={
            "method": "ngram",
            "prompt_lookup_min": 1,
            "prompt_lookup_max": 3,
            "num_speculative_tokens": list(_NGRAM_KS),
        },
        why=(
            "no model at all: the last tokens are looked up in the prompt and the reply so far.",
            "Pays where replies repeat the prompt (summaries, code edits, retrieval)",
        ),
    )


def _suffix(*, there: bool | None) -> Proposal:
    about = "suffix trees over the prompt and past replies, no model; K is a ceiling"
    missing = {
        True: (),
        False: ("needs `pip install arctic-inference` in the engine's environment",),
        None: ("needs arctic-inference in the engine's environment, which was not looked at",),
    }[there]
    return Proposal(
        entry={"method": "suffix", "num_speculative_tokens": list(_SUFFIX_KS)},
        why=(about, *missing),
        active=bool(there),
    )


def _few(found: Iterable[Proposal]) -> list[Proposal]:
    """All of them, of which only the first few are no comments."""
    kept: list[Proposal] = []
    for one in found:
        crowded = one.active and sum(other.active for other in kept) >= MOST
        beyond = ("left out at first, to save launches",) if crowded else ()
        kept.append(replace(one, active=one.active and not crowded, why=(*one.why, *beyond)))
    return kept


def _named(found: Sequence[Proposal]) -> list[Proposal]:
    """With a `name` where two would bear the same: the method and the last part of the model."""
    labels = [_label(one.entry) for one in found]
    return [
        replace(one, entry={"name": _unique(one.entry), **one.entry})
        if labels.count(label) > 1
        else one
        for one, label in zip(found, labels, strict=True)
    ]


def _label(entry: Mapping[str, JSON]) -> str:
    return f"{entry['method']}-{str(entry.get('model', '')).rpartition('/')[2]}"


def _unique(entry: Mapping[str, JSON]) -> str:
    parts = str(entry["model"]).strip("./").split("/")
    return "-".join([str(entry["method"]), *parts[-2:]])
