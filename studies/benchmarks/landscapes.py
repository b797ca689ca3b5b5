"""Landscapes to search: what four candidates would measure at every K, with the truth known.

Half of them follow the cost model with acceptance as a recorded demo study has it; the others have
shapes that no such model has: cliffs, one K with a slow graph, ragged curves, nothing to gain.

Rules: all draws come from the generator that is handed in; a landscape holds no noise, that is the
measurement's; K = 0 of a candidate is live K = 0, plain decoding is the baseline's.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import numpy.typing as npt
from calibration import LEVELS, TOKENS
from recording import QUIET
from scipy.special import ndtri

from autotune.core.trial import BASELINE

K_MOST = 32
"""Curves are known so far; nothing searches beyond."""
WEIGHTS: Mapping[int, float] = {1: 3.0, 4: 1.0}
TTFT_S: Mapping[int, float] = {1: 0.07, 4: 0.16}
STEP_S: Mapping[int, float] = {1: 0.016, 4: 0.0195}
"""Of plain decoding, as a recorded demo study has them."""
TEXT_SD = 0.2
"""Of the log of a reply's tokens per step."""
EASE = TEXT_SD * ndtri((np.arange(64) + 0.5) / 64)
"""All texts, as quantiles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafter:
    """One candidate of a landscape: its curve at every level."""

    name: str
    method: str
    tokens_per_step: tuple[float, ...]
    """By K, from K = 0."""
    step_s: Mapping[int, tuple[float, ...]]
    """By concurrency and K."""

    def seconds(self, concurrency: int, k: int) -> float:
        """Of a reply, in the mean over all texts."""
        steps = float(np.mean(1 / self.per_step(k, EASE)))
        return TTFT_S[concurrency] + (TOKENS - 1) * steps * self.step_s[concurrency][k]

    def per_step(self, k: int, ease: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Tokens per step of replies, by how easy their text is: a log, 0 for the mean one."""
        if k == 0:
            return np.ones_like(ease)
        return np.clip(self.tokens_per_step[k] * np.exp(ease), 1.0, k + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Landscape:
    """Four drafters beside plain decoding."""

    family: str
    drafters: tuple[Drafter, ...]
    plain: Drafter = field(
        default_factory=lambda: Drafter(
            name=BASELINE,
            method="",
            tokens_per_step=(1.0,),
            step_s={c: (STEP_S[c],) for c in LEVELS},
        )
    )

    def drafter(self, name: str) -> Drafter:
        """The one of that name, plain decoding under the baseline's."""
        return next(d for d in (self.plain, *self.drafters) if d.name == name)

    def speedup(self, name: str, k: int) -> float:
        """The true overall speedup of a point."""
        mine, plain = self.drafter(name), self.plain
        logs = [np.log(plain.seconds(c, 0) / mine.seconds(c, k)) for c in LEVELS]
        return float(np.exp(np.average(logs, weights=[WEIGHTS[c] for c in LEVELS])))

    def best(self, ks: Sequence[int]) -> float:
        """The best true speedup at these K; 1 where none gains, plain decoding is an answer."""
        return max([1.0, *(self.speedup(d.name, k) for d in self.drafters for k in ks)])


def draw(dice: np.random.Generator) -> Landscape:
    """One landscape; every second one follows the cost model."""
    if dice.integers(2) == 0:
        return _of_model(dice)
    names = list(SHAPES)
    name = names[int(dice.integers(len(names)))]
    drafters = tuple(SHAPES[name](d, dice) for d in _of_model(dice).drafters)
    return Landscape(family=name, drafters=drafters)


def _of_model(dice: np.random.Generator) -> Landscape:
    """T = T_verify + K * t_draft for drafts with weights; looking up costs nothing by itself."""
    drafters = []
    for index, (method, draft_share) in enumerate(
        (("draft_model", 0.30), ("draft_model", 0.15), ("eagle", 0.10), ("ngram", 0.0))
    ):
        verify = {c: dice.uniform(0.0, 0.04) * c**0.7 for c in LEVELS}
        draft = draft_share * dice.uniform(0.2, 1.2)
        steps = {
            c: tuple(STEP_S[c] * (1 + verify[c] * k + draft * k) for k in range(K_MOST + 1))
            for c in LEVELS
        }
        accepted = _profile(dice)
        drafters.append(
            Drafter(
                name=f"{method}-{index}",
                method=method,
                tokens_per_step=tuple(1 + sum(accepted[:k]) for k in range(K_MOST + 1)),
                step_s=steps,
            )
        )
    return Landscape(family="cost model", drafters=tuple(drafters))


def _profile(dice: np.random.Generator) -> list[float]:
    """A measured acceptance profile, made better by a random power, continued geometrically."""
    measured = _profiles()[int(dice.integers(len(_profiles())))]
    power = dice.uniform(0.25, 1.0)
    per_pos = [float(a) ** power for a in measured]
    ratio = per_pos[-1] / per_pos[-2] if len(per_pos) > 1 else per_pos[-1]
    while len(per_pos) < K_MOST:
        per_pos.append(per_pos[-1] * min(ratio, 0.98))
    return per_pos


@cache
def _profiles() -> list[list[float]]:
    """Accepted at each position over drafts, of every live launch of a recorded demo study."""
    found = []
    for file in sorted(QUIET.glob("*.jsonl")):
        passes = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        most = max(p["num_speculative_tokens"] for p in passes)
        counters = [p["spec"] for p in passes if p["num_speculative_tokens"] == most and most]
        if len({p["num_speculative_tokens"] for p in passes}) > 1:
            drafts = sum(c["drafts"] for c in counters)
            table = np.array([c["accepted_per_pos"][:most] for c in counters])
            found.append([max(float(a), 1e-4) for a in table.sum(axis=0) / drafts])
    return found


def _scaled(drafter: Drafter, factors: Callable[[int], float]) -> Drafter:
    """The same with steps so many times as long, by K; K = 0 stays."""
    steps = {
        c: (values[0], *(value * factors(k) for k, value in enumerate(values) if k))
        for c, values in drafter.step_s.items()
    }
    return replace(drafter, step_s=steps)


def _cliff(drafter: Drafter, dice: np.random.Generator) -> Drafter:
    edge, fall = int(dice.integers(3, 9)), dice.uniform(1.2, 1.8)
    return _scaled(drafter, lambda k: fall if k >= edge else 1.0)


def _slow_graph(drafter: Drafter, dice: np.random.Generator) -> Drafter:
    slow, by = int(dice.integers(1, 9)), dice.uniform(1.08, 1.3)
    return _scaled(drafter, lambda k: by if k == slow else 1.0)


def _ragged(drafter: Drafter, dice: np.random.Generator) -> Drafter:
    factors = np.exp(dice.normal(0.0, 0.05, K_MOST + 1))
    return _scaled(drafter, lambda k: float(factors[k]))


def _worthless(drafter: Drafter, dice: np.random.Generator) -> Drafter:
    slower = dice.uniform(1.3, 2.0)
    return _scaled(drafter, lambda _: slower)


def _late(drafter: Drafter, dice: np.random.Generator) -> Drafter:
    """A cost that every draft pays once: small K lose, large ones win."""
    once = dice.uniform(0.1, 0.5)
    return replace(
        drafter,
        step_s={
            c: (values[0], *(value + once * STEP_S[c] for value in values[1:]))
            for c, values in drafter.step_s.items()
        },
    )


SHAPES: Mapping[str, Callable[[Drafter, np.random.Generator], Drafter]] = {
    "cliff": _cliff,
    "slow graph": _slow_graph,
    "ragged": _ragged,
    "nothing to gain": _worthless,
    "costly to begin": _late,
}
