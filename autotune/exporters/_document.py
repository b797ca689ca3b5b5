"""best-config.yaml as it is read: the keys that are needed to launch it again, and their defaults.

Rule: an absent key is unknown, and has a default only where leaving it out means that.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from autotune.core.jsontype import JSON
from autotune.core.study import Objective

BLOCKS = 8
"""Blocks of prompts at the most, where the document does not say how many there were."""
_ASKED = Objective()


class Part(BaseModel):
    """A mapping of the document; keys that a later version adds do no harm."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class ArgsPart(BaseModel):
    """The engine's arguments; all but two are the target's own."""

    model_config = ConfigDict(extra="allow", frozen=True, protected_namespaces=())
    __pydantic_extra__: dict[str, JSON]

    model: str
    gpu_memory_utilization: float


class EnginePart(Part):
    """How the engine is started."""

    name: str
    args: ArgsPart
    launcher: tuple[str, ...] = ()
    speculative_config: dict[str, JSON] | None = None
    env: dict[str, str] = {}
    env_withheld: tuple[str, ...] = ()


class EndsPart(Part):
    """An interval; an end without a bound is not there."""

    mean: float
    low: float = 0.0
    high: float = float("inf")


class LevelPart(Part):
    """One concurrency."""

    concurrency: int
    weight: float = 1.0
    request_rate: float | None = None
    blocks: int = BLOCKS


class SamplingPart(BaseModel):
    """The sampling parameters; all but the temperature are further request fields."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, JSON]

    temperature: float


class WorkloadPart(Part):
    """What was sent."""

    prompts_sha256: str = ""
    max_tokens: int
    ignore_eos: bool = False
    requests_per_stream: int = 4
    sampling: SamplingPart
    chat_template_kwargs: dict[str, JSON] = {}
    slo: dict[str, float] | None = None
    lora: str | None = None
    response_format: dict[str, JSON] | None = None


class ObjectivePart(Part):
    """What the verdict was asked for; the defaults where it does not say."""

    metric: Literal["output_throughput", "tpot", "e2e", "goodput"] = "output_throughput"
    tolerance: float = _ASKED.tolerance
    min_gain: float = _ASKED.min_gain
    constraints: dict[str, float] = {}


class EvidencePart(Part):
    """What was measured."""

    candidate: str | None = None
    speedup: EndsPart | None = None
    levels: tuple[LevelPart, ...] = ()
    workload: WorkloadPart
    objective: ObjectivePart = ObjectivePart()


class ProvenancePart(Part):
    """Where it comes from."""

    study: str


class Document(Part):
    """The whole document."""

    schema_version: int
    verdict: str
    unverified: bool = False
    engine: EnginePart
    vllm_yaml_sha256: str = ""
    evidence: EvidencePart
    provenance: ProvenancePart
    goes_stale_when_changed: tuple[str, ...] = ()
