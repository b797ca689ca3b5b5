"""Whether a schedule of K per batch size is worth a launch, and whether what it did may be offered.

Rules: it is made from measured levels alone, and only where its K is surely better than the static
K of the winner, and by more than the tolerance; it is offered only if the counters show it in force
at every level and it is nowhere worse than the static K launched beside it, and somewhere better.
In doubt the static K stays.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autotune.core.acceptance import SpecCounters
from autotune.core.arms import Arm, arms
from autotune.core.comparison import Comparer, comparer
from autotune.core.evidence import Finalist
from autotune.core.finalists import Key, key_of, search_curves
from autotune.core.latency import pooled_latencies
from autotune.core.memory_bounds import at_utilization
from autotune.core.noise import noise_of
from autotune.core.objective import yardstick
from autotune.core.parity import fair
from autotune.core.schedule import SCHEDULE_DISABLED, Range, k_at, k_max, ranges_for, scheduled
from autotune.core.speedup import SpeedupCurve, broken, violations
from autotune.core.stages.points import live_possible, of_search
from autotune.core.statistics import Interval
from autotune.core.study import Candidate, StudySpec
from autotune.core.trial import Failure, Pass, Record
from autotune.core.validity import TRIM_TOLERANCE
from autotune.core.workload import Level

TAIL = 0.5
"""How much of a pass smaller batches may explain, a share. At four requests per stream the last
reply of each stream is a quarter of the tokens; replies of unequal length stretch that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleLevel:
    """What the schedule did at one concurrency, beside the static K."""

    concurrency: int
    num_speculative_tokens: int
    """The K that the schedule has for it."""
    drafted_share: float | None
    """Share of the decode tokens that came from steps with a draft; None without counters."""
    static_drafted_share: float | None
    draft_length: float | None
    """Drafted tokens per draft; None without a draft."""
    over_static: Interval | None
    """Its speed over that of the static K; None where no block is in common."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleAnswer:
    """A schedule, or why there is none."""

    candidate: Candidate | None = None
    """The winner with the schedule in its settings; None where none was made."""
    ranges: tuple[Range, ...] = ()
    num_speculative_tokens: int = 0
    """The largest K of the ranges, which the server is started with."""
    gpu_memory_utilization: float = 0.0
    levels: tuple[ScheduleLevel, ...] = ()
    """Empty where it was not measured."""
    refused: str = ""
    """Why it is not offered; empty if it is."""

    @property
    def offered(self) -> bool:
        """Whether it is exported."""
        return self.candidate is not None and not self.refused


def proposed(
    spec: StudySpec, records: Sequence[Record], finalist: Finalist
) -> tuple[Range, ...] | str:
    """The ranges worth a launch beside this finalist, or why there are none."""
    candidate, levels = spec.candidate(finalist.candidate), spec.workload.levels
    if any(level.request_rate is not None for level in levels):
        return "batch sizes are not known where requests come at a rate"
    if len(levels) == 1:
        return "one concurrency tells nothing of other batch sizes"
    if not live_possible(spec, records, candidate):
        return f"K of {candidate.name} cannot change while the engine runs"
    static = finalist.num_speculative_tokens
    searched = of_search(records)
    noise = noise_of(searched, levels)
    found = comparer(arms(fair(spec, searched)), levels, noise, yardstick(spec))
    mine = {c.concurrency: c for c in search_curves(spec, records) if c.candidate == candidate.name}
    ks = {lv.concurrency: _k_of(spec, found, mine[lv.concurrency], lv, static) for lv in levels}
    if len(set(ks.values())) == 1:
        gain = f"{spec.objective.tolerance:.0%}"
        return f"no other K is sure to give {gain} more than K = {static} at any concurrency"
    return ranges_for(ks)


def _k_of(spec: StudySpec, found: Comparer, curve: SpeedupCurve, level: Level, static: int) -> int:
    """The knee of a level, 0 where no K reaches plain decoding; the static K unless that is surely
    worse, and by more than the tolerance."""
    at_knee, at_static = curve.at(curve.knee.num_speculative_tokens), curve.at(static)
    if at_knee.speedup.mean < 1.0:
        loses = at_static.speedup.mean * (1 + spec.objective.tolerance) < 1.0
        return 0 if loses and at_static.speedup.high < 1.0 else static
    k, name = at_knee.num_speculative_tokens, curve.candidate
    gain = found.tie((name, k), (name, static), [level])
    if gain is None or violations(spec, at_knee, level.concurrency):
        return static
    ratio = gain.interval()
    return k if ratio.mean > 1 + spec.objective.tolerance and ratio.low > 1.0 else static


def answer_of(spec: StudySpec, records: Sequence[Record], finalist: Finalist) -> ScheduleAnswer:
    """What is known of the schedule of a finalist that has been confirmed."""
    ranges = proposed(spec, records, finalist)
    if isinstance(ranges, str):
        return ScheduleAnswer(refused=ranges)
    candidate = scheduled(spec.candidate(finalist.candidate), ranges)
    found = ScheduleAnswer(
        candidate=candidate,
        ranges=ranges,
        num_speculative_tokens=k_max(ranges),
        gpu_memory_utilization=finalist.gpu_memory_utilization,
    )
    cold = at_utilization(records, finalist.gpu_memory_utilization)
    mine = [r for r in cold if r.trial.candidate == candidate.name]
    if refused := _not_measured(mine):
        return replace(found, refused=refused)
    whole = replace(spec, candidates=(*spec.candidates, candidate))
    fairly = fair(whole, [r for r in cold if r.trial.stage.prompts == "confirmation"])
    noise = noise_of(records, spec.workload.levels)
    known = comparer(arms(fairly), spec.workload.levels, noise, yardstick(spec))
    keys = (candidate.name, k_max(ranges)), key_of(finalist)
    if any(key not in known.found for key in keys):
        return replace(found, refused="the static K was not measured beside it")
    levels = tuple(_level(known, keys, level, ranges) for level in spec.workload.levels)
    refused = _refused(spec, known.found[keys[0]], levels, ranges, fixed=candidate.row.fixed_length)
    return replace(found, levels=levels, refused=refused)


def _not_measured(mine: Sequence[Record]) -> str:
    """Why its launches say nothing of a schedule; empty if they do."""
    if not any(r.measurement for r in mine):
        failures = [r.outcome for r in mine if isinstance(r.outcome, Failure)]
        return f"its launch failed: {failures[-1].detail}" if failures else "it was not launched"
    told = [r.facts.resolved.get(SCHEDULE_DISABLED) for r in mine if r.facts]
    return next((f"the engine switched it off and fell back {text}" for text in told if text), "")


def _refused(
    spec: StudySpec,
    mine: Arm,
    levels: Sequence[ScheduleLevel],
    ranges: tuple[Range, ...],
    *,
    fixed: bool,
) -> str:
    """The first reason that speaks against it; empty without one."""
    reasons = [
        *(_not_in_force(level, ranges, fixed=fixed) for level in levels),
        *(_worse(spec, level) for level in levels),
        *(_broken(spec, mine, level) for level in spec.workload.levels),
        _not_better(spec, levels),
    ]
    return next(filter(None, reasons), "")


def _level(
    known: Comparer,
    keys: tuple[Key, Key],
    level: Level,
    ranges: tuple[Range, ...],
) -> ScheduleLevel:
    c = level.concurrency
    mine, static = (known.found[key] for key in keys)
    estimate = known.estimate(*keys, c)
    shared = mine.passes(c).keys() & static.passes(c).keys()
    ratio = None
    if estimate is not None:
        launches = mine.launches(c, shared), static.launches(c, shared)
        ratio = known.noise.launch.on(estimate, *launches).interval()
    counted = _counters(mine, c)
    return ScheduleLevel(
        concurrency=c,
        num_speculative_tokens=k_at(ranges, c),
        drafted_share=_drafted_share(mine, c),
        static_drafted_share=_drafted_share(static, c),
        draft_length=counted.draft_tokens / counted.drafts if counted and counted.drafts else None,
        over_static=ratio,
    )


def _passes(arm: Arm, concurrency: int) -> list[Pass]:
    return [p for block in arm.passes(concurrency).values() for p in block]


def _counters(arm: Arm, concurrency: int) -> SpecCounters | None:
    counted = [p.spec for p in _passes(arm, concurrency) if p.spec is not None]
    return sum(counted[1:], counted[0]) if counted else None


def _drafted_share(arm: Arm, concurrency: int) -> float | None:
    """Every draft gives what is accepted of it and one token more; those after the end of a reply
    are counted, too, so that the sum may exceed what was decoded."""
    counted = _counters(arm, concurrency)
    decoded = sum(p.output_tokens - p.requests for p in _passes(arm, concurrency))
    if counted is None or decoded <= 0:
        return None
    return min((counted.drafts + counted.accepted_tokens) / decoded, 1.0)


def _not_in_force(level: ScheduleLevel, ranges: tuple[Range, ...], *, fixed: bool) -> str:
    """What contradicts the schedule by more than the smaller batches of a pass explain.

    A lookup drafts less than K, and not at every step: for it K is a bound, and how often it drafts
    is compared with the static K, which finds as much in the same prompts.
    """
    c, k = level.concurrency, level.num_speculative_tokens
    share, static = level.drafted_share, level.static_drafted_share
    where = f"not in force at concurrency {c}, where K = {k} was planned"
    if share is None or static is None:
        return f"not shown to be in force at concurrency {c}: the engine counts no drafts"
    told = f"{share:.0%} of the tokens came from drafts, {static:.0%} at the static K"
    if (k == 0 and share > TAIL * static) or (k > 0 and fixed and share < TAIL * static):
        return f"{where}: {told}"
    if k == 0 or level.draft_length is None:
        return ""
    smaller = [k_at(ranges, batch) for batch in range(1, c + 1)]
    most = k + TAIL * (max(smaller) - k)
    least = min(x for x in smaller if x) * (1 - TRIM_TOLERANCE) if fixed else 0.0
    if least <= level.draft_length <= most:
        return ""
    return f"{where}: {level.draft_length:.2f} tokens per draft were counted"


def _worse(spec: StudySpec, level: ScheduleLevel) -> str:
    ratio, c = level.over_static, level.concurrency
    if ratio is None:
        return f"not measured beside the static K at concurrency {c}"
    if ratio.mean >= 1 - spec.objective.tolerance and ratio.high >= 1.0:
        return ""
    return f"at concurrency {c} it has {ratio.show()} the speed of the static K"


def _broken(spec: StudySpec, mine: Arm, level: Level) -> str:
    c = level.concurrency
    found = broken(spec, pooled_latencies(p.times for p in _passes(mine, c)))
    return f"at concurrency {c}: {found[0]}" if found else ""


def _not_better(spec: StudySpec, levels: Sequence[ScheduleLevel]) -> str:
    ratios = [level.over_static for level in levels if level.over_static]
    bar = 1 + spec.objective.tolerance
    if any(ratio.mean > bar or ratio.low > 1.0 for ratio in ratios):
        return ""
    return "at no concurrency it is faster than the static K beyond the tolerance"
