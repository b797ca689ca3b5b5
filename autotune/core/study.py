"""What is asked: target, candidates, search, objective. Values that check themselves.

Rule: the words are those of candidates.yaml and of vLLM; a value raises ValueError with the rule
and the offending numbers, the edge (config/) adds file and line.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from autotune.core.axes import Axis
from autotune.core.jsontype import JSON
from autotune.core.methods import (
    FIXED_BLOCK_SETTINGS,
    MAX_SPECULATIVE_TOKENS,
    KCeiling,
    Method,
    find_method,
)
from autotune.core.workload import MIN_BLOCKS, Workload

SAMPLERS = ("tpe", "gp", "qmc", "random", "grid")
"""Optuna's samplers by name, and `grid`, which goes through all values."""
PERCENT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The model served and how; the same for every candidate."""

    model: str
    engine: str = "vllm"
    engine_args: Mapping[str, JSON] = field(default_factory=dict)
    """vLLM's own arguments, dashes or underscores alike; held with underscores."""
    env: Mapping[str, str] = field(default_factory=dict)
    launcher: tuple[str, ...] = ()
    """argv prefix that starts the engine elsewhere (another environment, a wrapper)."""

    @property
    def served_name(self) -> str:
        """The model name that requests carry: the first `served_model_name`, else the model."""
        given = self.engine_args.get("served_model_name") or self.model
        return str(given[0] if isinstance(given, list) else given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One way to draft, before its K is chosen."""

    name: str
    method: str
    model: str | None = None
    num_speculative_tokens: tuple[int, ...] = ()
    """The K to try, ascending; empty means those of the search."""
    settings: Mapping[str, JSON] = field(default_factory=dict)
    """Further fields of vLLM's SpeculativeConfig, passed through."""
    weights: str = ""
    """Identity of a local draft's files: other weights in the same folder are another draft."""
    engine_args: Mapping[str, JSON] = field(default_factory=dict)
    """Engine arguments of its launches, before those of the target; the baseline has the latter."""
    space: Mapping[str, Axis] = field(default_factory=dict)
    """Settings that are searched, by name (`engine_args.` before those of the engine); a candidate
    that has any is launched as one of its variants (core/space.py)."""
    variant_of: str = ""
    """The candidate of the file whose variant this is; empty for the file's own."""

    def __post_init__(self) -> None:
        row = find_method(self.method)
        if row.needs_model and self.model is None:
            raise ValueError(f"method {self.method!r} needs a draft `model`")
        check_ks(self.num_speculative_tokens)

    @property
    def family(self) -> str:
        """The name in the file, the same for all its variants."""
        return self.variant_of or self.name

    @property
    def row(self) -> Method:
        """What the table of methods says of this candidate."""
        return find_method(self.method)

    @property
    def live_k(self) -> bool:
        """Whether K may change on a running server: by method, unless a setting fixes the block."""
        return self.row.live_k and not any(self.settings.get(name) for name in FIXED_BLOCK_SETTINGS)

    @property
    def extends(self) -> bool:
        """Whether the search may try larger K than those asked for.

        Not where the checkpoint has one head, or one place in its block, for each of its K.
        """
        fixed = any(self.settings.get(name) for name in FIXED_BLOCK_SETTINGS)
        return self.row.k_ceiling not in {KCeiling.HEADS, KCeiling.BLOCK} and not fixed

    def speculative_config(self, num_speculative_tokens: int) -> dict[str, JSON] | None:
        """vLLM's --speculative-config for this K; None for K = 0, plain decoding."""
        if num_speculative_tokens == 0:
            return None
        config: dict[str, JSON] = {"method": self.method}
        if self.model is not None:
            config["model"] = self.model
        return config | {"num_speculative_tokens": num_speculative_tokens} | dict(self.settings)


def check_ks(ks: tuple[int, ...]) -> None:
    """Refuse K that are not rising, not positive, or above the sampler's ceiling."""
    if list(ks) != sorted(set(ks)):
        raise ValueError(f"num_speculative_tokens must rise without repetition, got {list(ks)}")
    for k in ks:
        if not 1 <= k <= MAX_SPECULATIVE_TOKENS:
            raise ValueError(
                f"num_speculative_tokens must lie in [1, {MAX_SPECULATIVE_TOKENS}] "
                f"(vLLM's rejection sampler), got {k}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """How the space is searched and what the search may cost."""

    num_speculative_tokens: tuple[int, ...] = (1, 2, 3, 5)
    gpu_memory_utilization: tuple[float, ...] = (0.9,)
    """Rising: the search runs at the last one, the answer at the smallest that is enough."""
    budget_s: float | None = None
    start_timeout_s: float = 900.0
    min_blocks: int = 3
    max_blocks: int = 8
    confirm_rounds: int = 2
    """How often baseline and winner are launched in the A B A B confirmation."""
    sampler: str = "tpe"
    """What chooses among the values of a candidate that are too many to try all."""
    max_variants: int = 4
    """How many combinations of a candidate's values are launched at the most."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_ks(self.num_speculative_tokens)
        for value in self.gpu_memory_utilization:
            if not 0 < value <= 1:
                hint = f"; did you mean {value / PERCENT:g}?" if 1 < value <= PERCENT else ""
                raise ValueError(f"gpu_memory_utilization must lie in (0, 1], got {value:g}{hint}")
        shares = list(self.gpu_memory_utilization)
        if not shares or shares != sorted(set(shares)):
            raise ValueError(f"gpu_memory_utilization must rise without repetition, got {shares}")
        if not MIN_BLOCKS <= self.min_blocks <= self.max_blocks:
            raise ValueError(
                f"need {MIN_BLOCKS} <= min_blocks <= max_blocks, "
                f"got [{self.min_blocks}, {self.max_blocks}]"
            )
        if self.confirm_rounds < 1:
            raise ValueError(f"confirm_rounds must be at least 1, got {self.confirm_rounds}")
        if self.sampler not in SAMPLERS:
            raise ValueError(f"sampler is one of {', '.join(SAMPLERS)}, got {self.sampler!r}")
        if self.max_variants < 1:
            raise ValueError(f"max_variants must be at least 1, got {self.max_variants}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """An upper bound on a per-level metric, such as p99_ttft_ms <= 300."""

    metric: str
    upper: float


METRICS = ("output_throughput", "tpot", "e2e", "goodput")
"""What may be compared; core/objective.py says how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What is maximised and what counts as a gain."""

    metric: str = "output_throughput"
    tolerance: float = 0.02
    """Two speedups closer than this fraction are the same to the user."""
    min_gain: float = 0.0
    """`speculate` needs the interval of the speedup above 1 + min_gain."""
    constraints: tuple[Constraint, ...] = ()

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise ValueError(f"metric must be one of {', '.join(METRICS)}, got {self.metric!r}")
        if not 0 < self.tolerance < 1:
            raise ValueError(f"tolerance is a fraction in (0, 1), got {self.tolerance}")
        if self.min_gain < 0:
            raise ValueError(f"min_gain is a fraction of at least 0, got {self.min_gain}")


class Asked(Protocol):
    """What an objective asks of a workload."""

    @property
    def max_tokens(self) -> int: ...
    @property
    def slo(self) -> object | None: ...


def objective_problem(metric: str, workload: Asked) -> str | None:
    """What a workload lacks for this objective to be measured."""
    if metric == "goodput" and workload.slo is None:
        return "metric goodput needs service level objectives: write workload.slo"
    if metric == "tpot" and workload.max_tokens == 1:
        return "metric tpot needs replies of two tokens and more, got max_tokens = 1"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySpec:
    """One study, whole: everything that decides what will be launched and measured."""

    name: str
    target: Target
    workload: Workload
    candidates: tuple[Candidate, ...]
    search: Search
    objective: Objective
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Candidates that are not launched, whole or with some of their K, and why."""

    def __post_init__(self) -> None:
        names = [candidate.name for candidate in self.candidates]
        doubles = sorted({name for name in names if names.count(name) > 1})
        if doubles:
            raise ValueError(f"candidate names must be unique, repeated: {', '.join(doubles)}")
        if "baseline" in names:
            raise ValueError("'baseline' is the name of plain decoding, choose another")
        if problem := objective_problem(self.objective.metric, self.workload):
            raise ValueError(problem)

    def ks(self, candidate: Candidate) -> tuple[int, ...]:
        """The K to try for a candidate."""
        return candidate.num_speculative_tokens or self.search.num_speculative_tokens

    def candidate(self, name: str) -> Candidate:
        """The candidate of that name."""
        return next(c for c in self.candidates if c.name == name)
