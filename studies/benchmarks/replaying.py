"""Studies on landscapes, without a clock: the tuner's own decisions over modelled passes.

The plan, the rounds of each launch, the stopping rules and the recommendation are the product's;
only the engine is replaced, by a landscape with the noise of recorded launches: text reply by
reply, passes, slow minutes that all K of a block share, drift, launches.

Rule: a reply's text is drawn once per drafter, prompt and K; the same prompt is as easy or as hard
for every K.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from calibration import LEVELS, TOKENS, Design, Noise, make_spec, weather
from landscapes import TEXT_SD, TTFT_S, WEIGHTS, Drafter, Landscape

from autotune.core.plan import next_launch
from autotune.core.recommendation import Recommendation, recommend
from autotune.core.schedule import Range, k_at, ranges_of
from autotune.core.steps import StepStats
from autotune.core.study import Candidate, Search, StudySpec
from autotune.core.trial import BASELINE, Launch, Measurement, Pass, Record
from autotune.core.workload import Level
from autotune.tuning.rounds import Rounds

KS = tuple(range(1, 9))
"""What the file asks for."""
BLOCKS = 8
IDLE = {1: 1.0, 4: 1.08}
"""How much longer a pass is than its steady part."""


def make_study(landscape: Landscape) -> StudySpec:
    """Four candidates, K from 1 to 8, two levels, as the demo weighs them."""
    spec = make_spec()
    return replace(
        spec,
        candidates=tuple(
            Candidate(name=d.name, method=d.method, model=None if d.method == "ngram" else d.name)
            for d in landscape.drafters
        ),
        workload=replace(
            spec.workload, levels=tuple(Level(concurrency=c, weight=WEIGHTS[c]) for c in LEVELS)
        ),
        search=Search(num_speculative_tokens=KS, max_blocks=BLOCKS),
    )


@dataclass(slots=True, kw_only=True)
class Machine:
    """Serves a landscape, with noise."""

    landscape: Landscape
    noise: Noise
    dice: np.random.Generator
    texts: dict[tuple[str, str, int, int], np.ndarray] = field(default_factory=dict)

    def serve(self, launch: Launch) -> "Served":
        """A launch of one drafter, with its effect and its weather."""
        return Served(
            machine=self,
            drafter=self.landscape.drafter(
                launch.candidate.family if launch.candidate else BASELINE
            ),
            ranges=ranges_of(launch.candidate.settings) if launch.candidate else (),
            split=launch.stage.prompts,
            slower=float(self.dice.normal(0.0, self.noise.launch_sd)),
            weather=weather(self.noise, Design(launches=1, blocks=BLOCKS), self.dice),
        )

    def text(self, name: str, split: str, concurrency: int, block: int) -> np.ndarray:
        """How easy each prompt of a block is for a drafter."""
        key = (name, split, concurrency, block)
        if key not in self.texts:
            self.texts[key] = self.dice.normal(0.0, TEXT_SD / 2**0.5, 4 * concurrency)
        return self.texts[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One launch while it serves."""

    machine: Machine
    drafter: Drafter
    ranges: tuple[Range, ...]
    """Of a schedule; empty without one."""
    split: str
    slower: float
    weather: Mapping[tuple[int, int], float]

    def measure(self, k: int, concurrency: int, block: int, order: int) -> Pass:
        """A pass as the client would see it."""
        dice, requests = self.machine.dice, 4 * concurrency
        used = k_at(self.ranges, concurrency) if self.ranges else k
        own = dice.normal(0.0, self.machine.noise.own_sd(concurrency, used))
        factor = float(np.exp(self.slower + self.weather[block, concurrency] + own))
        prompts = self.machine.text(self.drafter.name, self.split, concurrency, block)
        ease = prompts + dice.normal(0.0, TEXT_SD / 2**0.5, requests)  # half of it the prompt's
        steps = (TOKENS - 1) / self.drafter.per_step(used, ease)
        step_s = self.drafter.step_s[concurrency][used] * factor
        first_s = TTFT_S[concurrency] * factor
        reply_s = tuple((steps * step_s).tolist())
        return Pass(
            num_speculative_tokens=k,
            concurrency=concurrency,
            block=block,
            order=order,
            started_s=0.0,
            duration_s=IDLE[concurrency] * (sum(reply_s) + requests * first_s) / concurrency,
            requests=requests,
            failed=0,
            prompt_tokens=0,
            output_tokens=TOKENS * requests,
            spec=None,
            steps=StepStats(
                tokens=(TOKENS - 1) * requests,
                steps=max(round(float(steps.sum())), 1),
                merged=0,
                step_s=step_s,
                first_token_s=first_s,
                decode_step_s=step_s,
                reply_tokens=(TOKENS - 1,) * requests,
                reply_s=reply_s,
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A whole study on a landscape."""

    spec: StudySpec
    records: Sequence[Record]
    launches: Sequence[Launch]
    answer: Recommendation


def replay(landscape: Landscape, noise: Noise, dice: np.random.Generator) -> Replayed:
    """Tune a landscape as `autotune run` would, without a budget."""
    spec = make_study(landscape)
    machine = Machine(landscape=landscape, noise=noise, dice=dice)
    records: list[Record] = []
    launches: list[Launch] = []
    for launch in iter(partial(next_launch, spec, records), None):
        launches.append(launch)
        records += _launched(spec, machine, launch, list(records), str(len(launches)))
    return Replayed(spec=spec, records=records, launches=launches, answer=recommend(spec, records))


def _launched(
    spec: StudySpec, machine: Machine, launch: Launch, known: Sequence[Record], launch_id: str
) -> Iterator[Record]:
    """What the runner would make of a launch (autotune/tuning/runner.py)."""
    passes: list[Pass] = []
    rounds = Rounds(
        spec=spec,
        launch=launch,
        known=known,
        fingerprint="",
        passes=passes,
        notify=lambda event: None,
    )
    served = machine.serve(launch)
    for block, concurrency, k in rounds.order():
        passes.append(served.measure(k, concurrency, block, len(passes)))
    for k in launch.num_speculative_tokens:
        mine = tuple(p for p in passes if p.num_speculative_tokens == k)
        if not mine:
            continue
        yield Record(
            trial=launch.trial(k),
            outcome=Measurement(passes=mine, pruned=rounds.pruned(k)),
            launch_id=launch_id,
            fingerprint="",
            why=launch.why,
        )
