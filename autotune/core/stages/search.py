"""The search of one candidate: screen, then refine, in one launch where its K can change live.

Rules: a live launch screens with coarse K at the primary level and, unless the candidate is beaten
there, goes on to the rest by itself (core/stages/asking.py); another launch is made only for what
that one did not come to: cut short, a K above its K_max, a level or a K that was added, rivals that
changed the picture. Where K cannot change, each K is a launch.
"""

from collections.abc import Callable, Iterator, Sequence

from autotune.core.comparison import Comparer
from autotune.core.memory_bounds import in_force
from autotune.core.space import variants_in, with_variants
from autotune.core.stages.making import listed, make_launch
from autotune.core.stages.points import ends_candidate, live_possible, of_search
from autotune.core.stages.ranges import between, coarse, doubled
from autotune.core.stages.survey import Survey, compared
from autotune.core.study import Candidate, StudySpec
from autotune.core.trial import Launch, Record, Stage
from autotune.core.wording import level_words, listed_words

JUDGED = 2
"""Variants of a candidate that must have been tried before it is dropped."""
Propose = Callable[[StudySpec, Sequence[Record], Candidate], Candidate | None]
"""Study, records and a candidate to another one that is to be tried beside it, with a name of its
own; None: no more. The same records give the same candidate."""


def no_more(spec: StudySpec, records: Sequence[Record], candidate: Candidate) -> Candidate | None:
    """The candidates of the file are all there are."""


def launches(
    spec: StudySpec, records: Sequence[Record], propose: Propose = no_more
) -> Iterator[Launch]:
    """All screenings that are left, what is cheapest to draft with first; then what is left to
    refine, the most promising candidate first, and what is proposed besides.

    The cheap ones take the least time and most often pay: every later candidate has a real rival
    then, which ends a hopeless one earlier, and a budget that runs out has seen the likeliest.
    """
    searched = of_search(in_force(spec, records))
    concrete = with_variants(spec, records)
    found = compared(concrete, searched)
    surveys = [
        _survey(concrete, searched, found, candidate)
        for candidate in sorted(concrete.candidates, key=lambda c: c.row.drafting_rank)
        if not any(ends_candidate(r, candidate.name) for r in searched)
    ]
    screens = [x for one in surveys if not one.screened for x in _of_candidate(one, records)]
    yield from screens
    for one in sorted((s for s in surveys if s.screened), key=_promise):
        yield from _of_candidate(one, records)
    for candidate in spec.candidates if not screens else ():
        if _dropped(spec, searched, surveys, candidate):
            continue
        if (new := propose(spec, records, candidate)) is not None:
            whole = with_variants(spec, records, new)
            one = _survey(whole, searched, compared(whole, searched), new)
            yield from _of_candidate(one, records)


def _dropped(
    spec: StudySpec, searched: Sequence[Record], surveys: Sequence[Survey], candidate: Candidate
) -> bool:
    """Whether the variants so far say that no other one is worth a launch.

    One alone does not speak for a range.
    """
    known = variants_in(spec, searched, candidate) if candidate.space else ()
    hopeful = [s for s in surveys if s.candidate.family == candidate.name and not s.beaten]
    return len(known) >= JUDGED and not hopeful


def _survey(
    spec: StudySpec, searched: Sequence[Record], found: Comparer, candidate: Candidate
) -> Survey:
    live = live_possible(spec, searched, candidate)
    return Survey(spec=spec, candidate=candidate, records=searched, found=found, live=live)


def _promise(one: Survey) -> float:
    """Least first: the best mean over plain decoding, of the levels known."""
    mean = one.best_mean
    return -mean if mean is not None else 0.0


def _of_candidate(one: Survey, records: Sequence[Record]) -> Iterator[Launch]:
    missing = sorted({k for ks in one.lacking().values() for k in ks})
    if not missing or one.beaten:
        return
    stage = Stage.REFINE if one.screened else Stage.SCREEN
    if one.live:
        ks = _live_ks(one, missing)
        why = _why(one, missing)
        yield make_launch(one.spec, records, stage, one.candidate, (0, *ks), why=why, live=True)
        return
    for k in missing:
        why = f"{_why(one, [k])}; one launch per K"
        yield make_launch(one.spec, records, stage, one.candidate, (k,), why=why)


def _live_ks(one: Survey, missing: Sequence[int]) -> set[int]:
    """The K that the launch may come to: the missing ones, the best to compare them with, and what
    lies around them."""
    leader = one.leader
    known = set() if leader is None else {leader}
    near = {k for x in (*known, *missing) for k in between(one.universe, one.asked, x)}
    new = {k for k in near if not one.done(k, one.primary)}
    further = one.universe[len(one.ks) :] if one.ahead else ()
    return {*missing, *known, *new, *further} - one.given_up


def _why(one: Survey, missing: Sequence[int]) -> str:
    name, best = one.candidate.name, one.leader
    if not one.screened:
        first = [k for k in coarse(one.ks) if k in missing or one.live]
        told = f"screens {name} at {level_words(one.primary)} with K = {listed(first)}"
        return f"{told}{_goes_on(one)}"
    parts = []
    further = [k for k in missing if k in one.ahead]
    if further:
        ends = [k for k in doubled(one.candidate, one.ks) if k >= further[0]]
        parts.append(
            f"the curve still rises at K = {best}, the largest tried: K = {listed(ends[:1])}"
            + (f", and up to {ends[-1]} while it rises" if len(ends) > 1 else "")
        )
    for level in one.spec.workload.levels:
        ks = [k for k in one.lacking()[level.concurrency] if k in missing and k not in further]
        if ks:
            parts.append(f"K = {listed(ks)} at {level_words(level)}")
    around = f" around its best, {best}" if best and not further else ""
    return f"refines {name}{around}: {'; '.join(parts)}"


def _goes_on(one: Survey) -> str:
    """What the screening goes on to in the same launch."""
    others = [level_words(lv) for lv in one.spec.workload.levels if lv != one.primary]
    finer = ["the K around the best"] if one.live and set(coarse(one.ks)) < set(one.ks) else []
    then = [*finer, *others]
    return f"; unless it is beaten there, then {listed_words(then)}" if then else ""
