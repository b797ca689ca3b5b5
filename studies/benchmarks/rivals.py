"""How one would search without autotune: one launch for each point, the best figure wins.

Grid, random and Optuna's TPE measure a point as it is usually done: a server with that K, all
blocks at every level, the ratio of throughputs to those of a baseline launch before it. They see
the same machine as autotune and may spend as many seconds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import optuna
from calibration import LEVELS
from landscapes import WEIGHTS
from replaying import BLOCKS, KS, Machine

from autotune.core.study import StudySpec
from autotune.core.trial import BASELINE, Launch, Pass, Stage

Point = tuple[str, int]
BOOT_S = 45.0
"""Of a start with its warm-up, as a recorded demo study has it in the mean."""


def seconds_of(passes: Sequence[Pass]) -> float:
    """What a launch with these passes takes."""
    return BOOT_S + sum(p.duration_s for p in passes)


@dataclass(slots=True, kw_only=True)
class Measuring:
    """Points measured one launch each, until the seconds are spent."""

    spec: StudySpec
    machine: Machine
    budget_s: float
    spent_s: float = 0.0
    found: dict[Point, float] = field(default_factory=dict)
    launches: int = 0
    _plain: dict[int, float] = field(default_factory=dict)

    @property
    def names(self) -> Sequence[str]:
        """The candidates."""
        return [c.name for c in self.spec.candidates]

    @property
    def over(self) -> bool:
        """Whether nothing is left for another launch."""
        return self.spent_s >= self.budget_s

    def measure(self, point: Point) -> float:
        """The log of the overall speedup as measured; a point again is a launch again."""
        if not self._plain:
            self._plain = self._logs((BASELINE, 0))
        logs = self._logs(point)
        weights = [WEIGHTS[c] for c in LEVELS]
        ratio = float(np.average([logs[c] - self._plain[c] for c in LEVELS], weights=weights))
        self.found[point] = ratio
        return ratio

    @property
    def answer(self) -> Point:
        """The point with the best figure; plain decoding where none is above 1."""
        best = max(self.found, key=lambda point: self.found[point])
        return best if self.found[best] > 0 else (BASELINE, 0)

    def _logs(self, point: Point) -> dict[int, float]:
        name, k = point
        candidate = None if k == 0 else self.spec.candidate(name)
        served = self.machine.serve(
            Launch(
                stage=Stage.SCREEN,
                candidate=candidate,
                num_speculative_tokens=(k,),
                gpu_memory_utilization=0.9,
                max_blocks=BLOCKS,
                why="",
            )
        )
        passes = [served.measure(k, c, block, 0) for block in range(BLOCKS) for c in LEVELS]
        self.spent_s += seconds_of(passes)
        self.launches += 1
        return {
            c: float(np.mean([p.log_throughput for p in passes if p.concurrency == c]))
            for c in LEVELS
        }


class Searching(Protocol):
    """What these ways search: points at a price, within a budget."""

    @property
    def names(self) -> Sequence[str]:
        """The candidates."""
        ...

    @property
    def over(self) -> bool:
        """Whether nothing is left for another launch."""
        ...

    @property
    def answer(self) -> Point:
        """The best so far."""
        ...

    def measure(self, point: Point) -> float:
        """The log of its overall speedup as measured."""
        ...


def grid(measuring: Searching) -> Point:
    """Every candidate at the K of a grid as fine as the seconds allow, from coarse to fine."""
    for k in _coarse_first(KS):
        for name in measuring.names:
            if measuring.over:
                return measuring.answer
            measuring.measure((name, k))
    return measuring.answer


def _coarse_first(ks: Sequence[int]) -> Iterator[int]:
    """4, 1, 8, 2, 6, 3, 5, 7 of 1 to 8: each next one in the widest gap."""
    done: list[int] = []
    order = [ks[len(ks) // 2 - 1], ks[0], ks[-1]]
    while len(done) < len(ks):
        left = [k for k in ks if k not in done]
        k = next(
            (x for x in order if x in left),
            max(left, key=lambda x: (min(abs(x - d) for d in done), -x) if done else (0, 0)),
        )
        done.append(k)
        yield k


def random(measuring: Searching, dice: np.random.Generator) -> Point:
    """Points drawn without repetition."""
    points = [(name, k) for name in measuring.names for k in KS]
    for index in dice.permutation(len(points)):
        if measuring.over:
            break
        measuring.measure(points[int(index)])
    return measuring.answer


def tpe(measuring: Searching, seed: int) -> Point:
    """Optuna's default sampler, one trial a launch; a repeated point is measured again."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    while not measuring.over:
        trial = study.ask()
        name = trial.suggest_categorical("candidate", measuring.names)
        k = trial.suggest_int("num_speculative_tokens", KS[0], KS[-1])
        study.tell(trial, measuring.measure((name, k)))
    return measuring.answer
