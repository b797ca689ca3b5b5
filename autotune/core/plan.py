"""What to launch next, as a pure function of what has been measured.

Rules: the same records give the same launch, so resuming is calling again; every launch carries a
sentence why; what was measured enough is never measured again; a failure that is not transient is
never tried again; no point is launched for ever. A budget is shared by what is ahead, and what the
confirmation needs of it is kept back as soon as there is a gain to confirm.

The order is baseline, search (screen and refine), confirm; what each of them wants is said in
core/stages/.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from autotune.core.estimate import WARM_UP_S, boot_s, pass_s, passes_of
from autotune.core.finalists import finalists
from autotune.core.memory_bounds import in_force
from autotune.core.space import with_variants
from autotune.core.stages import baseline, confirm, search
from autotune.core.stages.search import Propose, no_more
from autotune.core.study import StudySpec
from autotune.core.trial import Failure, Launch, Record, Stage
from autotune.core.workload import MIN_BLOCKS


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
    starts = [_start_s(records, launch) for launch in ahead]
    if not ahead or remaining_s < starts[0]:
        return None
    weights = [weight(spec, records, launch) for launch in ahead]
    share = weights[0] / sum(weights)
    return replace(
        ahead[0],
        measure_s=max((remaining_s - sum(starts)) * share, 1.0),
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
    """Without what there is no time for: schedules first, which are an addition to the answer; then
    the search, if its next launch would leave too little to confirm the best known."""

    def needed(launches: Sequence[Launch]) -> float:
        return sum(_start_s(records, launch) + least for launch in launches)

    # Two blocks are what any comparison needs.
    least = MIN_BLOCKS * len(spec.workload.levels) * pass_s(records)
    if needed(ahead) > remaining_s:
        ahead = [launch for launch in ahead if launch.stage is not Stage.SCHEDULE]
    if not ahead:
        return []
    final = [launch for launch in ahead if launch.stage.prompts == "confirmation"]
    if ahead[0].stage is Stage.BASELINE or ahead[0] in final:
        return list(ahead)
    ranked = finalists(spec, records)
    # To prove a gain that nobody expects is worth less than to see the others.
    if not ranked or ranked[0].speedup.mean <= 1 + spec.objective.min_gain:
        return list(ahead)
    if any(r.trial.stage is Stage.CONFIRM for r in records) and final:
        # What was begun is brought to its end; a search in between would leave it without.
        return [*final, *(launch for launch in ahead if launch not in final)]
    return list(ahead) if needed([ahead[0], *final]) <= remaining_s else final


def _start_s(records: Sequence[Record], launch: Launch) -> float:
    return boot_s(records, launch) + WARM_UP_S


STAGE_WEIGHTS = {Stage.BASELINE: 4.0, Stage.CONFIRM: 1.5, Stage.SCHEDULE: 1.5}
"""What a pass of a stage may cost, relative to one of the search: the blocks of the baseline are
what every other launch is paired with."""


def weight(spec: StudySpec, records: Sequence[Record], launch: Launch) -> float:
    """Share of the measuring time that a launch gets, relative to the others."""
    return STAGE_WEIGHTS.get(launch.stage, 1.0) * passes_of(spec, records, launch)
