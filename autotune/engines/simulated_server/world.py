"""The world file: everything that a simulated launch does not read from its flags.

Rule: values are frozen and checked when they are made; an unknown key, fault or number out of
range is an error that names the place. A missing section has the defaults of a small GPU.

    time_scale: 0.05                  # twenty times as fast as it says below
    startup_s: 2.0
    step: {t_base: 0.02, t_seq: 0.0003, t_verify_token: 0.0002, t_prefill_token: 0.00005}
    noise: {launch_sigma: 0.02, step_sigma: 0.02, drift: 0.01, drift_period_s: 600}
    reply: {low: 40, high: 160, vocab: 5000, divergence: 0.5}
    memory: {total_gib: 24, free_gib: 23.5, target_gib: 2, overhead_gib: 1}
    drafts:                           # by model, by the last part of its path, or by method
      my-eagle-head: {acceptance: [0.7, 0.5, 0.3], t_draft: 0.002, spread: 0.2}
      ngram: {acceptance: [0.5, 0.3, 0.2], t_draft: 0.0, coverage: 0.4, short: 0.3}
    faults:
      - {what: oom_at_start, when: {method: eagle, min_k: 5}}
      - {what: {crash_after_requests: 20}, when: {max_launch: 1}}
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any, TypeVar

T = TypeVar("T")

FAULTS = (
    # instead of a start
    "compiled_for_another_k",
    "crash_at_start",
    "disk_full_at_start",
    "hang_at_start",
    "kv_too_small",
    "memory_held",
    "network_down",
    "never_healthy_but_listening",
    "no_package",
    "no_weights",
    "oom_at_capture",
    "oom_at_start",
    "other_vocabulary",
    "other_weights",
    "port_collision_once",
    # while serving; the value says when, how often or how much
    "compiles_at",
    "counters_frozen",
    "counters_reset_at",
    "crash_after_requests",
    "grammar_rejects_at",
    "http_500_rate",
    "in_band_error_rate",
    "oom_at_load",
    "repetition_loop",
    "schedule_ignored",
    "stall_after",
    "wrong_usage",
    "zero_acceptance",
    # at the end
    "ignore_sigterm",
    "orphan_worker",
    "slow_shutdown",
)


class WorldError(ValueError):
    """The world file is wrong; the message says where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Seconds of one engine step, before time_scale."""

    t_base: float = 0.020
    t_seq: float = 0.0003
    t_verify_token: float = 0.0002
    t_prefill_token: float = 0.00005


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """What makes equal launches and equal steps differ."""

    launch_sigma: float = 0.02
    step_sigma: float = 0.02
    drift: float = 0.0
    drift_period_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Replies:
    """How long replies are, and from how many words they are made."""

    low: int = 40
    high: int = 160
    vocab: int = 5000
    divergence: float = 0.5
    """Share of prompts whose greedy text differs with speculation, from some token on."""

    def __post_init__(self) -> None:
        if not 1 <= self.low <= self.high:
            raise WorldError(f"reply: need 1 <= low <= high, got [{self.low}, {self.high}]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Where the device's memory goes; what is left is KV cache."""

    total_gib: float = 24.0
    free_gib: float = 23.5
    target_gib: float = 2.0
    overhead_gib: float = 1.0
    activation_gib_per_token: float = 0.05
    """For each token of K: verification's activations and buffers."""
    kv_gib_per_1k_tokens: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """How well and how fast one draft drafts."""

    acceptance: tuple[float, ...] = (0.7, 0.5, 0.35, 0.24, 0.16)
    """P(at least i tokens accepted | a draft); beyond the last one, its last ratio goes on."""
    t_draft: float = 0.002
    coverage: float = 1.0
    """Share of steps in which a lookup finds anything; other methods always draft."""
    short: float = 0.0
    """Share of lookups that find fewer than K tokens."""
    spread: float = 0.0
    """How much prompts differ: acceptance is scaled by 1 ± spread, drawn per prompt."""
    gib: float = 0.3
    kv_share: float = 0.1
    """KV cache of the draft, relative to the target's."""
    best_prompt_lookup_max: int = 0
    """If set, each step of prompt_lookup_max away from it costs a tenth of the acceptance."""

    def __post_init__(self) -> None:
        rates = (1.0, *self.acceptance, 0.0)
        if not self.acceptance or any(a < b for a, b in pairwise(rates)):
            raise WorldError(f"acceptance must fall within [0, 1], got {list(self.acceptance)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """To which launches (and, with min_temperature, requests) a fault applies; unset: all."""

    method: str | None = None
    """A method, or "none" for a launch without speculation."""
    model: str | None = None
    scheduler_cls: bool | None = None
    min_k: int | None = None
    max_k: int | None = None
    min_gpu_memory_utilization: float | None = None
    max_gpu_memory_utilization: float | None = None
    min_launch: int | None = None
    max_launch: int | None = None
    min_temperature: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong, when it does, and its number where it has one."""

    what: str
    value: float | None = None
    when: When = field(default_factory=When)

    def __post_init__(self) -> None:
        if self.what not in FAULTS:
            raise WorldError(f"unknown fault {self.what!r} (known: {', '.join(FAULTS)})")


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The whole file."""

    time_scale: float = 1.0
    """All durations are multiplied by it; 0.05 makes a test twenty times as fast."""
    seed: int = 0
    device: str = "cuda"
    startup_s: float = 0.3
    step: StepTimes = field(default_factory=StepTimes)
    noise: Noise = field(default_factory=Noise)
    reply: Replies = field(default_factory=Replies)
    memory: Memory = field(default_factory=Memory)
    drafts: Mapping[str, Draft] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        if self.device not in {"cuda", "cpu"}:
            raise WorldError(f"device must be cuda or cpu, got {self.device!r}")
        if self.time_scale <= 0:
            raise WorldError(f"need time_scale > 0, got {self.time_scale}")


def parse_world(raw: object) -> World:
    """Make a World of what YAML or JSON gave."""
    values = _keys(World, raw, "world")
    for name, cls in (("step", StepTimes), ("noise", Noise), ("reply", Replies)):
        if name in values:
            values[name] = _section(cls, values[name], name)
    if "memory" in values:
        values["memory"] = _section(Memory, values["memory"], "memory")
    drafts = values.pop("drafts", {})
    faults = values.pop("faults", [])
    return World(
        **values,
        drafts={name: _draft(value, f"drafts.{name}") for name, value in drafts.items()},
        faults=tuple(_fault(value, f"faults[{i}]") for i, value in enumerate(faults)),
    )


def _draft(raw: object, where: str) -> Draft:
    values = _keys(Draft, raw, where)
    if "acceptance" in values:
        values["acceptance"] = tuple(float(rate) for rate in values["acceptance"])
    return Draft(**values)


def _fault(raw: object, where: str) -> Fault:
    """A fault; `what: {crash_after_requests: 20}` is short for what and value."""
    values = _keys(Fault, raw, where)
    if isinstance(values.get("what"), dict):
        ((values["what"], values["value"]),) = values["what"].items()
    if "when" in values:
        values["when"] = _section(When, values["when"], f"{where}.when")
    return Fault(**values)


def _section(cls: type[T], raw: object, where: str) -> T:
    return cls(**_keys(cls, raw, where))


def _keys(cls: Any, raw: object, where: str) -> dict[str, Any]:  # noqa: ANN401  (foreign YAML)
    if not isinstance(raw, dict):
        raise WorldError(f"{where}: expected a mapping, got {raw!r}")
    unknown = sorted(set(raw) - {f.name for f in fields(cls)})
    if unknown:
        raise WorldError(f"{where}: unknown {', '.join(map(str, unknown))}")
    numbers = [f.name for f in fields(cls) if isinstance(f.default, int | float)]
    for name in numbers:
        if name in raw and (isinstance(raw[name], bool) or not isinstance(raw[name], int | float)):
            raise WorldError(f"{where}.{name}: expected a number, got {raw[name]!r}")
    return dict(raw)
