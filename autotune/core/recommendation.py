"""From curves to an answer: the finalist, the verdict, and the reasons in plain words.

Rules: ties between candidates go to the simpler one; the numbers of the answer come from the
confirmation, if there is one, and say so if not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from autotune.core.causes import unstable_neighbours
from autotune.core.drift import drifts
from autotune.core.evidence import Finalist, LevelEvidence, evidence
from autotune.core.finalists import (
    as_deployed,
    broken_cold,
    chosen,
    cold_records,
    confirmed,
    failed_cold,
    hopeless,
    key_of,
    overall_point,
    panels,
    search_curves,
)
from autotune.core.memory import Choice, utilization_for
from autotune.core.memory_bounds import search_utilization
from autotune.core.noise import Noise, noise_of
from autotune.core.parity import remarks
from autotune.core.speedup import SpeedupCurve, curves, violations
from autotune.core.stages.points import of_search
from autotune.core.statistics import Interval
from autotune.core.study import StudySpec
from autotune.core.trial import BASELINE, Failure, Record
from autotune.core.verdict import Verdict, judge


class Basis(StrEnum):
    """How far the answer has been proved."""

    CONFIRMED = "confirmed"
    SEARCH = "search"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The answer of a study."""

    verdict: Verdict
    basis: Basis
    finalist: Finalist | None
    speedup: Interval | None
    """Overall, weighted over the levels; of the confirmation where there is one."""
    levels: tuple[LevelEvidence, ...]
    search: tuple[SpeedupCurve, ...]
    confirmation: tuple[SpeedupCurve, ...]
    noise: Noise
    memory: Choice | None
    """The finalist's gpu_memory_utilization, and why; None without a finalist."""
    plain_utilization: float
    """That of plain decoding, where it is what is deployed: one that was launched."""
    failures: tuple[tuple[Record, Failure], ...]
    reasons: tuple[str, ...]

    @property
    def speculates(self) -> bool:
        """Whether the exported configuration speculates."""
        return self.verdict is Verdict.SPECULATE


def recommend(spec: StudySpec, records: Sequence[Record]) -> Recommendation:
    """The answer that these records allow, whatever is still missing."""
    noise = noise_of(records, spec.workload.levels)
    search = search_curves(spec, records)
    finalist = chosen(spec, records)
    beside, cold = cold_records(records, finalist), as_deployed(spec, records)
    confirmation = curves(spec, beside, noise)
    proved = overall_point(confirmation, finalist)
    point = proved or overall_point(search, finalist)
    basis = Basis.CONFIRMED if proved else (Basis.SEARCH if point else Basis.NOTHING)
    verdict, why = judge(spec, point.speedup if point else None)
    if point is None and any(c.concurrency is None for c in search):
        why = "no candidate could be launched as it would be deployed"
    elif point is None and search:
        why = "no K could be measured at every level and keeps every constraint"
    choice = utilization_for(spec, records, finalist) if finalist else None
    used = beside if proved else of_search(records)
    return Recommendation(
        verdict=verdict,
        basis=basis,
        finalist=finalist,
        speedup=point.speedup if point else None,
        levels=evidence(spec, used, confirmation if proved else search, finalist),
        search=search,
        confirmation=confirmation,
        noise=noise,
        memory=choice,
        plain_utilization=_plain_utilization(spec, used, finalist if proved else None),
        failures=tuple((r, r.outcome) for r in records if isinstance(r.outcome, Failure)),
        reasons=(
            why,
            *(
                f"{name} at K = {k}, launched as it would be deployed: {reason}"
                for (name, k), reason in (failed_cold(cold) | broken_cold(spec, cold)).items()
            ),
            *_remarks(spec, search, finalist, basis),
            *_confirmations(spec, records, finalist),
            *_unstable(records, finalist),
            *remarks(spec, records),
            *(
                f"{name} was left out before any launch: {why}"
                for name, why in spec.left_out.items()
            ),
            *_estimates_apart(confirmation or search, finalist),
            *_memory_reasons(spec, choice),
            *(drift.told() for drift in drifts(records, noise.launch)),
        ),
    )


def _plain_utilization(
    spec: StudySpec, records: Sequence[Record], confirmed: Finalist | None
) -> float:
    """Beside a confirmed finalist its own; else where the search measured plain decoding."""
    if confirmed is not None:
        return confirmed.gpu_memory_utilization
    plain = [r for r in records if r.trial.candidate == BASELINE and r.measurement]
    if plain:
        return plain[-1].trial.gpu_memory_utilization
    return search_utilization(spec, records, BASELINE, 0)


def _memory_reasons(spec: StudySpec, choice: Choice | None) -> list[str]:
    """Why this utilization, where there was a choice, and what is wrong with it."""
    if choice is None:
        return []
    searched = len(spec.search.gpu_memory_utilization) > 1
    return [*([choice.why] if searched else []), *([choice.remark] if choice.remark else [])]


def _remarks(
    spec: StudySpec,
    search: Sequence[SpeedupCurve],
    finalist: Finalist | None,
    basis: Basis,
) -> list[str]:
    remarks: list[str] = []
    for curve in search:
        for point in curve.points if curve.concurrency is not None else ():
            broken = violations(spec, point, curve.concurrency or 0)
            remarks += [f"{curve.candidate}: {text}" for text in broken]
    if finalist is None:
        return remarks
    overall = next(c for c in search if c.candidate == finalist.candidate and c.concurrency is None)
    if overall.knee.single:
        remarks.append("only one K was measured for the finalist: best known, not a knee")
    elif overall.knee.at_edge:
        remarks.append(f"the best K, {overall.knee.best}, is the largest tried: try larger ones")
    if basis is Basis.SEARCH and not hopeless(spec, finalist):
        remarks.append(
            "unverified: the configuration has not been launched as it would be deployed"
        )
    return remarks


def _confirmations(
    spec: StudySpec, records: Sequence[Record], finalist: Finalist | None
) -> list[str]:
    """Who else was confirmed, and where a confirmation is not what the search had found."""
    everyone = [entrant.finalist for panel in panels(spec, records) for entrant in panel]
    proved, told = confirmed(spec, records, everyone), list[str]()
    for other in (f for f in everyone if key_of(f) in proved):
        cold = proved[key_of(other)]
        name = f"{other.candidate} at K = {other.num_speculative_tokens}"
        if not _agree(cold, other.speedup):
            told.append(
                f"{name}: the confirmation ({cold.show()}) and the search "
                f"({other.speedup.show()}) disagree beyond their intervals"
            )
        elif other != finalist:
            told.append(f"{name} was confirmed, too: {cold.show()}")
    return told


def _unstable(records: Sequence[Record], finalist: Finalist | None) -> list[str]:
    if finalist is None:
        return []
    return unstable_neighbours(records, finalist.candidate, finalist.num_speculative_tokens)


def _estimates_apart(found: Sequence[SpeedupCurve], finalist: Finalist | None) -> list[str]:
    """Where the two estimates of the finalist's speedup disagree beyond their intervals."""
    if finalist is None:
        return []
    points = [
        (curve.concurrency, curve.at(finalist.num_speculative_tokens))
        for curve in found
        if curve.candidate == finalist.candidate and curve.concurrency is not None
        if finalist.num_speculative_tokens in curve.ks
    ]
    return [
        f"at concurrency {c} the speedup by steps, {point.by_steps.show()}, and that of the "
        f"throughputs, {point.by_throughput.show()}, disagree beyond their intervals: passes with "
        "idle ends or hiccups; more requests_per_stream make them longer"
        for c, point in points
        if point.by_steps and point.estimates_apart
    ]


def _agree(one: Interval, other: Interval) -> bool:
    return one.low <= other.high and other.low <= one.high
