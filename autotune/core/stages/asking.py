"""What a launch measures next, while its server is up.

Rules: what is lacking comes first, beside the best K known, so that both run the same prompts at
the same time; then everything that may be the answer gets more blocks. A launch of one K asks for
that K at every level, the primary one first. Without a baseline nothing can be judged: then all is
measured.
"""

from autotune.core.comparison import PLAIN
from autotune.core.stages.ranges import coarse
from autotune.core.stages.survey import Survey
from autotune.core.stopping import Contest
from autotune.core.trial import Launch

Asked = dict[int, tuple[int, ...]]
"""The K to measure, by concurrency; the drift reference K = 0 is not among them."""


def asked(found: Survey, launch: Launch, first: Asked | None = None) -> Asked:
    """The K that a launch of the search measures next; `first` is what it was made for."""
    if PLAIN not in found.found.found:
        return everything(found, launch)
    if not launch.live:
        return _of_one(found, launch)
    mine = {k for k in launch.num_speculative_tokens if k > 0}
    lacking = {c: mine.intersection(ks) for c, ks in found.lacking().items()}
    for level in found.spec.workload.levels if first else ():
        ks = (first or {}).get(level.concurrency, ())
        lacking[level.concurrency] |= {k for k in ks if not found.done(k, level)}
    if any(lacking.values()):
        anchor = mine.intersection({found.leader or 0}) if found.screened else set()
        return {c: tuple(sorted(ks | anchor)) if ks else () for c, ks in lacking.items()}
    return {
        lv.concurrency: tuple(k for k in found.grid(lv) if k in mine)
        for lv in found.spec.workload.levels
    }


def everything(found: Survey, launch: Launch) -> Asked:
    """Every K of a launch at every level."""
    ks = tuple(k for k in launch.num_speculative_tokens if k > 0)
    return {lv.concurrency: ks for lv in found.spec.workload.levels}


def purpose(
    found: Survey, launch: Launch, first: Asked, *, screening: bool
) -> set[tuple[int, int]]:
    """(concurrency, K) that a launch was made for, `first` being what it asked for at its start.

    A screening is made for the coarse K at every level: at the primary one alone nothing can be
    recommended. What the launch finds worth a look besides is none of it.
    """
    if not launch.live:
        return {(lv.concurrency, launch.k_max) for lv in found.spec.workload.levels}
    mine = {(c, k) for c, ks in first.items() for k in ks}
    if screening:
        ks = [k for k in coarse(found.ks) if k in launch.num_speculative_tokens]
        mine |= {(lv.concurrency, k) for lv in found.spec.workload.levels for k in ks}
    if not found.screened:
        return mine
    grid = {lv.concurrency: found.grid(lv) for lv in found.spec.workload.levels}
    return {(c, k) for c, k in mine if k in grid[c]}


def _of_one(found: Survey, launch: Launch) -> Asked:
    k = launch.k_max
    if not found.done(k, found.primary):
        return {found.primary.concurrency: (k,)}
    levels = found.spec.workload.levels
    missing = [lv for lv in levels if not found.done(k, lv)]
    return {lv.concurrency: (k,) for lv in missing or levels}


def contest(found: Survey, launch: Launch) -> Contest | None:
    """What decides whether a launch may still give the answer; None before that can be told."""
    if launch.live:
        return found.contest()
    k, levels = launch.k_max, found.spec.workload.levels
    if not found.done(k, found.primary):
        return None
    known = levels if all(found.done(k, lv) for lv in levels) else (found.primary,)
    if not found.may_end_at(known):
        return None
    return Contest(name=launch.name, ks=(k,), levels=known, rival=found.rival(known))
