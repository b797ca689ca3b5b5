"""Do the intervals hold what they promise? Thousands of pairs of arms on a model without time.

Passes come from the closed loop of loop_model.py; launches, passes, drift are as noisy as recorded
ones were (fitting.py). In an A/A pair both arms are the same, so the true
ratio is 1, and a 95 % interval has to cover it in 95 of 100 pairs; in an A/B pair one arm
speculates, and the true ratio is that of a long run. How well the fit knows the launch effect is
part of the model: its deviation is drawn anew for each pair from what the recordings allow.

Rule: pairs are judged by the code that judges a study, and by nothing else.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from loop_model import Costs, Text, as_pass, draw_texts, run_loop, slowed

from autotune.core.arms import arms
from autotune.core.comparison import Comparer, comparer
from autotune.core.noise import noise_of
from autotune.core.speedup import SpeedupCurve, curves
from autotune.core.statistics import Estimate, Interval, weighted
from autotune.core.stopping import State, settle
from autotune.core.study import Candidate, Objective, Search, StudySpec, Target
from autotune.core.trial import BASELINE, Launch, Measurement, Pass, Record, Stage
from autotune.core.workload import Level, Prompt, Sampling, Workload

LEVELS = (1, 4)
TOKENS = 33
LONG_RUN = 20_000
K_SHOWN = 2
"""The K under which the second arm is recorded; K = 0 has no curve."""
CANDIDATE = Candidate(name="equal", method="draft_model", model="equal")
LIVE = Launch(
    stage=Stage.SCREEN,
    candidate=CANDIDATE,
    num_speculative_tokens=(0, 1, 2, 3, 5),
    gpu_memory_utilization=0.5,
    live=True,
    max_blocks=8,
    why="",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Standard deviations of log times, with how well they are known."""

    launch_sd: float
    launch_dof: float
    pass_sd: Mapping[int, float]
    """By concurrency."""
    beside_sd: Mapping[int, float]
    """Of passes of one block in one launch that speculate."""
    drift_sd: float
    """Of the whole change over a launch, first pass to last."""

    def shared_sd(self, concurrency: int) -> float:
        """What the passes of one block in one launch have in common."""
        return math.sqrt(max(self.pass_sd[concurrency] ** 2 - self.beside_sd[concurrency] ** 2, 0))

    def own_sd(self, concurrency: int, k: int) -> float:
        """What a pass has for itself."""
        return (
            self.beside_sd[concurrency]
            if k
            else min(self.beside_sd[concurrency], self.pass_sd[concurrency])
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """How a pair is measured; K = 0 makes it an A/A pair."""

    launches: int
    blocks: int
    k: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How often the intervals held the true ratio, and how wide they were in the median."""

    pairs: int
    covered: Mapping[str, float]
    half_width: Mapping[str, float]


def make_spec() -> StudySpec:
    """A study of two levels whose candidate is as fast as its baseline."""
    prompts = tuple(Prompt(id=str(i), messages=()) for i in range(256))
    return StudySpec(
        name="equal",
        target=Target(model="equal"),
        workload=Workload(
            search=prompts,
            confirmation=prompts,
            levels=(Level(concurrency=LEVELS[0], weight=3.0), Level(concurrency=LEVELS[1])),
            max_tokens=TOKENS,
            sampling=Sampling(temperature=0.0),
        ),
        candidates=(CANDIDATE,),
        search=Search(num_speculative_tokens=(K_SHOWN,), max_blocks=8),
        objective=Objective(),
    )


def coverage(noise: Noise, design: Design, pairs: int, seed: int = 0) -> Coverage:
    """Measure equal arms so often, with the code that measures a study."""
    dice = np.random.default_rng(seed)
    spec = make_spec()
    truth = _truth(design.k, spec, dice)
    found: dict[str, list[Interval]] = {}
    for _ in range(pairs):
        records = equal_pair(noise, design, dice)
        for curve in curves(spec, records, noise_of(records, spec.workload.levels)):
            for name, interval in _intervals(curve).items():
                found.setdefault(name, []).append(interval)
    return Coverage(
        pairs=pairs,
        covered={n: _share(v, truth[n.partition(",")[0]]) for n, v in found.items()},
        half_width={n: float(np.median([i.half_width for i in v])) for n, v in found.items()},
    )


def false_stops(noise: Noise, launches: int, seed: int = 0) -> float:
    """How often a live launch stops a K that is within the tolerance of the best.

    The hardest case: one K is the best, all others lie exactly at the tolerance.
    """
    dice = np.random.default_rng(seed)
    spec = make_spec()
    wrong = 0
    for _ in range(launches):
        launch = replace(LIVE, max_blocks=spec.search.max_blocks)
        passes = _live_passes(noise, spec, dice)
        design = Design(launches=1, blocks=spec.search.max_blocks)
        plain = _passes(
            noise, 0, _replies(design, 0, dice), 0.0, weather(noise, design, dice), dice
        )
        baseline = _record(BASELINE, 0, 0, plain)
        known = [replace(baseline, trial=replace(baseline.trial, stage=Stage.BASELINE))]
        state = State(
            spec=spec,
            launch=launch,
            passes=passes,
            known=known,
            noise=noise_of(known, spec.workload.levels),
            fingerprint="",
        )
        wrong += stopped_wrongly(state)
    return wrong / launches


def stopped_wrongly(state: State) -> bool:
    """Whether any look at any level calls a K beaten."""
    levels = state.spec.workload.levels
    most, least = state.launch.max_blocks, state.spec.search.min_blocks
    for done in range(least, most + 1):
        passes = [p for p in state.passes if p.block < done]
        everything = [*state.known, *State.records(state.launch, passes, state.fingerprint)]
        seen = replace(state, passes=passes, noise=noise_of(everything, levels))
        ks = state.launch.num_speculative_tokens
        looks = most - least + 1
        if any(s.beaten for level in levels for s in settle(seen, level, ks, looks)):
            return True
    return False


def coverage_beside(noise: Noise, blocks: int, pairs: int, seed: int = 0) -> Coverage:
    """Two K of one live launch, equally fast, compared so often as the study compares them."""
    dice = np.random.default_rng(seed)
    spec = make_spec()
    levels = spec.workload.levels
    launch = replace(LIVE, num_speculative_tokens=(0, 1, 2))
    found: dict[str, list[Interval]] = {}
    for _ in range(pairs):
        passes = _live_passes(noise, replace(spec, search=Search(max_blocks=blocks)), dice, 0.0)
        records = State.records(launch, passes, "")
        seen = comparer(arms(records), levels, noise_of(records, levels))
        for name, estimate in _beside(seen, levels).items():
            found.setdefault(name, []).append(estimate.interval())
    return Coverage(
        pairs=pairs,
        covered={name: _share(intervals, 1.0) for name, intervals in found.items()},
        half_width={n: float(np.median([i.half_width for i in v])) for n, v in found.items()},
    )


def _beside(seen: Comparer, levels: Sequence[Level]) -> dict[str, Estimate]:
    """The estimates of K = 1 over K = 2, by level and way."""
    one, other = (CANDIDATE.name, 1), (CANDIDATE.name, 2)
    pairs = {lv.concurrency: seen.compare(one, other, lv.concurrency) for lv in levels}
    found: dict[str, Estimate] = {}
    for way in ("by steps", "by throughput"):
        parts = [p.chosen(by_steps=way == "by steps") for p in pairs.values() if p]
        named = dict(zip((f"c{c}" for c in pairs), parts, strict=True))
        named["overall"] = weighted(parts, [lv.weight for lv in levels])
        found |= {f"{at}, {way}": estimate for at, estimate in named.items()}
        if way == "by steps":  # what is used wherever there are step times
            found |= named
    return found


def _live_passes(
    noise: Noise, spec: StudySpec, dice: np.random.Generator, behind: float | None = None
) -> list[Pass]:
    """A live launch of which K = 1 is the best and all others are behind it, a share of its time;
    by the tolerance unless it is said."""
    design = Design(launches=1, blocks=spec.search.max_blocks, k=2)
    late = -float(np.log1p(-spec.objective.tolerance)) if behind is None else behind
    shared = weather(noise, design, dice)
    passes = []
    for k in LIVE.num_speculative_tokens:
        slower = 0.0 if k in (0, 1) else late
        mine = _passes(noise, k, _replies(design, 2 if k else 0, dice), slower, shared, dice)
        passes += [replace(p, num_speculative_tokens=k) for p in mine]
    return passes


def _share(intervals: Sequence[Interval], truth: float) -> float:
    return float(np.mean([i.low <= truth <= i.high for i in intervals]))


def _truth(k: int, spec: StudySpec, dice: np.random.Generator) -> dict[str, float]:
    """The speedup of a long run at each level, and the weighted one."""
    if k == 0:
        return dict.fromkeys(("overall", *(f"c{c}" for c in LEVELS)), 1.0)
    logs = {}
    for c in LEVELS:
        fast, slow = (
            as_pass(
                run_loop(_texts(dice, number, LONG_RUN), c, number, Costs(), dice), number, c, 0
            )
            for number in (k, 0)
        )
        logs[f"c{c}"] = fast.log_throughput - slow.log_throughput
    weights = [lv.weight for lv in spec.workload.levels]
    logs["overall"] = float(np.average(list(logs.values()), weights=weights))
    return {name: float(np.exp(value)) for name, value in logs.items()}


def _texts(dice: np.random.Generator, k: int, count: int) -> list[Text]:
    return draw_texts(dice, count, k, acceptance=0.5, spread=0.3, tokens=TOKENS)


def _intervals(curve: SpeedupCurve) -> dict[str, Interval]:
    at = "overall" if curve.concurrency is None else f"c{curve.concurrency}"
    point = curve.points[0]
    found = {at: point.speedup, f"{at}, by throughput": point.by_throughput}
    return found | ({f"{at}, by steps": point.by_steps} if point.by_steps else {})


def equal_pair(noise: Noise, design: Design, dice: np.random.Generator) -> list[Record]:
    """Launches of both arms in turn, A B A B; each prompt gets the same reply every time."""
    launch_sd = noise.launch_sd * float(
        np.sqrt(noise.launch_dof / dice.chisquare(noise.launch_dof))
    )
    plain = _replies(design, 0, dice)
    replies = {
        (BASELINE, 0): plain,
        (CANDIDATE.name, K_SHOWN): _replies(design, design.k, dice) if design.k else plain,
    }
    return [
        _record(
            name,
            k,
            repeat,
            _passes(
                noise, k, mine, dice.normal(0.0, launch_sd), weather(noise, design, dice), dice
            ),
        )
        for repeat in range(design.launches)
        for (name, k), mine in replies.items()
    ]


def _replies(design: Design, k: int, dice: np.random.Generator) -> Mapping[tuple[int, int], Pass]:
    """What every block says and how long it takes without noise, by (block, concurrency)."""
    return {
        (block, c): as_pass(
            run_loop(_texts(dice, k, 4 * c), c, k, Costs(), dice, step_sd=0.05), k, c, block
        )
        for block in range(design.blocks)
        for c in LEVELS
    }


def weather(
    noise: Noise, design: Design, dice: np.random.Generator
) -> Mapping[tuple[int, int], float]:
    """What a block has in common with whatever else of its launch runs it: drift and slow minutes.

    By (block, concurrency), as a log of time.
    """
    slope = float(dice.normal(0.0, noise.drift_sd))
    return {
        (block, c): slope * (block / max(design.blocks - 1, 1) - 0.5)
        + dice.normal(0.0, noise.shared_sd(c))
        for block in range(design.blocks)
        for c in LEVELS
    }


def _passes(
    noise: Noise,
    k: int,
    replies: Mapping[tuple[int, int], Pass],
    launch: float,
    weather: Mapping[tuple[int, int], float],
    dice: np.random.Generator,
) -> list[Pass]:
    return [
        slowed(
            mine,
            math.exp(launch + weather[block, c] + dice.normal(0.0, noise.own_sd(c, k))),
        )
        for (block, c), mine in replies.items()
    ]


def _record(name: str, k: int, repeat: int, passes: Sequence[Pass]) -> Record:
    launch = Launch(
        stage=Stage.CONFIRM,
        candidate=CANDIDATE if k else None,
        num_speculative_tokens=(k,),
        gpu_memory_utilization=0.5,
        repeat=repeat,
        max_blocks=16,
        why="",
    )
    trial = launch.trial(k)
    return Record(
        trial=trial,
        outcome=Measurement(passes=tuple(passes)),
        launch_id=f"{name}-{repeat}",
        fingerprint="",
        why="",
    )
