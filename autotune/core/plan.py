"""What to launch next, as a pure function of what has been measured.

Rules: the same records give the same launch, so resuming is calling again; every launch carries a
sentence why; what was measured enough is never measured again; a failure that is not transient is
never tried again; no point is launched for ever: `TRIES` launches in vain are the end of it.

The order is baseline, screen (every candidate, all its K), refine (further variants of candidates
with ranges that may still be the answer), confirm. Which variant is next comes from outside, as
`propose`: samplers roll dice, this file does not.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from autotune.core.causes import ends_candidate, retried
from autotune.core.drift import restless
from autotune.core.memory_bounds import at_utilization, escaped, in_force, search_utilization
from autotune.core.recommendation import finalists, hopeless
from autotune.core.space import screened_variant, variants_in, with_variants
from autotune.core.study import MIN_BLOCKS, Candidate, StudySpec
from autotune.core.trial import (
    BASELINE,
    TRIES,
    Cause,
    Failure,
    Launch,
    Measurement,
    Record,
    Stage,
)

STAGE_WEIGHTS = {Stage.BASELINE: 4.0, Stage.CONFIRM: 1.5}
"""What a K of a stage may cost, relative to one of the search: the baseline has one K only, and its
blocks are what every other launch is paired with."""
MORE_ROUNDS = 2
"""Rounds that a confirmation gets at most beyond those asked for, when the machine is restless."""
SEARCH = frozenset({Stage.SCREEN, Stage.REFINE})
JUDGED = 2
"""Variants of a candidate that must have been tried before it is dropped."""
FIRST_BOOT_S = 60.0
WARM_UP_S = 10.0


Propose = Callable[[StudySpec, Sequence[Record], Candidate], Candidate | None]
"""Study, records and a candidate with ranges to its next variant; None: it has had enough."""


def no_more(spec: StudySpec, records: Sequence[Record], candidate: Candidate) -> Candidate | None:
    """Proposes nothing: of a candidate with ranges one variant is measured."""


def next_launch(
    spec: StudySpec,
    records: Sequence[Record],
    remaining_s: float | None = None,
    propose: Propose = no_more,
) -> Launch | None:
    """The next launch, or None: finished, or no baseline, or no time left for another launch.

    `remaining_s` is what is left of the budget; None means no budget.
    """
    todo = list(pending(spec, records, propose))
    if not todo:
        return None
    launch, ahead = todo[0], todo
    if remaining_s is None:
        return launch
    boots = len(ahead) * (boot_estimate(records) + WARM_UP_S)
    measuring = remaining_s - boots
    share = _weight(spec, launch) / sum(_weight(spec, other) for other in ahead)
    if remaining_s < boot_estimate(records) + WARM_UP_S:
        return None
    return replace(
        launch,
        measure_s=max(measuring * share, 1.0),
        start_timeout_s=max(remaining_s - WARM_UP_S, 1.0),
    )


def baseline_failed(records: Sequence[Record]) -> Failure | None:
    """The failure that ended the study, if the baseline could not be measured."""
    mine = [r for r in records if r.trial.stage is Stage.BASELINE]
    if any(r.measurement and not r.measurement.cut_short for r in mine):
        return None
    counted = [r.outcome for r in mine if not _says_nothing(r)]
    failed = [outcome for outcome in counted if isinstance(outcome, Failure)]
    over = len(failed) >= TRIES or any(not retried(f) for f in failed)
    return failed[-1] if over else None


def boot_estimate(records: Sequence[Record]) -> float:
    """Seconds that the next start will take: the mean of those seen, or a guess."""
    seen = {r.launch_id: r.facts.boot_s for r in records if r.facts}
    return sum(seen.values()) / len(seen) if seen else FIRST_BOOT_S


def pending(
    spec: StudySpec, records: Sequence[Record], propose: Propose = no_more
) -> Iterator[Launch]:
    """All launches that are still to be made, as far as they can be foreseen."""
    if baseline_failed(in_force(spec, records)):
        return
    enough = _enough(spec, records, BASELINE, 0, Stage.BASELINE)
    if not enough and not _given_up(spec, records, BASELINE, 0, Stage.BASELINE):
        yield _launch(
            spec, records, Stage.BASELINE, None, (0,), why="the denominator of every speedup"
        )
    screens = list(_screen_all(spec, records))
    yield from screens
    if not screens:
        yield from _refine(spec, records, propose)
    yield from _confirm(with_variants(spec, records), records, searching=bool(screens))


def _search(
    spec: StudySpec, records: Sequence[Record], candidate: Candidate, stage: Stage
) -> Iterator[Launch]:
    if any(_ends_candidate(r, candidate.name) for r in records):
        return
    missing = tuple(
        k
        for k in spec.ks(candidate)
        if not _enough(spec, records, candidate.name, k, stage)
        and not _given_up(spec, records, candidate.name, k, stage)
    )
    if not missing:
        return
    if live_possible(spec, records, candidate):
        yield _launch(
            spec,
            records,
            stage,
            candidate,
            (0, *missing),
            why=f"the curve of {candidate.name} over K = {_listed(missing)} in one launch (live K)",
            live=True,
        )
        return
    for k in missing:
        yield _launch(
            spec,
            records,
            stage,
            candidate,
            (k,),
            why=f"{candidate.name} at K = {k}, one launch per K",
        )


def live_possible(spec: StudySpec, records: Sequence[Record], candidate: Candidate) -> bool:
    """Whether one launch may answer all K: by method, parallelism, and what was seen so far."""
    parallel = spec.target.engine_args.get("data_parallel_size", 1)
    name = candidate.name
    seen_static = any(r.trial.candidate == name and _not_in_force(r) for r in records)
    # A live launch that cannot even run K = 0 would fail the same way for ever.
    broken = _given_up(spec, records, name, 0)
    return candidate.live_k and parallel == 1 and not seen_static and not broken


def _confirm(spec: StudySpec, records: Sequence[Record], *, searching: bool) -> Iterator[Launch]:
    """Baseline and winner in turn; foreseen for the first candidate while there is no winner."""
    ranked = finalists(spec, records)
    best = ranked[0] if ranked else None
    if (best is None or hopeless(spec, best)) and not searching:
        return
    candidate = spec.candidate(best.candidate) if best else spec.candidates[0]
    k = best.num_speculative_tokens if best else spec.ks(candidate)[0]
    share = best.gpu_memory_utilization if best else spec.search.gpu_memory_utilization[-1]
    winner = f"{candidate.name} at K = {k}" if best else "the winner"
    if best and len(spec.search.gpu_memory_utilization) > 1:
        winner += f" and gpu_memory_utilization {share:g}"
    arms = (
        (None, 0, "a fresh baseline beside the winner, on prompts the search has not seen"),
        (candidate, k, f"{winner} exactly as it would be deployed"),
    )
    there = at_utilization(records, share)
    for repeat in range(_rounds(spec, there)):
        for arm, number, why in arms:
            name = arm.name if arm else BASELINE
            if _enough(spec, there, name, number, Stage.CONFIRM, repeat):
                continue
            if _given_up(spec, records, name, number, Stage.CONFIRM):
                return
            launch = _launch(spec, records, Stage.CONFIRM, arm, (number,), why=why)
            yield replace(launch, repeat=repeat, gpu_memory_utilization=share)


def _rounds(spec: StudySpec, records: Sequence[Record]) -> int:
    """Rounds of the confirmation: some more while its baselines are further apart than equal."""
    asked = spec.search.confirm_rounds
    done = {r.trial.repeat for r in records if r.trial.stage is Stage.CONFIRM and r.measurement}
    again = len(done) >= asked and restless(records)
    return min(max(len(done), asked) + 1, asked + MORE_ROUNDS) if again else max(len(done), asked)


def _ends_candidate(record: Record, name: str) -> bool:
    """Whether a failure at any K is the end of all K of a candidate."""
    outcome = record.outcome
    mine = record.trial.candidate == name and record.trial.stage is not Stage.CONFIRM
    return mine and isinstance(outcome, Failure) and ends_candidate(outcome)


def _screen_all(spec: StudySpec, records: Sequence[Record]) -> Iterator[Launch]:
    for candidate in spec.candidates:
        variant = screened_variant(spec, records, candidate)
        yield from _search(spec, records, variant, Stage.SCREEN)


def _refine(spec: StudySpec, records: Sequence[Record], propose: Propose) -> Iterator[Launch]:
    """Variants of the candidates that may still be the answer, each as it is screened.

    One variant does not speak for a range: a second is launched before a candidate is dropped.
    """
    concrete = with_variants(spec, records)
    hopeful = {
        concrete.candidate(f.candidate).family
        for f in finalists(concrete, records)
        if not hopeless(concrete, f)
    }
    for candidate in spec.candidates:
        known = variants_in(spec, records, candidate)
        if not candidate.space or (candidate.name not in hopeful and len(known) >= JUDGED):
            continue
        first = screened_variant(spec, records, candidate)
        begun = [v for v in known if v.name != first.name]
        left = [x for v in begun for x in _search(spec, records, v, Stage.REFINE)]
        new = None if left else propose(spec, records, candidate)
        yield from left
        if new is not None:
            yield from _search(spec, records, new, Stage.REFINE)


def _launch(
    spec: StudySpec,
    records: Sequence[Record],
    stage: Stage,
    candidate: Candidate | None,
    ks: tuple[int, ...],
    *,
    why: str,
    live: bool = False,
) -> Launch:
    name = candidate.name if candidate else BASELINE
    return Launch(
        stage=stage,
        candidate=candidate,
        num_speculative_tokens=ks,
        gpu_memory_utilization=search_utilization(spec, records, name, max(ks)),
        live=live,
        max_blocks=spec.search.max_blocks,
        why=why,
    )


def _enough(
    spec: StudySpec, records: Sequence[Record], name: str, k: int, stage: Stage, repeat: int = 0
) -> bool:
    """Whether one record of this point has enough blocks at every level."""
    return any(
        r.trial.repeat == repeat and r.measurement and _ample(spec, stage, r.measurement)
        for r in _of(records, name, k, stage)
    )


def _ample(spec: StudySpec, stage: Stage, measured: Measurement) -> bool:
    """Whether it has `min_blocks` at every level, or what the time of its launch allowed."""
    least = spec.search.min_blocks
    attempted = {(p.concurrency, p.block) for p in measured.passes}
    valid = {(p.concurrency, p.block) for p in measured.passes if not p.invalid}
    if attempted == valid and not measured.cut_short:
        least = MIN_BLOCKS
    return all(
        len(measured.at(lv.concurrency))
        >= min(least, spec.workload.blocks(stage.prompts, lv.concurrency))
        for lv in spec.workload.levels
    )


def _given_up(
    spec: StudySpec, records: Sequence[Record], name: str, k: int, stage: Stage = Stage.SCREEN
) -> bool:
    """Whether this point was tried in vain, in any repeat: once for good, or `TRIES` times."""
    vain = [
        r.outcome
        for r in _of(records, name, k, stage)
        if not (r.measurement and (r.measurement.cut_short or _ample(spec, stage, r.measurement)))
        and not _says_nothing(r)
        and not escaped(spec, records, r)
    ]
    return len(vain) >= TRIES or any(isinstance(o, Failure) and not retried(o) for o in vain)


def _of(records: Sequence[Record], name: str, k: int, stage: Stage) -> Iterator[Record]:
    stages = SEARCH if stage in SEARCH else {stage}
    for r in records:
        same = (r.trial.candidate, r.trial.num_speculative_tokens) == (name, k)
        if same and r.trial.stage in stages:
            yield r


def _says_nothing(record: Record) -> bool:
    """A launch that the budget cut short is no try, nor is one that only lacked live K."""
    outcome = record.outcome
    no_time = isinstance(outcome, Failure) and outcome.cause is Cause.NO_TIME
    return no_time or _not_in_force(record)


def _not_in_force(record: Record) -> bool:
    outcome = record.outcome
    return isinstance(outcome, Failure) and outcome.cause is Cause.LIVE_K_NOT_IN_FORCE


def _weight(spec: StudySpec, launch: Launch) -> float:
    """Relative measuring time of a launch; K = 0 of a live launch costs as much as any K."""
    return STAGE_WEIGHTS.get(launch.stage, 1.0) * len(launch.num_speculative_tokens)


def _listed(ks: Sequence[int]) -> str:
    return ", ".join(str(k) for k in ks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a study will cost from here on."""

    launches: tuple[Launch, ...]
    boot_s: float
    measure_s: float

    @property
    def total_s(self) -> float:
        """Seconds of wall clock, starts included."""
        return self.boot_s + self.measure_s


def estimate(spec: StudySpec, records: Sequence[Record], pass_s: float) -> Estimate:
    """The launches ahead and their time, from the mean seconds of one pass."""
    launches = tuple(pending(spec, records))
    levels = len(spec.workload.levels)
    passes = sum(len(x.num_speculative_tokens) * x.max_blocks * levels for x in launches)
    return Estimate(
        launches=launches,
        boot_s=len(launches) * (boot_estimate(records) + WARM_UP_S),
        measure_s=passes * pass_s,
    )
