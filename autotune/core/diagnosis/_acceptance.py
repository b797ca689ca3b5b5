"""Diagnoses by what is accepted, position by position.

Rules: counts of all levels and launches of one K are pooled; nothing is said below `MIN_DRAFTS`
drafts; a rate counts with its Wilson interval. A rate falls as K grows by arithmetic alone, so two
K are compared with what one constant acceptance would make of both (core/expectation.py).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from autotune.core.acceptance import MIN_DRAFTS, SpecCounters
from autotune.core.diagnosis.case import Case
from autotune.core.diagnosis.table import LOW_ACCEPTANCE, Diagnosis, Seen
from autotune.core.expectation import acceptance_rate, alpha_of, expected_tokens
from autotune.core.methods import Drafting
from autotune.core.proportion import wilson

NEAR_ZERO = 0.02
"""What is left by chance: 200 drafts without an accepted token lie below it, no fewer do."""
SMALL_K = 3
LARGE_K = 6
"""A draft that is worth something is at K = 3; its later positions show from K = 6 or 7 on."""
BEYOND_ARITHMETIC = 0.9
"""Share of what a constant acceptance leaves below which later positions have collapsed."""
COLLAPSED = 0.5
"""Share of the first position's acceptance at a smaller K that is left beyond a trained block; as
reported for DFlash with a block of 5: 0.18 at K = 7."""
RARELY = 0.25
"""Share of the steps with a draft below which a lookup gains little: with K = 4, accepted whole
every time, a step would give two tokens."""
BACK_TO = (4, 5)
VLLM_WINDOW = 5
"""Tokens that vLLM looks up where the window is not given (vllm/config/speculative.py, 0.32)."""
SHORT_MATCH = 2


def never_accepted(case: Case) -> Iterator[Seen]:
    """Near zero at the first position, and so at every one."""
    total = _total(case)
    if total.drafts < MIN_DRAFTS or _first(total)[1] >= NEAR_ZERO:
        return
    yield Seen(
        numbers=f"{total.accepted_tokens} of {total.draft_tokens} tokens accepted in "
        f"{total.drafts} drafts, at K = {_listed(case.counted)}",
        change=_another(case),
        another_draft=True,
    )


def beyond_block(case: Case) -> Iterator[Seen]:
    """The first position, which owes nothing to K, is hardly accepted any more."""
    known = [(k, c.profile) for k, c in case.counted.items() if case.candidate.row.fixed_length]
    firsts = [(k, profile, _first(profile.counters)) for k, profile in known if profile]
    for (small, earlier, before), (k, profile, after) in pairwise(firsts):
        if before[0] > NEAR_ZERO and after[1] < COLLAPSED * before[0]:
            yield Seen(
                numbers=f"the first token of a draft is accepted in {profile.per_position[0]:.0%} "
                f"of the drafts at K = {k}, in {earlier.per_position[0]:.0%} at K = {small}",
                change=f"num_speculative_tokens of {case.name}: at most {small}",
            )
            return


def not_aligned(case: Case) -> Iterator[Seen]:
    """Low already where a draft is at its best."""
    if not case.candidate.row.has_weights or any(never_accepted(case)):
        return
    found = _at_small_k(case)
    if found is None or wilson(*found.counts)[1] >= LOW_ACCEPTANCE:
        return
    yield Seen(
        numbers=f"{found.rate:.0%} of the tokens drafted at K = {found.k} accepted "
        f"({_positions(found.per_position)}; {found.drafts} drafts)",
        promise=_if_accepted(case),
        change=_another(case),
        another_draft=True,
    )


def k_too_large(case: Case) -> Iterator[Seen]:
    """Good at K = 3, and at a large one worse than arithmetic alone makes it."""
    small, k = _at_small_k(case), max(case.counted, default=0)
    large = case.counted[k].profile if k >= LARGE_K else None
    if small is None or large is None or not case.candidate.row.fixed_length:
        return
    rate, interval = large.rate, large.rate_interval
    left = acceptance_rate(alpha_of(small.rate, small.k), k)
    if small.rate < LOW_ACCEPTANCE or rate is None or interval is None:
        return
    if interval[1] >= min(BEYOND_ARITHMETIC * left, LOW_ACCEPTANCE):
        return
    untried = [str(n) for n in BACK_TO if n not in case.counted]
    yield Seen(
        numbers=f"{small.rate:.0%} accepted at K = {small.k}, {rate:.0%} at K = {k}, where one "
        f"constant acceptance would leave {left:.0%} ({_positions(large.per_position)})",
        change=f"num_speculative_tokens of {case.name}: {' and '.join(untried)}" if untried else "",
    )


def deep_positions(case: Case) -> Iterator[Seen]:
    """Positions from somewhere on of which nothing is accepted."""
    k = max(case.counted, default=0)
    profile = case.counted[k].profile if k else None
    if profile is None or not case.candidate.row.fixed_length or any(never_accepted(case)):
        return
    drafts = profile.counters.drafts
    useful = [n for n in profile.counters.accepted_per_pos if wilson(n, drafts)[1] >= NEAR_ZERO]
    if len(useful) == k:
        return
    again = ", where the same layer runs again" if case.candidate.row.target_owns_draft else ""
    yield Seen(
        numbers=f"at K = {k} next to nothing is accepted from position {len(useful) + 1} on{again} "
        f"({_positions(profile.per_position)}; {drafts} drafts)",
        change=f"num_speculative_tokens of {case.name}: at most {len(useful)}",
    )


def low_acceptance(case: Case) -> Iterator[Seen]:
    """Below half where its speed is best, and neither of the clearer signs."""
    point = case.point(None)
    counted = case.counted.get(point.num_speculative_tokens) if point else None
    profile = counted.profile if counted else None
    interval = profile.rate_interval if profile else None
    lookup = case.drafting is Drafting.LOOKUP
    if profile is None or interval is None or (lookup and case.gains_somewhere):
        return
    if interval[1] >= LOW_ACCEPTANCE or any((*not_aligned(case), *k_too_large(case))):
        return
    if any(never_accepted(case)):
        return
    yield Seen(
        numbers=f"{profile.rate:.0%} of the tokens drafted at K = "
        f"{point.num_speculative_tokens if point else 0} accepted, {interval[1]:.0%} at most "
        f"({profile.counters.drafts} drafts)",
        promise=None if lookup else _if_accepted(case),
        change=_longer_match(case) if lookup else _another(case),
        another_draft=not lookup,
    )


def rarely_proposed(case: Case) -> Iterator[Seen]:
    """A lookup that finds nothing to propose in most steps."""
    if case.drafting is not Drafting.LOOKUP:
        return
    known = [c for c in case.counted.values() if c.steps]
    steps, drafts = sum(c.steps for c in known), sum(c.spec.drafts for c in known)
    if steps < MIN_DRAFTS or wilson(min(drafts, steps), steps)[1] >= RARELY:
        return
    yield Seen(
        numbers=f"a draft in {drafts} of {steps} steps ({drafts / steps:.0%})",
        change=_shorter_match(case),
    )


@dataclass(frozen=True, slots=True)
class _Small:
    """Acceptance of the first K positions."""

    k: int
    counters: SpecCounters

    @property
    def drafts(self) -> int:
        return self.counters.drafts

    @property
    def counts(self) -> tuple[int, int]:
        """Accepted and drafted tokens."""
        return sum(self.counters.accepted_per_pos[: self.k]), self.k * self.drafts

    @property
    def rate(self) -> float:
        return self.counts[0] / self.counts[1]

    @property
    def per_position(self) -> tuple[float, ...]:
        return tuple(n / self.drafts for n in self.counters.accepted_per_pos[: self.k])


def _at_small_k(case: Case) -> _Small | None:
    """K = 3 where it was measured; else the first three positions of a larger K, as far as they owe
    nothing to K; else the largest below.
    """
    known = {k: c.profile for k, c in case.counted.items() if c.profile}
    below = [k for k in known if k <= SMALL_K]
    above = [k for k in known if k > SMALL_K] if case.drafting is Drafting.SEQUENTIAL else []
    if not (below or above):
        return None
    k = SMALL_K if SMALL_K in below else above[0] if above else below[-1]
    return _Small(min(k, SMALL_K), known[k].counters)


def _total(case: Case) -> SpecCounters:
    return sum((c.spec for c in case.counted.values()), SpecCounters())


def _first(counters: SpecCounters) -> tuple[float, float]:
    """The interval of the first position's acceptance."""
    accepted = counters.accepted_per_pos[0] if counters.accepted_per_pos else 0
    return wilson(min(accepted, counters.drafts), counters.drafts)


def _if_accepted(case: Case) -> float | None:
    """The overall speedup if half of three drafted tokens were accepted, at the same costs."""
    alpha = alpha_of(LOW_ACCEPTANCE, SMALL_K)
    best = case.overall(lambda cost, k: cost.supposing(k, tokens=expected_tokens(alpha, k)))
    return best[1] if best else None


def _another(case: Case) -> str:
    if not case.candidate.row.has_weights:
        return ""
    return f"the draft of {case.name}: one made for this target, or trained on its replies"


def _window(case: Case) -> tuple[str, int, int] | None:
    """The setting of the shortest match, and both ends of the window as vLLM resolves them."""
    names = case.candidate.row.lookup_window
    if names is None:
        return None
    given = [case.candidate.settings.get(name) for name in names]
    known = [value for value in given if isinstance(value, int)] or [VLLM_WINDOW]
    return names[0], known[0], known[-1]


def _shorter_match(case: Case) -> str:
    window = _window(case)
    if window is None or window[1] <= 1:
        return ""
    return f"{window[0]} of {case.name}: {min(window[1] - 1, SHORT_MATCH)}"


def _longer_match(case: Case) -> str:
    window = _window(case)
    if window is None or window[1] >= window[2]:
        return ""
    return f"{window[0]} of {case.name}: {window[1] + 1}"


def _positions(shares: Sequence[float]) -> str:
    return "by position " + ", ".join(f"{share:.0%}" for share in shares)


def _listed(ks: Iterable[int]) -> str:
    return ", ".join(str(k) for k in ks)


ACCEPTANCE = (
    Diagnosis(
        id="never_accepted",
        sign=f"at least {MIN_DRAFTS} drafts, and next to none has its first token accepted",
        remedy="look, in this order, at: another tokenizer or special tokens, a draft that is not "
        "trained, a head made for another target, quantization of one side only, the engine's "
        "sampler (try temperature 0); no other K will help",
        check=never_accepted,
    ),
    Diagnosis(
        id="beyond_trained_block",
        sign="the first token of a draft is accepted less than half as often as at a smaller K",
        remedy="the drafter is trained for blocks of one length: K up to that length, no more",
        check=beyond_block,
    ),
    Diagnosis(
        id="draft_not_aligned",
        sign=f"less than {LOW_ACCEPTANCE:.0%} of the tokens accepted already at K = {SMALL_K}",
        remedy="this draft is not aligned with the target on these prompts: another one, or one "
        "trained further on the target's replies; a smaller K only loses less",
        check=not_aligned,
    ),
    Diagnosis(
        id="k_too_large",
        sign=f"good at K = {SMALL_K}, and from K = {LARGE_K} on lower than one constant acceptance "
        "would leave it",
        remedy="K back to 4 or 5",
        check=k_too_large,
    ),
    Diagnosis(
        id="deep_positions_never_accepted",
        sign="from some position on next to nothing is accepted, though the first one is",
        remedy="K up to the last position that is accepted; a draft of MTP layers runs its last "
        "one again beyond them, which is no fault of the engine",
        check=deep_positions,
    ),
    Diagnosis(
        id="low_acceptance",
        sign=f"less than {LOW_ACCEPTANCE:.0%} of the tokens accepted at the K where it is fastest",
        remedy="another draft or a smaller K; for a lookup a longer match",
        check=low_acceptance,
    ),
    Diagnosis(
        id="rarely_proposed",
        sign=f"a lookup proposes something in less than {RARELY:.0%} of the steps",
        remedy="a shorter match (prompt_lookup_min), or a draft with weights: replies that do not "
        "repeat what stands before them leave nothing to look up",
        check=rarely_proposed,
    ),
)
