"""The cost model's measurements: steps of every candidate and level, out of the records.

What checking a drafted token costs comes from candidates whose slope is checking alone, a lookup or
a parallel drafter; without one, from what plain decoding pays for a sequence more (one drafted
token for each of c requests makes c tokens more in a step, as c requests more would). Live K = 0 is
no measure of the draft: vLLM then runs the draft's forward, to keep its cache, without its head and
its sampling (vllm/v1/spec_decode/llm_base_proposer.py, 0.32), which are most of a small draft. It
tells what speculation costs a step that drafts nothing.

Rules: the records of the search only, so that all K ran the same prompts; fair comparisons and
valid passes only; a step time needs `MIN_PASSES`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from autotune.core.arms import Arm, arms
from autotune.core.cost import Cost, Step, StepCost, fit_line
from autotune.core.methods import FIXED_BLOCK_SETTINGS, Drafting
from autotune.core.noise import Noise
from autotune.core.parity import fair
from autotune.core.study import Candidate, StudySpec
from autotune.core.trial import BASELINE, Pass, Record

MIN_PASSES = 2
"""Fewer are one moment of the machine."""

Costs = Mapping[int, Mapping[str, StepCost]]
"""Concurrency to candidate to what its steps cost."""


def step_costs(spec: StudySpec, records: Sequence[Record], noise: Noise) -> Costs:
    """What the steps of every candidate cost at every level.

    A level is missing where plain decoding has no step times: an open loop, replies too short, an
    engine that merges its chunks.
    """
    found = arms(fair(spec, [r for r in records if r.trial.stage.prompts == "search"]))
    closed = [lv.concurrency for lv in spec.workload.levels if lv.request_rate is None]
    levels = {c: _Level(found=found, concurrency=c, noise=noise) for c in closed}
    plain = {c: step for c, level in levels.items() if (step := level.step(BASELINE, 0))}
    result: dict[int, dict[str, StepCost]] = {}
    for c, step in plain.items():
        known = [cost for x in spec.candidates if (cost := levels[c].cost(x, step))]
        check = check_of(known) or check_of_levels(plain, c)
        result[c] = {cost.candidate: _checked(cost, check) for cost in known}
    return result


def drafting_of(candidate: Candidate) -> Drafting:
    """How its tokens come about: by its method, unless a setting makes them one block."""
    if any(candidate.settings.get(name) for name in FIXED_BLOCK_SETTINGS):
        return Drafting.PARALLEL
    return candidate.row.drafting


def pooled(passes: Sequence[Pass], sd: float, *, apart: bool) -> Step | None:
    """The steps of passes at one K; `sd` is how much the speed of equal passes differs, a share.

    None below `MIN_PASSES`, or where a pass has no step times. `apart`: steps that carry another
    request's prefill are told apart in all passes that this one is compared with.
    """
    known = [p.steps for p in passes if p.steps is not None and p.request_rate is None]
    if len(known) < max(len(passes), MIN_PASSES):
        return None
    whole = fmean(s.step_s for s in known)
    seconds = fmean(s.decode_step_s for s in known) if apart else whole
    steps, k = sum(s.steps for s in known), passes[0].num_speculative_tokens
    return Step(
        num_speculative_tokens=k,
        seconds=seconds,
        error_s=seconds * sd / math.sqrt(len(known)),
        carried_s=whole - seconds,
        tokens=sum(s.tokens for s in known) / steps,
        drafted=_drafted(passes, steps, k),
    )


def check_of(costs: Sequence[StepCost]) -> Cost | None:
    """Checking from the slopes that are nothing else, the better known ones counting more."""
    pure = [(x.candidate, x.line.slope) for x in costs if x.line and not x.drafts_in_slope]
    if not pure:
        return None
    weights = [1 / slope.error_s**2 for _, slope in pure]
    mean = sum(w * slope.seconds for w, (_, slope) in zip(weights, pure, strict=True))
    return Cost(
        seconds=max(mean / sum(weights), 0.0),
        error_s=1 / math.sqrt(sum(weights)),
        source=f"checking as in the steps of {' and '.join(name for name, _ in pure)}",
    )


def check_of_levels(plain: Mapping[int, Step], concurrency: int) -> Cost | None:
    """Checking from plain decoding here and at the next level, the one below for the highest."""
    others = [c for c in plain if c != concurrency]
    if not others:
        return None
    other = min(others, key=lambda c: (c < concurrency, abs(c - concurrency)))
    scale = concurrency / (other - concurrency)
    seconds = (plain[other].seconds - plain[concurrency].seconds) * scale
    return Cost(
        seconds=max(seconds, 0.0),
        error_s=math.hypot(plain[other].error_s, plain[concurrency].error_s) * abs(scale),
        source=f"checking as plain decoding at concurrency {concurrency} and {other} has it",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Level:
    """All arms at one concurrency."""

    found: Mapping[tuple[str, int], Arm]
    concurrency: int
    noise: Noise

    def step(self, name: str, k: int) -> Step | None:
        """The steps of one point."""
        sd = self.noise.of_passes(self.concurrency, speculating=k > 0).sd
        return pooled(self._passes(name, k), sd, apart=self._apart)

    def cost(self, candidate: Candidate, plain: Step) -> StepCost | None:
        """What the steps of a candidate cost, checking not yet told apart."""
        name = candidate.name
        by_k = {k: self.step(name, k) for k in sorted(k for n, k in self.found if n == name)}
        steps = [step for k, step in by_k.items() if k > 0 and step is not None]
        if not steps:
            return None
        standby, steps = by_k.get(0), self._with_launches(name, steps)
        launches = len(self._launches(name)), len(self._launches(BASELINE))
        between = self.noise.launch.sd * math.sqrt(sum(1 / n for n in launches))
        return StepCost(
            candidate=name,
            drafting=drafting_of(candidate),
            concurrency=self.concurrency,
            plain=plain,
            steps=tuple(steps),
            first_token=self._first_token,
            between_s=between * plain.seconds,
            standby_s=standby.seconds - plain.seconds if standby else None,
            line=fit_line(steps),
        )

    @property
    def _apart(self) -> bool:
        """Whether every pass tells steps with a prefill apart: parts of one sum share a basis."""
        passes = [p for name, k in self.found for p in self._passes(name, k)]
        return all(p.steps.decode_step_s > 0 for p in passes if p.steps)

    @property
    def _first_token(self) -> float:
        """The share of plain replies' time that goes by before their first token."""
        passes = [(p.steps, p) for p in self._passes(BASELINE, 0) if p.steps]
        whole = sum(steps.seconds_of(p.output_tokens / p.requests) for steps, p in passes)
        return sum(steps.first_token_s for steps, _ in passes) / whole

    def _passes(self, name: str, k: int) -> list[Pass]:
        arm = self.found.get((name, k))
        blocks = arm.passes(self.concurrency).values() if arm else ()
        return [p for block in blocks for p in block]

    def _launches(self, name: str) -> set[str]:
        mine = [arm for (other, _), arm in self.found.items() if other == name]
        return {launch for arm in mine for launch in arm.launch_ids}

    def _with_launches(self, name: str, steps: Sequence[Step]) -> list[Step]:
        """Steps whose K had a launch each differ by what launches differ by."""
        ran = [self.found[name, step.num_speculative_tokens].launch_ids for step in steps]
        if frozenset.intersection(*ran):
            return list(steps)
        sd = self.noise.launch.sd
        return [replace(s, error_s=math.hypot(s.error_s, sd * s.seconds)) for s in steps]


def _checked(cost: StepCost, check: Cost | None) -> StepCost:
    """With the cost of checking, which is not more than a drafted token costs in all."""
    if check is None or cost.line is None or not cost.drafts_in_slope:
        return replace(cost, check=check)
    most = max(cost.line.slope.seconds, 0.0)
    return replace(cost, check=replace(check, seconds=min(check.seconds, most)))


def _drafted(passes: Sequence[Pass], steps: int, k: int) -> float:
    counted = [p.spec.draft_tokens for p in passes if p.spec is not None]
    return min(sum(counted) / steps, float(k)) if len(counted) == len(passes) else float(k)
