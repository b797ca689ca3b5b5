"""Who goes into the confirmation, and who comes out of it as the answer.

Rules: the search alone ranks the candidates, the confirmation alone decides between those it has
measured; ties go to the simpler one; who failed, or broke a constraint, when launched as it would
be deployed is out. A finalist whose confirmation falls short of its search makes room for the next
one, `FURTHER` times at most.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autotune.core.arms import arms
from autotune.core.causes import retried
from autotune.core.comparison import comparer
from autotune.core.evidence import Finalist
from autotune.core.memory import utilization_for
from autotune.core.memory_bounds import at_utilization, in_force, search_utilization
from autotune.core.noise import noise_of
from autotune.core.parity import fair, ruled_out
from autotune.core.speedup import Point, SpeedupCurve, curves, violations
from autotune.core.stages.points import given_up, of_confirmation, of_point, of_search
from autotune.core.statistics import Interval
from autotune.core.study import StudySpec
from autotune.core.trial import BASELINE, TRIES, Failure, Record

FURTHER = 2
"""How many finalists are confirmed at most after one that fell short."""

Key = tuple[str, int]
"""Candidate and K."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrant:
    """A finalist that is to be confirmed, and why besides the best one."""

    finalist: Finalist
    why: str = ""


def search_curves(spec: StudySpec, records: Sequence[Record]) -> tuple[SpeedupCurve, ...]:
    """The curves of the search, with its own noise: no confirmation may move the knee it is for."""
    searched = of_search(records)
    return curves(spec, searched, noise_of(searched, spec.workload.levels))


def finalists(spec: StudySpec, records: Sequence[Record]) -> list[Finalist]:
    """Every candidate at its overall knee, the best first; close ones ordered by simplicity."""
    out = _ruled_out(spec, records)
    found = [
        _finalist(spec, records, c)
        for c in search_curves(spec, records)
        if c.concurrency is None and (c.candidate, c.knee.num_speculative_tokens) not in out
    ]
    order = ranked(spec, {key_of(f): f.speedup for f in found})
    return sorted(found, key=lambda f: order.index(key_of(f)))


def _finalist(spec: StudySpec, records: Sequence[Record], curve: SpeedupCurve) -> Finalist:
    name, k = curve.candidate, curve.knee.num_speculative_tokens
    found = Finalist(
        candidate=name,
        num_speculative_tokens=k,
        gpu_memory_utilization=search_utilization(spec, records, name, k),
        speedup=curve.at(k).speedup,
    )
    choice = utilization_for(spec, records, found)
    return replace(found, gpu_memory_utilization=choice.utilization)


def ranked(spec: StudySpec, speedups: Mapping[Key, Interval]) -> list[Key]:
    """The best first; those within the tolerance of the best by simplicity."""
    by_mean = sorted(speedups, key=lambda key: -speedups[key].mean)
    if not by_mean:
        return []
    bar = speedups[by_mean[0]].mean * (1 - spec.objective.tolerance)
    close = [key for key in by_mean if speedups[key].mean >= bar]
    return [*sorted(close, key=lambda key: _simplicity(spec, key)), *by_mean[len(close) :]]


def panels(spec: StudySpec, records: Sequence[Record]) -> list[list[Entrant]]:
    """Who is confirmed together: the best and who is close to it, then the next, one by one."""
    order = finalists(spec, records)
    if not order:
        return []
    first, tied = order[0], [f for f in order[1:2] if _close(spec, records, order[0], f)]
    why = f"the search cannot tell it from {first.candidate}"
    # The baseline beside them is at one utilization.
    together = [f for f in tied if f.gpu_memory_utilization == first.gpu_memory_utilization]
    found = [[Entrant(finalist=first), *(Entrant(finalist=f, why=why) for f in together)]]
    found += [[Entrant(finalist=f, why=why)] for f in tied if f not in together]
    most, proved = len(found) + FURTHER, confirmed(spec, records, order)
    for following in order[1 + len(tied) :]:
        done = [entrant.finalist for panel in found for entrant in panel]
        if len(found) == most or not all(_fell_short(spec, records, proved, f) for f in done):
            break
        known = [proved[key_of(f)].mean for f in done if key_of(f) in proved]
        if hopeless(spec, following) or following.speedup.high <= max(known, default=0.0):
            break
        fell = f"{done[-1].candidate} did not hold what the search promised"
        found.append([Entrant(finalist=following, why=fell)])
    return found


def chosen(spec: StudySpec, records: Sequence[Record]) -> Finalist | None:
    """The answer: the best of those confirmed, or the best of the search if none is.

    One that has fewer cold launches than another is not compared with it.
    """
    panel = [entrant.finalist for group in panels(spec, records) for entrant in group]
    proved = confirmed(spec, records, panel)
    rounds = {key_of(f): _rounds(records, f) for f in panel if key_of(f) in proved}
    most = max(rounds.values(), default=0)
    whole = {key: proved[key] for key, count in rounds.items() if count == most}
    if not whole:
        return panel[0] if panel else None
    best = ranked(spec, whole)[0]
    return next(f for f in panel if key_of(f) == best)


def confirmed(
    spec: StudySpec, records: Sequence[Record], panel: Sequence[Finalist]
) -> dict[Key, Interval]:
    """The overall speedups of those finalists that the confirmation has measured."""
    noise = noise_of(records, spec.workload.levels)
    found: dict[Key, Interval] = {}
    for share in {f.gpu_memory_utilization for f in panel}:
        cold = curves(spec, at_utilization(of_confirmation(records), share), noise)
        for f in (f for f in panel if f.gpu_memory_utilization == share):
            point = overall_point(cold, f)
            if point is not None:
                found[key_of(f)] = point.speedup
    return found


def cold_records(records: Sequence[Record], finalist: Finalist | None) -> list[Record]:
    """The records of the confirmation that are of what would be deployed: at its utilization."""
    cold = of_confirmation(records)
    return at_utilization(cold, finalist.gpu_memory_utilization) if finalist else cold


def as_deployed(spec: StudySpec, records: Sequence[Record]) -> list[Record]:
    """The confirmations that count: each point's at the utilization that it would be deployed at.

    Where the memory was too little, or too much, another utilization has taken their place.
    """
    cold = of_confirmation(in_force(spec, records))
    points = {(r.trial.candidate, r.trial.num_speculative_tokens): r.trial for r in cold}
    shares = {
        key: utilization_for(spec, records, trial).utilization for key, trial in points.items()
    }
    return [
        r
        for r in cold
        if r.trial.candidate == BASELINE
        or r.trial.gpu_memory_utilization
        == shares[r.trial.candidate, r.trial.num_speculative_tokens]
    ]


def fell_short(proved: Interval, searched: Interval) -> bool:
    """Whether the confirmation lies below the search beyond both intervals."""
    return proved.high < searched.low


def hopeless(spec: StudySpec, finalist: Finalist) -> bool:
    """Whether even the upper end of the best candidate's interval promises no gain."""
    return finalist.speedup.high <= 1 + spec.objective.min_gain


def key_of(finalist: Finalist) -> Key:
    """Candidate and K."""
    return finalist.candidate, finalist.num_speculative_tokens


def _close(spec: StudySpec, records: Sequence[Record], one: Finalist, other: Finalist) -> bool:
    """Whether the search cannot tell two finalists apart, and neither is without hope."""
    if hopeless(spec, one) or hopeless(spec, other):
        return False
    searched, levels = of_search(records), spec.workload.levels
    found = comparer(arms(fair(spec, searched)), levels, noise_of(searched, levels))
    estimate = found.tie(key_of(one), key_of(other), levels)
    return estimate is not None and abs(estimate.mean) <= estimate.margin


def _fell_short(
    spec: StudySpec, records: Sequence[Record], proved: Mapping[Key, Interval], finalist: Finalist
) -> bool:
    """Whether the confirmation of a finalist is over and did not hold what the search promised."""
    key = key_of(finalist)
    if given_up(spec, of_point(of_confirmation(in_force(spec, records)), *key)):
        return True
    whole = _rounds(records, finalist) >= spec.search.confirm_rounds
    return key in proved and whole and fell_short(proved[key], finalist.speedup)


def _rounds(records: Sequence[Record], finalist: Finalist) -> int:
    mine = of_point(cold_records(records, finalist), *key_of(finalist))
    return len({r.trial.repeat for r in mine if r.measurement})


def _simplicity(spec: StudySpec, key: Key) -> tuple[bool, int, str]:
    name, k = key
    return spec.candidate(name).row.has_weights, k, name


def _ruled_out(spec: StudySpec, records: Sequence[Record]) -> dict[Key, str]:
    """Points that the confirmation ruled out, with the reason: failed cold, a broken constraint, or
    a comparison that is none."""
    cold = as_deployed(spec, records)
    return failed_cold(cold) | broken_cold(spec, cold) | ruled_out(spec, cold)


def failed_cold(cold: Sequence[Record]) -> dict[Key, str]:
    """The failures that are final: not transient, or seen `TRIES` times, with no measurement after
    it."""
    failures: dict[Key, list[Failure]] = defaultdict(list)
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


def broken_cold(spec: StudySpec, cold: Sequence[Record]) -> dict[Key, str]:
    """The points that broke a constraint, with the figures."""
    noise = noise_of(cold, spec.workload.levels)
    return {
        (curve.candidate, point.num_speculative_tokens): broken[0]
        for curve in curves(spec, cold, noise)
        if curve.concurrency is not None
        for point in curve.points
        if (broken := violations(spec, point, curve.concurrency))
    }


def overall_point(found: Sequence[SpeedupCurve], finalist: Finalist | None) -> Point | None:
    """A finalist's point on its overall curve; None where it has none."""
    if finalist is None:
        return None
    for curve in found:
        if curve.candidate == finalist.candidate and curve.concurrency is None:
            k = finalist.num_speculative_tokens
            return curve.at(k) if k in curve.ks else None
    return None
