"""The last stage: the finalists launched cold, each exactly as it would be deployed.

Rules: static K, the stock scheduler, the exported file, prompts that the search has not seen; in
each round a fresh baseline first, A B A B; some rounds more while the baselines are further apart
than equal launches are, or while the answer is open; who is confirmed is decided in
core/finalists.py, whether the best of them is launched with a schedule, too, in
core/schedule_offer.py.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from autotune.core.drift import restless
from autotune.core.finalists import Entrant, confirmed, hopeless, panels
from autotune.core.memory_bounds import at_utilization, in_force
from autotune.core.schedule import k_max, schedule_words, scheduled
from autotune.core.schedule_offer import proposed
from autotune.core.stages.making import make_launch
from autotune.core.stages.points import (
    enough,
    given_up,
    of_confirmation,
    of_point,
    of_schedule,
)
from autotune.core.study import Candidate, StudySpec
from autotune.core.trial import BASELINE, Launch, Record, Stage
from autotune.core.verdict import Verdict, judge

MORE_ROUNDS = 2
"""Rounds that a confirmation gets at most beyond those asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """Who is launched in each round."""

    candidate: Candidate | None
    k: int
    why: str
    stage: Stage = Stage.CONFIRM
    beside: str = ""
    """The candidate without which it is not launched: what it is compared with."""

    @property
    def name(self) -> str:
        """As its records have it."""
        return self.candidate.name if self.candidate else BASELINE


def launches(spec: StudySpec, records: Sequence[Record], *, searching: bool) -> Iterator[Launch]:
    """Baseline and finalists in turn; while the search goes on, as far as can be foreseen."""
    groups = panels(spec, records)
    if not groups or hopeless(spec, groups[0][0].finalist):
        if searching:
            first = spec.candidates[0]
            why = "the winner exactly as it would be deployed"
            winner = Arm(candidate=first, k=spec.ks(first)[0], why=why)
            share = spec.search.gpu_memory_utilization[-1]
            rounds = range(spec.search.confirm_rounds)
            yield from _rounds_of(spec, records, _arms([winner]), rounds, share)
        return
    for number, panel in enumerate(groups):
        first_round = number * (spec.search.confirm_rounds + MORE_ROUNDS)
        told = [_told(spec, entrant) for entrant in panel]
        share = panel[0].finalist.gpu_memory_utilization
        undecided = panel is groups[-1] and _undecided(spec, records, panel)
        here = at_utilization(records, share)
        last = first_round + _rounds(spec, here, first_round, undecided=undecided)
        arms = [*_arms(told), *_with_schedule(spec, records, panel[0])]
        yield from _rounds_of(spec, records, arms, range(first_round, last), share)


def _arms(mine: Sequence[Arm]) -> list[Arm]:
    beside = "the winner" if len(mine) == 1 else "the finalists"
    why = f"a fresh baseline beside {beside}, on prompts the search has not seen"
    return [Arm(candidate=None, k=0, why=why), *mine]


def _told(spec: StudySpec, entrant: Entrant) -> Arm:
    finalist = entrant.finalist
    candidate, k = spec.candidate(finalist.candidate), finalist.num_speculative_tokens
    memory = ""
    if len(spec.search.gpu_memory_utilization) > 1:
        memory = f" and gpu_memory_utilization {finalist.gpu_memory_utilization:g}"
    why = f"{candidate.name} at K = {k}{memory} exactly as it would be deployed"
    return Arm(candidate=candidate, k=k, why=f"{why}: {entrant.why}" if entrant.why else why)


def _with_schedule(spec: StudySpec, records: Sequence[Record], entrant: Entrant) -> Iterator[Arm]:
    """The first of a panel with a schedule of K per batch size, if one is worth a launch."""
    finalist = entrant.finalist
    ranges = proposed(spec, records, finalist)
    if isinstance(ranges, str):
        return
    name = finalist.candidate
    yield Arm(
        candidate=scheduled(spec.candidate(name), ranges),
        k=k_max(ranges),
        why=f"{name} with a schedule per batch size beside its static K: {schedule_words(ranges)}",
        stage=Stage.SCHEDULE,
        beside=name,
    )


def _rounds_of(
    spec: StudySpec,
    records: Sequence[Record],
    arms: Sequence[Arm],
    rounds: range,
    share: float,
) -> Iterator[Launch]:
    # A schedule runs where its static K does: no other utilization answers its failures.
    cold = of_confirmation(in_force(spec, records)) + of_schedule(records)
    finalists = {arm.name for arm in arms if arm.candidate and not arm.beside}
    lost: set[str] = set()
    for repeat in rounds:
        for arm in arms:
            mine = of_point(cold, arm.name, arm.k)
            same = [r for r in at_utilization(mine, share) if r.trial.repeat == repeat]
            whole = all(enough(spec, same, lv) for lv in spec.workload.levels)
            if whole or lost & {arm.name, arm.beside}:
                continue
            if given_up(spec, mine):
                lost.add(arm.name)
                if arm.name == BASELINE or finalists <= lost:
                    return
                continue
            launch = make_launch(spec, records, arm.stage, arm.candidate, (arm.k,), why=arm.why)
            yield replace(launch, repeat=repeat, gpu_memory_utilization=share)


def _undecided(spec: StudySpec, records: Sequence[Record], panel: Sequence[Entrant]) -> bool:
    """Whether the best of a panel neither gains nor loses for sure."""
    proved = confirmed(spec, records, [entrant.finalist for entrant in panel]).values()
    best = max(proved, key=lambda interval: interval.mean, default=None)
    return best is not None and judge(spec, best)[0] is Verdict.INCONCLUSIVE


def _rounds(spec: StudySpec, records: Sequence[Record], first: int, *, undecided: bool) -> int:
    """Rounds of one panel: some more while its baselines are further apart than equal, or while
    the answer is open."""
    asked = spec.search.confirm_rounds
    mine = [
        r for r in of_confirmation(records) if first <= r.trial.repeat < first + asked + MORE_ROUNDS
    ]
    done = len({r.trial.repeat for r in mine if r.measurement})
    again = done >= asked and (undecided or restless(mine))
    return min(max(done, asked) + 1, asked + MORE_ROUNDS) if again else max(done, asked)
