"""Whether a deployed configuration still holds: what to launch, and what comes of it.

Rules: the deployment and plain decoding are launched in turn, cold, as a confirmation does it, and
judged as a study is; nothing that was recorded before enters the new figures. What does not start
is broken, what no longer pays is stale. Where plain decoding is deployed there is no speedup to
measure: it must start, and what the answer depends on must not have changed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from autotune.core.causes import retried
from autotune.core.drift import drifts
from autotune.core.estimate import WARM_UP_S, boot_s
from autotune.core.evidence import Finalist, evidence
from autotune.core.jsontype import JSON
from autotune.core.noise import noise_of
from autotune.core.parity import remarks, ruled_out
from autotune.core.recommendation import Basis, Recommendation
from autotune.core.speedup import curves, violations
from autotune.core.statistics import Interval
from autotune.core.study import Candidate, StudySpec
from autotune.core.trial import BASELINE, TRIES, Failure, Launch, Record, Stage
from autotune.core.verdict import Verdict, judge
from autotune.core.workload import MIN_BLOCKS


class State(StrEnum):
    """What has become of a recommendation."""

    STILL_GOOD = "still good"
    STALE = "stale"
    UNDECIDED = "undecided"
    BROKEN = "broken"
    NOT_DONE = "not done"  # the budget was spent first


STATE_OF = {
    Verdict.SPECULATE: State.STILL_GOOD,
    Verdict.DO_NOT_SPECULATE: State.STALE,
    Verdict.TIE: State.UNDECIDED,
    Verdict.INCONCLUSIVE: State.UNDECIDED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Something that the recommendation depends on, and that is another now."""

    path: str
    old: JSON
    new: JSON
    """None where it is not known any more."""

    def show(self) -> str:
        """`engine.version: 0.32.0 -> 0.33.0`."""
        return f"{self.path}: {_shown(self.old)} -> {_shown(self.new)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The outcome."""

    state: State
    reason: str
    result: Recommendation
    """What these launches alone would recommend."""
    changes: tuple[Change, ...] = ()


def next_verification(
    spec: StudySpec, records: Sequence[Record], remaining_s: float | None = None
) -> Launch | None:
    """The next launch, or None: known, broken, or no time left for another launch.

    The study has the deployment as its only candidate at its only K, or none for plain decoding.
    """
    ahead = list(_ahead(spec, records))
    if not ahead or failed(records) is not None:
        return None
    if remaining_s is None:
        return ahead[0]
    start_s = boot_s(records, ahead[0]) + WARM_UP_S
    if remaining_s < start_s:
        return None
    measure_s = max((remaining_s - len(ahead) * start_s) / len(ahead), 1.0)
    left_s = max(remaining_s - WARM_UP_S, 1.0)
    return replace(ahead[0], measure_s=measure_s, start_timeout_s=left_s)


def launches_ahead(spec: StudySpec, records: Sequence[Record] = ()) -> int:
    """How many launches are still to be made, if none fails."""
    return len(list(_ahead(spec, records)))


def _ahead(spec: StudySpec, records: Sequence[Record]) -> Iterator[Launch]:
    rounds = spec.search.confirm_rounds if spec.candidates else 1
    for repeat in range(rounds):
        for candidate in (None, *spec.candidates):
            if not _measured(spec, records, candidate, repeat):
                yield _launch(spec, candidate, repeat)


def _launch(spec: StudySpec, candidate: Candidate | None, repeat: int) -> Launch:
    if candidate is None:
        why = "plain decoding, beside the deployment" if spec.candidates else "the deployment"
    else:
        why = "the deployment: the file as it is, static K"
    return Launch(
        stage=Stage.CONFIRM,
        candidate=candidate,
        num_speculative_tokens=spec.ks(candidate) if candidate else (0,),
        gpu_memory_utilization=spec.search.gpu_memory_utilization[0],
        repeat=repeat,
        max_blocks=spec.search.max_blocks,
        why=why,
    )


def _measured(
    spec: StudySpec, records: Sequence[Record], candidate: Candidate | None, repeat: int
) -> bool:
    """Whether a launch has two blocks at every level, or `TRIES` launches tried to have them."""
    name = candidate.name if candidate else BASELINE
    tried = [
        r.measurement
        for r in records
        if r.measurement and (r.trial.candidate, r.trial.repeat) == (name, repeat)
    ]
    return len(tried) >= TRIES or any(
        all(len(found.at(lv.concurrency)) >= MIN_BLOCKS for lv in spec.workload.levels)
        for found in tried
    )


def failed(records: Sequence[Record]) -> tuple[Record, Failure] | None:
    """The failure that ends a verification: one that is no accident, or too many accidents."""
    seen: dict[str, int] = {}
    for record in records:
        if isinstance(record.outcome, Failure):
            name = record.trial.candidate
            seen[name] = seen.get(name, 0) + 1
            if not retried(record.outcome) or seen[name] >= TRIES:
                return record, record.outcome
    return None


def verification(
    spec: StudySpec, records: Sequence[Record], changed: Sequence[Change] = ()
) -> Verification:
    """What the launches so far say."""
    result = _result(spec, records)
    end = failed(records)
    if end is not None:
        record, failure = end
        what = "the deployment" if record.trial.num_speculative_tokens else "plain decoding"
        told = f"{what} cannot run here: {failure.cause.value}: {failure.detail}"
        state, reason = State.BROKEN, f"{told}; {failure.remedy}" if failure.remedy else told
    elif launches_ahead(spec, records):
        state, reason = State.NOT_DONE, "the budget was spent before every launch was made"
    elif spec.candidates:
        state, reason = STATE_OF[result.verdict], result.reasons[0]
    elif changed:
        state, reason = State.STALE, "what the answer depends on has changed: run the study again"
    else:
        state, reason = State.STILL_GOOD, "plain decoding runs, and nothing has changed"
    return Verification(state=state, reason=reason, result=result, changes=tuple(changed))


def _result(spec: StudySpec, records: Sequence[Record]) -> Recommendation:
    noise = noise_of(records, spec.workload.levels)
    found = curves(spec, records, noise)
    overall = next((c for c in found if c.concurrency is None), None)
    finalist, speedup = _finalist(spec), overall.points[0].speedup if overall else None
    if finalist and speedup:
        finalist = replace(finalist, speedup=speedup)
    verdict, why = judge(spec, speedup)
    broken = [
        text
        for curve in found
        if curve.concurrency is not None
        for point in curve.points
        for text in violations(spec, point, curve.concurrency)
    ]
    unfair = list(ruled_out(spec, records).values())
    if speedup is None and (broken or unfair):
        verdict = Verdict.DO_NOT_SPECULATE if broken else Verdict.INCONCLUSIVE
        why = [*broken, *unfair][0]
    return Recommendation(
        verdict=verdict,
        basis=Basis.CONFIRMED if speedup else Basis.NOTHING,
        finalist=finalist if speedup else None,
        speedup=speedup,
        levels=evidence(spec, records, found, finalist if speedup else None),
        search=(),
        confirmation=found,
        noise=noise,
        memory=None,
        plain_utilization=spec.search.gpu_memory_utilization[0],
        failures=tuple((r, r.outcome) for r in records if isinstance(r.outcome, Failure)),
        reasons=(
            why,
            *remarks(spec, records),
            *(drift.told() for drift in drifts(records, noise.launch)),
        ),
    )


def _finalist(spec: StudySpec) -> Finalist | None:
    if not spec.candidates:
        return None
    (candidate,) = spec.candidates
    return Finalist(
        candidate=candidate.name,
        num_speculative_tokens=spec.ks(candidate)[0],
        gpu_memory_utilization=spec.search.gpu_memory_utilization[0],
        speedup=Interval(mean=1.0, low=1.0, high=1.0),
    )


def changes(
    old: Mapping[str, JSON], new: Mapping[str, JSON], paths: Sequence[str]
) -> tuple[Change, ...]:
    """What differs between two documents at these paths, field by field.

    What the old one does not have is not known, and so no change.
    """
    return tuple(
        change
        for path in paths
        if (known := _dig(old, path)) is not None
        for change in _differences(path, known, _dig(new, path))
    )


def _differences(path: str, old: JSON, new: JSON) -> Iterator[Change]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*old, *new]):
            yield from _differences(f"{path}.{name}", old.get(name), new.get(name))
    elif old != new:
        yield Change(path=path, old=old, new=new)


def _dig(values: Mapping[str, JSON], path: str) -> JSON:
    found: JSON = dict(values)
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _shown(value: JSON) -> str:
    return "not there" if value is None else str(value)
