"""Who goes into the confirmation, and who comes out of it as the answer.

Rules: the search alone ranks the candidates, the confirmation alone decides between those it has
measured; ties go to the simpler one; who failed, or broke a constraint, when launched as it would
be deployed is out. A finalist whose confirmation falls short of its search makes room for the next
one, `FURTHER` times at most.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from autotune.core.arms import arms
from autotune.core.comparison import comparer
from autotune.core.evidence import Finalist
from autotune.core.noise import noise_of
from autotune.core.parity import fair, ruled_out
from autotune.core.speedup import Point, SpeedupCurve, curves, violations
from autotune.core.stages.points import given_up, of_confirmation, of_point, of_search
from autotune.core.statistics import Interval
from autotune.core.study import StudySpec
from autotune.core.trial import TRIES, Failure, Record

FURTHER = 2
"""How many finalists are confirmed at most after one that fell short."""

Key = tuple[str, int]
"""Candidate and K."""


def search_curves(spec: StudySpec, records: Sequence[Record]) -> tuple[SpeedupCurve, ...]:
    """The curves of the search, with its own noise: no confirmation may move the knee it is for."""
    searched = of_search(records)
    return curves(spec, searched, noise_of(searched, spec.workload.levels))


def finalists(spec: StudySpec, records: Sequence[Record]) -> list[Finalist]:
    """Every candidate at its overall knee, the best first; close ones ordered by simplicity."""
    out = _ruled_out(spec, records)
    gmu = spec.search.gpu_memory_utilization[0]
    found = [
        Finalist(
            candidate=c.candidate,
            num_speculative_tokens=c.knee.num_speculative_tokens,
            gpu_memory_utilization=gmu,
            speedup=c.at(c.knee.num_speculative_tokens).speedup,
        )
        for c in search_curves(spec, records)
        if c.concurrency is None and (c.candidate, c.knee.num_speculative_tokens) not in out
    ]
    order = ranked(spec, {key_of(f): f.speedup for f in found})
    return sorted(found, key=lambda f: order.index(key_of(f)))


def ranked(spec: StudySpec, speedups: Mapping[Key, Interval]) -> list[Key]:
    """The best first; those within the tolerance of the best by simplicity."""
    by_mean = sorted(speedups, key=lambda key: -speedups[key].mean)
    if not by_mean:
        return []
    bar = speedups[by_mean[0]].mean * (1 - spec.objective.tolerance)
    close = [key for key in by_mean if speedups[key].mean >= bar]
    return [*sorted(close, key=lambda key: _simplicity(spec, key)), *by_mean[len(close) :]]


def panels(spec: StudySpec, records: Sequence[Record]) -> list[list[Finalist]]:
    """Who is confirmed together: the best and who is close to it, then the next, one by one."""
    order = finalists(spec, records)
    if not order:
        return []
    found = [order[:2] if len(order) > 1 and _close(spec, records, *order[:2]) else order[:1]]
    proved = confirmed(spec, records)
    for following in order[len(found[0]) :]:
        done = [f for panel in found for f in panel]
        if len(found) > FURTHER or not all(_fell_short(spec, records, proved, f) for f in done):
            break
        known = [proved[key_of(f)].mean for f in done if key_of(f) in proved]
        if hopeless(spec, following) or following.speedup.high <= max(known, default=0.0):
            break
        found.append([following])
    return found


def chosen(spec: StudySpec, records: Sequence[Record]) -> Finalist | None:
    """The answer: the best of those confirmed, or the best of the search if none is.

    One that has fewer cold launches than another is not compared with it.
    """
    panel = [f for group in panels(spec, records) for f in group]
    proved = confirmed(spec, records)
    rounds = {key_of(f): _rounds(records, f) for f in panel if key_of(f) in proved}
    most = max(rounds.values(), default=0)
    whole = {key: proved[key] for key, count in rounds.items() if count == most}
    if not whole:
        return panel[0] if panel else None
    best = ranked(spec, whole)[0]
    return next(f for f in panel if key_of(f) == best)


def confirmed(spec: StudySpec, records: Sequence[Record]) -> dict[Key, Interval]:
    """The overall speedup of every point that the confirmation has measured."""
    cold = of_confirmation(records)
    noise = noise_of(records, spec.workload.levels)
    return {
        (curve.candidate, point.num_speculative_tokens): point.speedup
        for curve in curves(spec, cold, noise)
        if curve.concurrency is None
        for point in curve.points
    }


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
    if given_up(spec, of_point(of_confirmation(records), *key)):
        return True
    whole = _rounds(records, finalist) >= spec.search.confirm_rounds
    return key in proved and whole and fell_short(proved[key], finalist.speedup)


def _rounds(records: Sequence[Record], finalist: Finalist) -> int:
    mine = of_point(of_confirmation(records), *key_of(finalist))
    return len({r.trial.repeat for r in mine if r.measurement})


def _simplicity(spec: StudySpec, key: Key) -> tuple[bool, int, str]:
    name, k = key
    return spec.candidate(name).row.has_weights, k, name


def _ruled_out(spec: StudySpec, records: Sequence[Record]) -> dict[Key, str]:
    """Points that the confirmation ruled out, with the reason: failed cold, a broken constraint, or
    a comparison that is none."""
    cold = of_confirmation(records)
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
        if len(found) >= TRIES or any(not f.transient for f in found)
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
