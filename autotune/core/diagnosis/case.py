"""What a diagnosis may look at: one candidate with its curves, steps, counters, failures, replies.

Rules: only fair comparisons and valid passes are in here; what was not measured is missing, never
0; what was launched as it would be deployed goes before what the search saw.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log

from autotune.core.acceptance import AcceptanceProfile, SpecCounters
from autotune.core.cost import StepCost
from autotune.core.cost_records import Costs, drafting_of, step_costs
from autotune.core.methods import Drafting
from autotune.core.parity import fair
from autotune.core.recommendation import Recommendation
from autotune.core.replychecks import ReplyChecks
from autotune.core.speedup import Point, SpeedupCurve
from autotune.core.study import Candidate, StudySpec
from autotune.core.trial import BASELINE, Failure, Pass, Record
from autotune.core.workload import Level


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What was drafted at one K, all levels and launches together."""

    spec: SpecCounters
    steps: int
    """Steps of requests, those without a draft included; 0 where they are not known."""

    @property
    def profile(self) -> AcceptanceProfile | None:
        """The acceptance; None below the drafts that it takes to say anything."""
        profile = self.spec.profile
        return profile if profile is not None and profile.sufficient else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One candidate."""

    spec: StudySpec
    candidate: Candidate
    search: Mapping[int | None, SpeedupCurve]
    """By concurrency; None is the overall curve."""
    confirmation: Mapping[int | None, SpeedupCurve]
    costs: Mapping[int, StepCost]
    """By concurrency."""
    counted: Mapping[int, Counted]
    """By K, rising."""
    passes: Mapping[int, Sequence[Pass]]
    """The valid passes at K > 0, by concurrency; with the most memory that it was given."""
    plain: Mapping[int, Sequence[Pass]]
    """Those of plain decoding."""
    failures: tuple[tuple[Record, Failure], ...]
    checks: ReplyChecks

    @property
    def name(self) -> str:
        """The candidate's name."""
        return self.candidate.name

    @property
    def drafting(self) -> Drafting:
        """How its tokens come about."""
        return drafting_of(self.candidate)

    @property
    def need(self) -> float:
        """The speedup above which it gains."""
        return 1 + self.spec.objective.min_gain

    @property
    def measured(self) -> bool:
        """Whether anything of it was measured beside the baseline."""
        return bool(self.search or self.confirmation)

    def point(self, concurrency: int | None) -> Point | None:
        """Its best point at a level, or overall: as confirmed, else at the knee of the search."""
        for found in (self.confirmation, self.search):
            if concurrency in found:
                curve = found[concurrency]
                return curve.at(curve.knee.num_speculative_tokens)
        return None

    def gains(self, concurrency: int | None) -> bool:
        """Whether it is shown to gain at a level, or overall."""
        point = self.point(concurrency)
        return point is not None and point.speedup.low > self.need

    @property
    def gains_somewhere(self) -> bool:
        """Whether it is shown to gain at any level."""
        return any(self.gains(level.concurrency) for level in self.spec.workload.levels)

    def overall(self, speedup: Callable[[StepCost, int], float]) -> tuple[int, float] | None:
        """The best measured K and the weighted speedup of its replies over the levels, decoding at
        each being so much faster.

        None where a level has no steps.
        """
        levels = self.spec.workload.levels
        if any(lv.concurrency not in self.costs for lv in levels):
            return None
        total = sum(lv.weight for lv in levels)
        shared = set.intersection(*(set(self.costs[lv.concurrency].ks) for lv in levels))
        found = {k: sum(self._log(lv, speedup, k) for lv in levels) / total for k in shared}
        best = max(found, key=lambda k: (found[k], -k), default=None)
        return None if best is None else (best, exp(found[best]))

    def _log(self, level: Level, speedup: Callable[[StepCost, int], float], k: int) -> float:
        cost = self.costs[level.concurrency]
        return level.weight * log(cost.of_reply(speedup(cost, k)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cases:
    """A whole study."""

    spec: StudySpec
    cases: tuple[Case, ...]
    costs: Costs
    plain: Mapping[int, Sequence[Pass]] = field(default_factory=dict)
    """The valid passes of plain decoding, by concurrency."""

    def of(self, name: str) -> Case:
        """The case of that candidate."""
        return next(case for case in self.cases if case.name == name)


def cases(
    spec: StudySpec, records: Sequence[Record], result: Recommendation, checks: ReplyChecks
) -> Cases:
    """Every candidate of a study, in the order of the file."""
    judged = fair(spec, records)
    costs = step_costs(spec, records, result.noise)
    plain = _passes(spec, [r for r in judged if r.trial.candidate == BASELINE])
    found = tuple(
        Case(
            spec=spec,
            candidate=candidate,
            search=_curves(result.search, candidate.name),
            confirmation=_curves(result.confirmation, candidate.name),
            costs={
                c: known[candidate.name] for c, known in costs.items() if candidate.name in known
            },
            counted=_counted([r for r in judged if r.trial.candidate == candidate.name]),
            passes=_passes(spec, _roomiest([r for r in judged if _drafts(r, candidate.name)])),
            plain=plain,
            failures=tuple(
                (r, f) for r, f in result.failures if r.trial.candidate == candidate.name
            ),
            checks=checks,
        )
        for candidate in spec.candidates
    )
    return Cases(spec=spec, cases=found, costs=costs, plain=plain)


def _drafts(record: Record, name: str) -> bool:
    return record.trial.candidate == name and record.trial.num_speculative_tokens > 0


def _roomiest(records: Sequence[Record]) -> list[Record]:
    """Those at the highest gpu_memory_utilization: where less was tried, less is no wonder."""
    most = max((r.trial.gpu_memory_utilization for r in records), default=0.0)
    return [r for r in records if r.trial.gpu_memory_utilization == most]


def _curves(found: Sequence[SpeedupCurve], name: str) -> dict[int | None, SpeedupCurve]:
    return {curve.concurrency: curve for curve in found if curve.candidate == name}


def _passes(spec: StudySpec, records: Sequence[Record]) -> dict[int, list[Pass]]:
    levels = [level.concurrency for level in spec.workload.levels]
    by_level = {c: [p for r in records for p in _valid(r) if p.concurrency == c] for c in levels}
    return {c: passes for c, passes in by_level.items() if passes}


def _valid(record: Record) -> Iterator[Pass]:
    for p in record.measurement.passes if record.measurement else ():
        if not p.invalid:
            yield p


def _counted(records: Sequence[Record]) -> dict[int, Counted]:
    """Passes without counters are left out, with their steps; K = 0 drafts nothing."""
    groups: dict[int, list[Pass]] = defaultdict(list)
    for record in records:
        for p in _valid(record):
            if p.num_speculative_tokens > 0 and p.spec is not None:
                groups[p.num_speculative_tokens].append(p)
    return {
        k: Counted(
            spec=_cut(sum((p.spec for p in passes if p.spec), SpecCounters()), k),
            steps=sum(p.steps.steps for p in passes if p.steps)
            if all(p.steps for p in passes)
            else 0,
        )
        for k, passes in sorted(groups.items())
    }


def _cut(counters: SpecCounters, k: int) -> SpecCounters:
    """Without the positions beyond K, which a live launch counts for its largest K."""
    return SpecCounters(
        drafts=counters.drafts,
        draft_tokens=counters.draft_tokens,
        accepted_tokens=counters.accepted_tokens,
        accepted_per_pos=counters.accepted_per_pos[:k],
    )
