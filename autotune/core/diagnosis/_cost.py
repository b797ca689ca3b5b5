"""Diagnoses by what a step costs (core/cost.py).

Rules: a share is one of the target's own step at the same concurrency, and counts with the lower
end of its interval; nothing is slow where the candidate is shown to gain.
"""

from collections.abc import Iterator

from autotune.core.cost import StepCost
from autotune.core.diagnosis.case import Case, Cases
from autotune.core.diagnosis.table import FIFTH, TENTH, Diagnosis, Seen

SINGLE = 1
"""Streams of a level where checking is next to free: a step reads all weights in any case."""
CHECKING = 0.05
"""Share of a plain step that checking a token took there (the recorded demo on two CPU cores; on a
GPU it is less)."""
SEVERAL = 2
"""Drafts that must be too slow before the target is to blame."""


def draft_too_slow(case: Case) -> Iterator[Seen]:
    """The draft's own step, alone, is more than a fifth of the target's."""
    for c, cost in case.costs.items():
        if case.gains(c):
            continue
        plain, draft, line = cost.plain.seconds, cost.draft, cost.line
        if draft is not None and draft.low_s > FIFTH * plain:
            told = f"the draft takes {_of(draft.seconds, plain)} for each token ({draft.source})"
        elif _alone(cost) and line and line.slope.low_s > (FIFTH + CHECKING) * plain:
            told = (
                f"a drafted token costs {_of(line.slope.seconds, plain)}; of that about "
                f"{CHECKING:.0%} are checking, for one stream"
            )
        else:
            continue
        yield Seen(
            numbers=told,
            concurrency=c,
            promise=_if_fast(case),
            change=f"the draft of {case.name}: one whose step takes a tenth of the target's",
            another_draft=True,
        )


def step_overhead(case: Case) -> Iterator[Seen]:
    """What speculating costs a step before a token is checked is more than a fifth of it."""
    for c, cost in case.costs.items():
        overhead = cost.overhead
        if case.gains(c) or overhead is None or overhead.low_s <= FIFTH * cost.plain.seconds:
            continue
        told = f"{_of(overhead.seconds, cost.plain.seconds)} more before a drafted token counts"
        if cost.standby_s is not None:
            told += f", {cost.standby_s * 1e3:.1f} ms of it even at K = 0 on the same server"
        larger = _larger(case, cost)
        if larger:
            told += f"; at K = {larger[0]} the model expects {larger[1]:.2f} times plain decoding"
        yield Seen(
            numbers=told,
            concurrency=c,
            change=f"num_speculative_tokens of {case.name}: {larger[0]}" if larger else "",
        )


def small_target(study: Cases) -> Iterator[Seen]:
    """Every draft with a step of its own is too slow, the cheapest one, too."""
    if any(case.gains_somewhere for case in study.cases if case.candidate.row.has_weights):
        return
    for c, costs in list(study.costs.items())[:1]:
        known = [(cost.draft, cost) for cost in costs.values() if cost.draft is not None]
        if len(known) < SEVERAL:
            return
        draft, cost = min(known, key=lambda pair: pair[0].seconds)
        plain = cost.plain.seconds
        if draft.low_s > TENTH * plain:
            yield Seen(
                numbers=f"a step of the target takes {plain * 1e3:.1f} ms, the cheapest of "
                f"{len(known)} drafts ({cost.candidate}) {_of(draft.seconds, plain)} for a token",
                concurrency=c,
            )


def _alone(cost: StepCost) -> bool:
    return cost.concurrency == SINGLE and cost.check is None and cost.drafts_in_slope


def _if_fast(case: Case) -> float | None:
    """The overall speedup if the draft took a tenth of the target's step; None where a level does
    not tell the draft apart.
    """

    def faster(cost: StepCost, k: int) -> float:
        draft = cost.draft.seconds if cost.draft else 0.0
        saved = max(draft - TENTH * cost.plain.seconds, 0.0)
        return cost.supposing(k, saved_s=saved * cost.at(k).drafted)

    if any(cost.draft is None for cost in case.costs.values()):
        return None
    best = case.overall(faster)
    return best[1] if best else None


def _larger(case: Case, cost: StepCost) -> tuple[int, float] | None:
    """A K beyond those measured that the model expects to be the fastest, and its speedup."""
    largest = cost.ks[-1]
    counted = case.counted.get(largest)
    profile = counted.profile if counted else None
    if profile is None:
        return None
    known = max(cost.speedup(k) for k in cost.ks)
    tried = [
        (k, cost.predicted(k, profile.per_position)) for k in range(largest + 1, 2 * largest + 1)
    ]
    better = [(k, speedup) for k, speedup in tried if speedup is not None and speedup > known]
    return max(better, key=lambda pair: pair[1], default=None)


def _of(seconds: float, plain: float) -> str:
    """`2.9 ms (18% of the target's step)`."""
    return f"{seconds * 1e3:.1f} ms ({seconds / plain:.0%} of the target's step)"


COST = (
    Diagnosis(
        id="draft_too_slow",
        sign=f"no gain, and the draft's own step takes more than {FIFTH:.0%} of the target's",
        remedy="a faster draft: an order of magnitude below the target's step is what pays (fewer "
        "layers, a smaller model, an EAGLE or MTP head, a lookup)",
        check=draft_too_slow,
    ),
    Diagnosis(
        id="step_overhead",
        sign=f"no gain, and speculating adds more than {FIFTH:.0%} of the target's step whatever K",
        remedy="a larger K spreads it where acceptance holds; on a GPU the device waits for the "
        "host meanwhile: CUDA graphs up to concurrency x (K + 1) tokens, no enforce_eager",
        check=step_overhead,
    ),
)
STUDY_COST = (
    Diagnosis(
        id="small_target",
        sign=f"no draft with weights gains, and the cheapest of several takes more than "
        f"{TENTH:.0%} of the target's step",
        remedy="the target is too small for a draft: no smaller one pays; a lookup, or plain "
        "decoding",
        study_check=small_target,
    ),
)
