"""How much measuring a narrow interval takes: the tuner's way beside the usual one.

The usual one: each arm runs blocks of its own, as many, the throughputs of the two arms are
compared without their order (Welch's t interval on log throughputs). The tuner's way: both arms run
the same blocks, the estimate by steps with its text and pass noise (core/comparison.py). The launch
effect is the same for both and left out.

Rule: both ways see the same recorded passes; the unpaired one draws the blocks of its arms apart.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from calibration import LEVELS
from recording import CANDIDATE, K
from scipy.special import stdtrit

from autotune.core.arms import Arm
from autotune.core.comparison import compare
from autotune.core.noise import Noise as StudyNoise
from autotune.core.noise import noise_of
from autotune.core.proportion import CONFIDENCE
from autotune.core.trial import Measurement, Pass, Record
from autotune.core.workload import Level

DRAWS = 400
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Width:
    """One comparison at one concurrency after so many blocks in each arm."""

    comparison: str
    concurrency: int
    blocks: int
    seconds: float
    """Of measuring, both arms together, in the mean."""
    ours: float
    """Half the width of the 95 % interval of the log ratio, the root of the mean square."""
    unpaired: float
    unpaired_twice: float | None
    """The same with twice the blocks; None where so many were not recorded."""
    variance_ratio: float
    """Of the estimates themselves: how much they scatter over the draws, unpaired over ours."""


def widths(records: Sequence[Record]) -> list[Width]:
    """Every comparison, level and number of blocks."""
    noise = noise_of(records, [Level(concurrency=c) for c in LEVELS])
    plain = [r for r in records if r.trial.candidate == "baseline"]
    static = [r for r in records if r.trial.candidate == CANDIDATE and not r.trial.live]
    live = {r.trial.num_speculative_tokens: r for r in records if r.trial.live}
    pairs: Mapping[str, list[tuple[Record, Record]]] = {
        "plain and plain again": list(zip(plain[1:], plain[:-1], strict=True)),
        f"K = {K} and K = 1 of one launch": [(live[K], live[1])],
        f"K = {K} and plain decoding": list(zip(static, plain, strict=True)),
    }
    return [
        found
        for name, arms in pairs.items()
        for c in LEVELS
        for found in _of_level(name, arms, c, noise)
    ]


def variance_ratios(records: Sequence[Record]) -> dict[int, float]:
    """By concurrency: the variance of unpaired estimates of K over K over that of paired ones.

    Neighbouring K of every live launch, block by block, pooled. It is how many times as many blocks
    the unpaired way needs for the same width. No interval is asked, and so no model of the noise.
    """
    launches: dict[str, dict[int, Record]] = defaultdict(dict)
    for r in records:
        if r.trial.live and r.trial.num_speculative_tokens:
            launches[r.launch_id][r.trial.num_speculative_tokens] = r
    pairs = [
        (mine[one], mine[other])
        for mine in launches.values()
        for one, other in pairwise(sorted(mine))
    ]
    return {c: _variance_ratio([_logs(pair, c) for pair in pairs]) for c in LEVELS}


def _logs(pair: tuple[Record, Record], concurrency: int) -> tuple[Floats, Floats]:
    """Log throughputs and log times of a reply, (arm, block) each, of the blocks that both ran."""
    found = [{p.block: p for p in _passes(r, concurrency)} for r in pair]
    shared = sorted(found[0].keys() & found[1].keys())
    everything = [p for passes in found for p in passes.values()]
    tokens = sum(p.output_tokens for p in everything) / sum(p.requests for p in everything)
    return (
        np.array([[passes[b].log_throughput for b in shared] for passes in found]),
        np.array([[-_seconds(passes[b], tokens) for b in shared] for passes in found]),
    )


def _seconds(measured: Pass, tokens: float) -> float:
    if measured.steps is None:
        raise ValueError("the recording has passes without step times")
    return math.log(measured.steps.seconds_of(tokens))


def _variance_ratio(pairs: Sequence[tuple[Floats, Floats]]) -> float:
    weights = [throughput.shape[1] - 1 for throughput, _ in pairs]
    unpaired = [float(t.var(axis=1, ddof=1).sum()) for t, _ in pairs]
    paired = [float((speeds[0] - speeds[1]).var(ddof=1)) for _, speeds in pairs]
    return float(np.average(unpaired, weights=weights) / np.average(paired, weights=weights))


def _of_level(
    name: str, arms: Sequence[tuple[Record, Record]], concurrency: int, noise: StudyNoise
) -> list[Width]:
    dice = np.random.default_rng(0)
    most = min(len(_passes(r, concurrency)) for pair in arms for r in pair)
    found = []
    for blocks in range(2, most + 1):
        ours = [_ours(dice, pair, concurrency, blocks, noise) for pair in _draws(dice, arms)]
        usual = [_unpaired(dice, pair, concurrency, blocks) for pair in _draws(dice, arms)]
        twice = (
            [_unpaired(dice, pair, concurrency, 2 * blocks) for pair in _draws(dice, arms)]
            if 2 * blocks <= most
            else None
        )
        found.append(
            Width(
                comparison=name,
                concurrency=concurrency,
                blocks=blocks,
                seconds=float(np.mean([seconds for _, _, seconds in ours])),
                ours=_root_mean_square([margin for _, margin, _ in ours]),
                unpaired=_root_mean_square([margin for _, margin in usual]),
                unpaired_twice=_root_mean_square([m for _, m in twice]) if twice else None,
                variance_ratio=float(
                    np.var([m for m, _ in usual]) / np.var([m for m, _, _ in ours])
                )
                if blocks < most
                else math.nan,
            )
        )
    return found


def _draws(
    dice: np.random.Generator, arms: Sequence[tuple[Record, Record]]
) -> list[tuple[Record, Record]]:
    return [arms[int(i)] for i in dice.integers(0, len(arms), DRAWS)]


def _passes(record: Record, concurrency: int) -> tuple[Pass, ...]:
    return record.measurement.at(concurrency) if record.measurement else ()


def _ours(
    dice: np.random.Generator,
    pair: tuple[Record, Record],
    concurrency: int,
    blocks: int,
    noise: StudyNoise,
) -> tuple[float, float, float]:
    """Log ratio, half width and seconds from the same blocks of both arms."""
    shared = [p.block for p in _passes(pair[0], concurrency)]
    chosen = set(dice.choice(shared, blocks, replace=False).tolist())
    arms = [Arm(records=(_only(r, chosen, concurrency),)) for r in pair]
    found = compare(arms[0], arms[1], concurrency, noise)
    if found is None or found.steps is None:
        raise ValueError("the recording has passes without step times")
    seconds = sum(p.duration_s for r in pair for p in _passes(r, concurrency) if p.block in chosen)
    return found.steps.mean, found.steps.margin, seconds


def _only(record: Record, blocks: set[int], concurrency: int) -> Record:
    kept = tuple(p for p in _passes(record, concurrency) if p.block in blocks)
    return replace(record, outcome=Measurement(passes=kept))


def _unpaired(
    dice: np.random.Generator, pair: tuple[Record, Record], concurrency: int, blocks: int
) -> tuple[float, float]:
    """Log ratio and half width from blocks that each arm draws for itself (Welch)."""
    logs: list[Floats] = [
        np.array(
            [
                p.log_throughput
                for p in dice.permutation(np.array(_passes(r, concurrency), dtype=object))[:blocks]
            ]
        )
        for r in pair
    ]
    parts = [float(side.var(ddof=1)) / blocks for side in logs]
    total = sum(parts)
    dof = total**2 / sum(part**2 / (blocks - 1) for part in parts)
    margin = float(stdtrit(dof, (1 + CONFIDENCE) / 2)) * math.sqrt(total)
    return float(logs[0].mean() - logs[1].mean()), margin


def _root_mean_square(values: Sequence[float]) -> float:
    return math.sqrt(float(np.mean(np.square(values))))
