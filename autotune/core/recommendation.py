"""From curves to an answer: the finalist, the verdict, and the reasons in plain words.

Rules: `speculate` needs an interval above 1 + min_gain; ties between candidates go to the simpler
one; the numbers of the answer come from the confirmation, if there is one, and say so if not.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from autotune.core.causes import retried, unstable_neighbours
from autotune.core.drift import drifts
from autotune.core.evidence import Finalist, LevelEvidence, evidence
from autotune.core.memory import Choice, utilization_for
from autotune.core.memory_bounds import at_utilization, in_force, search_utilization
from autotune.core.noise import Noise, noise_of
from autotune.core.parity import remarks, ruled_out
from autotune.core.speedup import Point, SpeedupCurve, curves, violations
from autotune.core.statistics import Interval
from autotune.core.study import StudySpec
from autotune.core.trial import BASELINE, TRIES, Failure, Record, Stage


class Verdict(StrEnum):
    """What to do."""

    SPECULATE = "speculate"
    DO_NOT_SPECULATE = "do_not_speculate"
    TIE = "tie"
    INCONCLUSIVE = "inconclusive"


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


def of_stage(records: Sequence[Record], *, confirm: bool) -> list[Record]:
    """The records of the confirmation, or all others."""
    return [r for r in records if (r.trial.stage is Stage.CONFIRM) == confirm]


def finalists(spec: StudySpec, records: Sequence[Record]) -> list[Finalist]:
    """Every candidate at its overall knee, the best first; close ones ordered by simplicity.

    Who failed, or broke a constraint, when launched as it would be deployed is out.
    """
    found = _search_curves(spec, records)
    out = _ruled_out(spec, records)
    overall = [
        c
        for c in found
        if c.concurrency is None and (c.candidate, c.knee.num_speculative_tokens) not in out
    ]
    if not overall:
        return []
    ranked = sorted(overall, key=lambda c: -_knee_point(c).speedup.mean)
    top = _knee_point(ranked[0]).speedup.mean
    close = [
        c for c in ranked if _knee_point(c).speedup.mean >= top * (1 - spec.objective.tolerance)
    ]
    close.sort(key=lambda c: _simplicity(spec, c))
    rest = [c for c in ranked if c not in close]
    return [_finalist(spec, records, c) for c in (*close, *rest)]


def _finalist(spec: StudySpec, records: Sequence[Record], curve: SpeedupCurve) -> Finalist:
    name, k = curve.candidate, curve.knee.num_speculative_tokens
    found = Finalist(
        candidate=name,
        num_speculative_tokens=k,
        gpu_memory_utilization=search_utilization(spec, records, name, k),
        speedup=_knee_point(curve).speedup,
    )
    choice = utilization_for(spec, records, found)
    return replace(found, gpu_memory_utilization=choice.utilization)


def cold_records(records: Sequence[Record], finalist: Finalist | None) -> list[Record]:
    """The records of the confirmation that are of what would be deployed: at its utilization."""
    cold = of_stage(records, confirm=True)
    return at_utilization(cold, finalist.gpu_memory_utilization) if finalist else cold


def _as_deployed(spec: StudySpec, records: Sequence[Record]) -> list[Record]:
    """The confirmations that count: each point's at the utilization that it would be deployed at.

    Where the memory was too little, or too much, another utilization has taken their place.
    """
    cold = of_stage(in_force(spec, records), confirm=True)
    points = {(r.trial.candidate, r.trial.num_speculative_tokens): r.trial for r in cold}
    chosen = {key: utilization_for(spec, records, trial) for key, trial in points.items()}
    return [
        r
        for r in cold
        if r.trial.candidate == BASELINE
        or r.trial.gpu_memory_utilization
        == chosen[r.trial.candidate, r.trial.num_speculative_tokens].utilization
    ]


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


def _search_curves(spec: StudySpec, records: Sequence[Record]) -> tuple[SpeedupCurve, ...]:
    """The curves of the search, with its own noise: no confirmation may move the knee it is for."""
    searched = of_stage(records, confirm=False)
    return curves(spec, searched, noise_of(searched, spec.workload.levels))


def _ruled_out(spec: StudySpec, records: Sequence[Record]) -> dict[tuple[str, int], str]:
    """Points that the confirmation ruled out, with the reason: failed cold, a broken constraint, or
    a comparison that is none.

    A failure counts once it is final: not transient, or seen `TRIES` times, with no measurement
    after it.
    """
    cold = _as_deployed(spec, records)
    return _failed_cold(cold) | _broken_cold(spec, cold) | ruled_out(spec, cold)


def _failed_cold(cold: Sequence[Record]) -> dict[tuple[str, int], str]:
    failures: dict[tuple[str, int], list[Failure]] = defaultdict(list)
    for r in cold:
        key = (r.trial.candidate, r.trial.num_speculative_tokens)
        if isinstance(r.outcome, Failure):
            failures[key].append(r.outcome)
        else:
            failures.pop(key, None)
    return {
        key: f"failed: {found[-1].detail}"
        for key, found in failures.items()
        if len(found) >= TRIES or any(not retried(f) for f in found)
    }


def _broken_cold(spec: StudySpec, cold: Sequence[Record]) -> dict[tuple[str, int], str]:
    noise = noise_of(cold, spec.workload.levels)
    return {
        (curve.candidate, point.num_speculative_tokens): broken[0]
        for curve in curves(spec, cold, noise)
        if curve.concurrency is not None
        for point in curve.points
        if (broken := violations(spec, point, curve.concurrency))
    }


def hopeless(spec: StudySpec, finalist: Finalist) -> bool:
    """Whether even the upper end of the best candidate's interval promises no gain."""
    return finalist.speedup.high <= 1 + spec.objective.min_gain


def recommend(spec: StudySpec, records: Sequence[Record]) -> Recommendation:
    """The answer that these records allow, whatever is still missing."""
    noise = noise_of(records, spec.workload.levels)
    search = _search_curves(spec, records)
    ranked = finalists(spec, records)
    finalist = ranked[0] if ranked else None
    confirm_records, cold = cold_records(records, finalist), _as_deployed(spec, records)
    confirmation = curves(spec, confirm_records, noise)
    confirmed = _overall_point(confirmation, finalist)
    point = confirmed or _overall_point(search, finalist)
    basis = Basis.CONFIRMED if confirmed else (Basis.SEARCH if point else Basis.NOTHING)
    verdict, why = judge(spec, point.speedup if point else None)
    if point is None and any(c.concurrency is None for c in search):
        why = "no candidate could be launched as it would be deployed"
    elif point is None and search:
        why = "no K could be measured at every level and keeps every constraint"
    choice = utilization_for(spec, records, finalist) if finalist else None
    used = confirm_records if confirmed else of_stage(records, confirm=False)
    return Recommendation(
        verdict=verdict,
        basis=basis,
        finalist=finalist,
        speedup=point.speedup if point else None,
        levels=evidence(spec, used, confirmation if confirmed else search, finalist),
        search=search,
        confirmation=confirmation,
        noise=noise,
        memory=choice,
        plain_utilization=_plain_utilization(spec, used, finalist if confirmed else None),
        failures=tuple((r, r.outcome) for r in records if isinstance(r.outcome, Failure)),
        reasons=(
            why,
            *(
                f"{name} at K = {k}, launched as it would be deployed: {reason}"
                for (name, k), reason in (_failed_cold(cold) | _broken_cold(spec, cold)).items()
            ),
            *_remarks(spec, search, finalist, basis, confirmed),
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


def judge(spec: StudySpec, speedup: Interval | None) -> tuple[Verdict, str]:
    """The verdict that an interval allows, with its reason."""
    need = 1 + spec.objective.min_gain
    tolerance = spec.objective.tolerance
    if speedup is None:
        return Verdict.INCONCLUSIVE, "no candidate could be measured"
    shown = speedup.show()
    if speedup.low > need:
        return Verdict.SPECULATE, f"the speedup {shown} lies above {need:g}x"
    if speedup.high <= need:
        return Verdict.DO_NOT_SPECULATE, f"the best speedup {shown} does not reach {need:g}x"
    if need * (1 - tolerance) <= speedup.low and speedup.high <= need * (1 + tolerance):
        return (
            Verdict.TIE,
            f"the speedup {shown} is {need:g}x within the tolerance of {tolerance:.0%}",
        )
    return (
        Verdict.INCONCLUSIVE,
        f"the interval of the speedup {shown} covers {need:g}x: more blocks or launches are needed",
    )


def _simplicity(spec: StudySpec, curve: SpeedupCurve) -> tuple[bool, int, str]:
    candidate = spec.candidate(curve.candidate)
    return candidate.row.has_weights, curve.knee.num_speculative_tokens, curve.candidate


def _knee_point(curve: SpeedupCurve) -> Point:
    return curve.at(curve.knee.num_speculative_tokens)


def _overall_point(found: Sequence[SpeedupCurve], finalist: Finalist | None) -> Point | None:
    if finalist is None:
        return None
    for curve in found:
        if curve.candidate == finalist.candidate and curve.concurrency is None:
            k = finalist.num_speculative_tokens
            return curve.at(k) if k in curve.ks else None
    return None


def _remarks(
    spec: StudySpec,
    search: Sequence[SpeedupCurve],
    finalist: Finalist | None,
    basis: Basis,
    confirmed: Point | None,
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
    if confirmed and not _agree(confirmed.speedup, finalist.speedup):
        remarks.append(
            f"the confirmation ({confirmed.speedup.show()}) and the search "
            f"({finalist.speedup.show()}) disagree beyond their intervals"
        )
    return remarks


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
