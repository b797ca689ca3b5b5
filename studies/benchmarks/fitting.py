"""From recorded launches to the noise of the model: launch, pass, drift.

Rules: pass and drift come from plain steps (K = 0), whose speed owes nothing to the text; what is
left of the pass effect side by side from the K of live launches; the launch effect is what the
means of equal launches differ by beyond what their passes explain.
"""

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from calibration import LEVELS, Noise

from autotune.core.noise import Passes, equal_launches, passes_at, passes_beside, scatter
from autotune.core.trial import Record
from autotune.core.workload import Level

SMALLEST_SD = 0.002
"""Deviations below this are not told from none."""


def fit(records: Sequence[Record]) -> Noise:
    """The noise that these records show."""
    pass_sd = {c: _sd(passes_at(records, c)) for c in LEVELS}
    means = equal_launches(records, [Level(concurrency=c) for c in LEVELS])
    groups = [group for group in means if len(group) > 1]
    dof = sum(len(group) - 1 for group in groups)
    between = sum(float(np.var(group, ddof=1)) * (len(group) - 1) for group in groups) / dof
    explained = sum(sd**2 for sd in pass_sd.values()) / len(LEVELS) ** 2 / _blocks(records)
    return Noise(
        launch_sd=max(math.sqrt(max(between - explained, 0.0)), SMALLEST_SD),
        launch_dof=dof,
        pass_sd=pass_sd,
        beside_sd={c: _sd(passes_beside(records, c)) for c in LEVELS},
        drift_sd=float(np.mean([_drift_sd(records, c) for c in LEVELS])),
    )


def _sd(observed: Passes) -> float:
    squares, dof = scatter(observed)
    return max(math.sqrt(squares / dof), SMALLEST_SD)


def _blocks(records: Sequence[Record]) -> float:
    """Blocks of a launch, in the mean."""
    plain = passes_at(records, LEVELS[0])
    return len(plain) / len({launch for launch, _, _ in plain})


def _drift_sd(records: Sequence[Record], concurrency: int) -> float:
    """The deviation of the slopes of equal launches, less what their passes explain.

    A slope is the change of the log speed from the first block to the last; what all launches have
    in common is the blocks' and no drift.
    """
    table = _largest_table(records, concurrency)
    table = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
    at = np.linspace(-0.5, 0.5, table.shape[1])
    slopes = table @ at / float(at @ at)
    noise = _sd(passes_at(records, concurrency)) ** 2 / float(at @ at)
    return math.sqrt(max(float(slopes.var(ddof=1)) - noise, 0.0))


def _largest_table(records: Sequence[Record], concurrency: int) -> npt.NDArray[np.float64]:
    """Log speeds by launch and block of those launches that ran the same, most numerous blocks."""
    groups: dict[tuple[str, ...], list[list[float]]] = defaultdict(list)
    plain = passes_at(records, concurrency)
    for launch in sorted({name for name, _, _ in plain}):
        mine = [(block, value) for name, block, value in plain if name == launch]
        groups[tuple(block for block, _ in mine)].append([value for _, value in mine])
    most = max(groups.values(), key=lambda rows: (len(rows) > 1, len(rows) * len(rows[0])))
    return np.array(most)
