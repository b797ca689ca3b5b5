"""The answer of a study in words: one sentence that can be quoted without the rest.

Rule: a speedup never stands alone; its interval, the concurrency levels and the sampling
parameters are in the same sentence, and so is whether it was confirmed.
"""

from collections.abc import Iterable

from autotune.core.evidence import Finalist
from autotune.core.noise import LaunchEffect
from autotune.core.recommendation import Basis, Recommendation, Verdict
from autotune.core.statistics import CONFIDENCE
from autotune.core.study import Sampling, StudySpec

OPENING = {
    Verdict.SPECULATE: "Speculate with {}:",
    Verdict.DO_NOT_SPECULATE: "Do not speculate: the best candidate, {}, gives",
    Verdict.TIE: "A tie, so do not speculate: the best candidate, {}, gives",
    Verdict.INCONCLUSIVE: "Inconclusive, so do not speculate: the best candidate, {}, gives",
}
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
        f"{opening} {result.speedup.show()} ({CONFIDENCE:.0%} interval) the output throughput of "
        f"plain decoding, {conditions(spec)}; {proof}."
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
    """`at concurrency 4`, or `weighted over concurrency 1 and 4`."""
    levels = [str(level.concurrency) for level in spec.workload.levels]
    if len(levels) == 1:
        return f"at concurrency {levels[0]}"
    return f"weighted over concurrency {_listed(levels)}"


def sampling_words(sampling: Sampling) -> str:
    """`temperature 0.7, top_p 0.9`."""
    params = [f"{name} {value}" for name, value in sorted(sampling.params.items())]
    return ", ".join([f"temperature {sampling.temperature:g}", *params])


def effect_words(effect: LaunchEffect) -> str:
    """The launch-to-launch deviation in use, and where it comes from."""
    source = (
        f"estimated from {effect.launches} launches of this study and the prior"
        if effect.launches
        else "the prior, as no two launches of this study are equal"
    )
    return f"{effect.sd:.1%} (standard deviation between equal launches; {source})"


def _named(best: Finalist) -> str:
    return f"{best.candidate} at num_speculative_tokens = {best.num_speculative_tokens}"


def _listed(words: Iterable[str]) -> str:
    *head, last = words
    return f"{', '.join(head)} and {last}" if head else last
