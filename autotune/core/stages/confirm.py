"""The last stage: the finalists launched cold, each exactly as it would be deployed.

Rules: static K, the stock scheduler, the exported file, prompts that the search has not seen; in
each round a fresh baseline first, A B A B; some rounds more while the baselines are further apart
than equal launches are, or while the answer is open; who is confirmed is decided in
core/finalists.py.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from autotune.core.drift import restless
from autotune.core.finalists import Entrant, confirmed, hopeless, panels
from autotune.core.memory_bounds import at_utilization, in_force
from autotune.core.stages.making import make_launch
from autotune.core.stages.points import enough, given_up, of_confirmation, of_point
from autotune.core.study import Candidate, StudySpec
from autotune.core.trial import BASELINE, Launch, Record, Stage
from autotune.core.verdict import Verdict, judge

MORE_ROUNDS = 2
"""Rounds that a confirmation gets at most beyond those asked for."""
Arm = tuple[Candidate | None, int, str]
"""Who is launched, its K, and why."""


def launches(spec: StudySpec, records: Sequence[Record], *, searching: bool) -> Iterator[Launch]:
    """Baseline and finalists in turn; while the search goes on, as far as can be foreseen."""
    groups = panels(spec, records)
    if not groups or hopeless(spec, groups[0][0].finalist):
        if searching:
            first = spec.candidates[0]
            winner = (first, spec.ks(first)[0], "the winner exactly as it would be deployed")
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
        yield from _rounds_of(spec, records, _arms(told), range(first_round, last), share)


def _arms(mine: Sequence[Arm]) -> list[Arm]:
    beside = "the winner" if len(mine) == 1 else "the finalists"
    why = f"a fresh baseline beside {beside}, on prompts the search has not seen"
    return [(None, 0, why), *mine]


def _told(spec: StudySpec, entrant: Entrant) -> Arm:
    finalist = entrant.finalist
    candidate, k = spec.candidate(finalist.candidate), finalist.num_speculative_tokens
    memory = ""
    if len(spec.search.gpu_memory_utilization) > 1:
        memory = f" and gpu_memory_utilization {finalist.gpu_memory_utilization:g}"
    why = f"{candidate.name} at K = {k}{memory} exactly as it would be deployed"
    return candidate, k, f"{why}: {entrant.why}" if entrant.why else why


def _rounds_of(
    spec: StudySpec,
    records: Sequence[Record],
    arms: Sequence[Arm],
    rounds: range,
    share: float,
) -> Iterator[Launch]:
    cold = of_confirmation(in_force(spec, records))
    lost: set[str] = set()
    for repeat in rounds:
        for candidate, k, why in arms:
            name = candidate.name if candidate else BASELINE
            mine = of_point(cold, name, k)
            same = [r for r in at_utilization(mine, share) if r.trial.repeat == repeat]
            if name in lost or all(enough(spec, same, lv) for lv in spec.workload.levels):
                continue
            if given_up(spec, mine):
                lost.add(name)
                if name == BASELINE or len(lost) == len(arms) - 1:
                    return
                continue
            launch = make_launch(spec, records, Stage.CONFIRM, candidate, (k,), why=why)
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
