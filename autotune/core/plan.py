"""What to launch next, as a pure function of what has been measured.

Rules: the same records give the same launch, so resuming is calling again; every launch carries a
sentence why; what was measured enough is never measured again; a failure that is not transient is
never tried again; no point is launched for ever. A budget is shared by what is ahead, and what the
confirmation needs of it is kept back as soon as there is a gain to confirm.

The order is baseline, search (screen and refine), confirm; what each of them wants is said in
core/stages/.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from autotune.core.estimate import WARM_UP_S, boot_s, pass_s, passes_of
from autotune.core.evidence import Finalist
from autotune.core.finalists import finalists, key_of
from autotune.core.memory_bounds import in_force
from autotune.core.space import with_variants
from autotune.core.stages import baseline, confirm, search
from autotune.core.stages.ranges import coarse
from autotune.core.stages.search import Propose, no_more
from autotune.core.study import StudySpec
from autotune.core.trial import BASELINE, Failure, Launch, Record, Stage
from autotune.core.workload import MIN_BLOCKS

PROOF_ROUNDS = 2
"""Rounds of a confirmation that are a proof: A B A B."""


def next_launch(
    spec: StudySpec,
    records: Sequence[Record],
    remaining_s: float | None = None,
    propose: Propose = no_more,
) -> Launch | None:
    """The next launch, or None: finished, or no baseline, or no time left for another launch.

    `remaining_s` is what is left of the budget; None means no budget.
    """
    ahead = list(pending(spec, records, propose))
    if remaining_s is None or not ahead:
        return ahead[0] if ahead else None
    ahead = _affordable(with_variants(spec, records), records, ahead, remaining_s)
    if not ahead or remaining_s < _needed_s(spec, records, ahead[0]):
        return None
    starts = [_start_s(records, launch) for launch in ahead]
    weights = [weight(spec, records, launch) for launch in ahead]
    share = weights[0] / sum(weights)
    return replace(
        ahead[0],
        measure_s=max((remaining_s - sum(starts)) * share, 1.0),
        limit_s=_limit_s(spec, records, ahead, remaining_s),
        start_timeout_s=max(remaining_s - WARM_UP_S, 1.0),
    )


def baseline_failed(records: Sequence[Record]) -> Failure | None:
    """The failure that ended the study, if the baseline could not be measured."""
    return baseline.failed(records)


def pending(
    spec: StudySpec, records: Sequence[Record], propose: Propose = no_more
) -> Iterator[Launch]:
    """All launches that are still to be made, as far as they can be foreseen."""
    if baseline_failed(in_force(spec, records)):
        return
    yield from baseline.launches(spec, records)
    searches = list(search.launches(spec, records, propose))
    yield from searches
    concrete = with_variants(spec, records)
    yield from confirm.launches(concrete, records, searching=bool(searches))


def _affordable(
    spec: StudySpec, records: Sequence[Record], ahead: Sequence[Launch], remaining_s: float
) -> list[Launch]:
    """Without what there is no time for, so that it takes no share of what there is: additions to
    the answer first, then the search, as far as it would leave too little to confirm the best
    known."""
    final = [launch for launch in ahead if launch.stage.prompts == "confirmation"]
    others = [launch for launch in ahead if launch not in final]
    # What was begun is brought to its end; a search in between would leave it without.
    begun = bool(final) and any(r.trial.stage is Stage.CONFIRM for r in records)

    def fits(launches: Sequence[Launch], searches: int = 1) -> bool:
        first = () if begun else others[:searches]
        return sum(_least_s(spec, records, x) for x in (*first, *launches)) <= remaining_s

    ranked = finalists(spec, records)
    for additional in (_of_schedule, _of_others(ranked, final), _of_more_rounds(spec)):
        if not fits(final):
            final = [launch for launch in final if not additional(launch)]
    if not others or ahead[0].stage is Stage.BASELINE:
        return [*others, *final]
    if begun:
        return final
    hopeful = _is_hopeful(spec, ranked)
    kept_back = final if hopeful else []
    room = sum(fits(kept_back, number) for number in range(1, len(others) + 1))
    room = room if hopeful else max(room, 1)
    return [*others[:room], *(final if hopeful or fits(final, room) else [])]


def _is_hopeful(spec: StudySpec, ranked: Sequence[Finalist]) -> bool:
    """Whether there is a gain to prove; a proof of none is worth less than to see the others."""
    return bool(ranked) and ranked[0].speedup.mean > 1 + spec.objective.min_gain


def _of_schedule(launch: Launch) -> bool:
    return launch.stage is Stage.SCHEDULE


def _of_others(ranked: Sequence[Finalist], final: Sequence[Launch]) -> Callable[[Launch], bool]:
    """Whether a launch confirms another finalist than the best one, which is still to come."""
    best = key_of(ranked[0]) if ranked else None
    if best not in [(launch.name, launch.k_max) for launch in final]:
        return lambda _: False
    return lambda launch: (launch.name, launch.k_max) not in {(BASELINE, 0), best}


def _of_more_rounds(spec: StudySpec) -> Callable[[Launch], bool]:
    """Whether a launch is of a round beyond A B A B."""
    each = spec.search.confirm_rounds + confirm.MORE_ROUNDS
    return lambda launch: launch.repeat % each >= PROOF_ROUNDS


def _least_s(spec: StudySpec, records: Sequence[Record], launch: Launch) -> float:
    """What a launch must have to be worth its start.

    Two blocks are what any comparison needs, of a screening for every coarse K; a confirmation by
    two alone would prove no gain.
    """
    levels = len(spec.workload.levels)
    if launch.stage.prompts == "confirmation":
        passes = spec.search.min_blocks * levels
    elif launch.live:
        passes = MIN_BLOCKS * (1 + len(coarse(launch.num_speculative_tokens[1:])))
    else:
        passes = MIN_BLOCKS * levels
    return _start_s(records, launch) + passes * pass_s(records)


def _limit_s(
    spec: StudySpec, records: Sequence[Record], ahead: Sequence[Launch], remaining_s: float
) -> float | None:
    """Where a search ends: it may take long to know enough, the confirmation needs the rest."""
    if not ahead[0].stage.searches:
        return None
    hopeful = _is_hopeful(spec, finalists(spec, records))
    final = [x for x in ahead if hopeful and x.stage.prompts == "confirmation"]
    kept_back = sum(_least_s(spec, records, launch) for launch in final)
    return max(remaining_s - _start_s(records, ahead[0]) - kept_back, 1.0)


def _needed_s(spec: StudySpec, records: Sequence[Record], launch: Launch) -> float:
    """Below this a launch is not begun. The baseline and a confirmation make do with what they
    get, a search that cannot even screen tells nothing."""
    if launch.stage.searches:
        return _least_s(spec, records, launch)
    return _start_s(records, launch)


def _start_s(records: Sequence[Record], launch: Launch) -> float:
    return boot_s(records, launch) + WARM_UP_S


STAGE_WEIGHTS = {Stage.BASELINE: 4.0, Stage.CONFIRM: 1.5, Stage.SCHEDULE: 1.5}
"""What a pass of a stage may cost, relative to one of the search: the blocks of the baseline are
what every other launch is paired with."""


def weight(spec: StudySpec, records: Sequence[Record], launch: Launch) -> float:
    """Share of the measuring time that a launch gets, relative to the others."""
    return STAGE_WEIGHTS.get(launch.stage, 1.0) * passes_of(spec, records, launch)
