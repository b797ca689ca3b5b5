"""The answer of a study in words: one sentence that can be quoted without the rest.

Rule: a speedup never stands alone; its interval, the concurrency levels and the sampling
parameters are in the same sentence, and so is whether it was confirmed. "The speed" of a closed
loop is how long a reply of the same length takes (core/comparison.py). Where another figure is
compared (core/objective.py) it says which: mean TPOT, mean E2E latency (also where requests come at
a rate: the throughput is the rate's there), goodput.
"""

from collections.abc import Iterable
from typing import Protocol

from autotune.core.counting import counted
from autotune.core.evidence import Finalist, LevelEvidence
from autotune.core.noise import LaunchEffect
from autotune.core.objective import compared_at
from autotune.core.proportion import CONFIDENCE
from autotune.core.recommendation import Basis, Recommendation
from autotune.core.study import StudySpec
from autotune.core.verdict import Verdict
from autotune.core.workload import Sampling, Slo

OPENING = {
    Verdict.SPECULATE: "Speculate with {}:",
    Verdict.DO_NOT_SPECULATE: "Do not speculate: the best candidate, {}, gives",
    Verdict.TIE: "A tie, so do not speculate: the best candidate, {}, gives",
    Verdict.INCONCLUSIVE: "Inconclusive, so do not speculate: the best candidate, {}, gives",
}
MANY_QUEUED = 0.5
"""Where more than this share of the requests queue, the rate is too much for the slots."""
SHORT = {
    Verdict.SPECULATE: "Speculate",
    Verdict.DO_NOT_SPECULATE: "Do not speculate",
    Verdict.TIE: "Tie",
    Verdict.INCONCLUSIVE: "Inconclusive",
}


def headline(spec: StudySpec, result: Recommendation) -> str:
    """The verdict in one sentence, with everything it depends on."""
    if result.finalist is None or result.speedup is None:
        return f"Inconclusive: {result.reasons[0]}."
    opening = OPENING[result.verdict].format(_named(result.finalist))
    proof = {
        Basis.CONFIRMED: "confirmed by cold launches on prompts that the search had not seen",
        Basis.SEARCH: "unverified: seen in the search only",
        Basis.NOTHING: "not measured",
    }[result.basis]
    return (
        f"{opening} {result.speedup.show()} ({CONFIDENCE:.0%} interval) the speed of plain "
        f"decoding, {conditions(spec)}; {proof}."
    )


def short_headline(spec: StudySpec, result: Recommendation) -> str:
    """The same for a title: verdict, candidate, K, interval."""
    if result.finalist is None or result.speedup is None:
        return f"{SHORT[Verdict.INCONCLUSIVE]}: {result.reasons[0]}"
    best = result.finalist
    return (
        f"{SHORT[result.verdict]}: {best.candidate} at K = {best.num_speculative_tokens}, "
        f"{result.speedup.show()} {over_levels(spec)}"
    )


def conditions(spec: StudySpec) -> str:
    """What every speedup of the study depends on: levels and sampling."""
    return f"{over_levels(spec)}, {sampling_words(spec.workload.sampling)}"


def over_levels(spec: StudySpec) -> str:
    """`at concurrency 4`, or `weighted over concurrency 1 and 4`; what is compared at a rate."""
    levels = spec.workload.levels
    if not _needs_words(spec):
        numbers = [str(level.concurrency) for level in levels]
        over = f"concurrency {listed_words(numbers)}"
    else:
        of = [f"{compared_at(spec, lv).gain} at {level_words(lv)}" for lv in levels]
        over = listed_words(of)
    if len(levels) > 1:
        return f"weighted over {over}"
    return f"in {over}" if _needs_words(spec) else f"at {over}"


class AtLevel(Protocol):
    """What says which level it is of."""

    @property
    def concurrency(self) -> int: ...
    @property
    def request_rate(self) -> float | None: ...


def level_words(level: AtLevel) -> str:
    """`concurrency 4`, or `2.5 requests/s (at most 8 under way)`."""
    if level.request_rate is None:
        return f"concurrency {level.concurrency}"
    return f"{level.request_rate:g} requests/s (at most {level.concurrency} under way)"


def queue_words(level: LevelEvidence) -> str:
    """How many requests of both arms waited for a slot, and what many of them mean."""
    text = (
        f"At {level_words(level)}, {level.baseline_queued:.0%} of the requests to the baseline and "
        f"{level.queued:.0%} of those to the candidate found no free slot on arrival."
    )
    if max(level.baseline_queued, level.queued) <= MANY_QUEUED:
        return text
    return (
        f"{text} The rate is near or beyond what can be served so: the queue, and with it the "
        "speedup, then grows with the length of a block."
    )


def _needs_words(spec: StudySpec) -> bool:
    """Whether a speedup is, at one level at least, of anything else than the time per reply."""
    return any(not compared_at(spec, level).by_steps for level in spec.workload.levels)


def sampling_words(sampling: Sampling) -> str:
    """`temperature 0.7, top_p 0.9`."""
    params = [f"{name} {value}" for name, value in sorted(sampling.params.items())]
    return ", ".join([f"temperature {sampling.temperature:g}", *params])


def slo_words(slo: Slo) -> str:
    """`TTFT <= 300 ms, E2E <= 2000 ms`."""
    bounds = (("TTFT", slo.ttft_ms), ("TPOT", slo.tpot_ms), ("E2E", slo.e2e_ms))
    return ", ".join(f"{name} <= {bound:g} ms" for name, bound in bounds if bound is not None)


def effect_words(effect: LaunchEffect) -> str:
    """The launch-to-launch deviation in use, and where it comes from."""
    source = (
        f"estimated from {counted(effect.launches, 'launch', 'launches')} of this study and the "
        "prior"
        if effect.launches
        else "the prior, as no two launches of this study are equal"
    )
    return f"{effect.sd:.1%} (standard deviation between equal launches; {source})"


def _named(best: Finalist) -> str:
    return f"{best.candidate} at num_speculative_tokens = {best.num_speculative_tokens}"


def listed_words(words: Iterable[str]) -> str:
    """`a, b and c`."""
    *head, last = words
    return f"{', '.join(head)} and {last}" if head else last
