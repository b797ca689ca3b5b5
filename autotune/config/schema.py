"""The candidates file, section by section: its keys, their meaning, their defaults.

Rule: the texts under the fields are the documentation; each section makes the core's value and so
lets the core judge it. Nothing here reads another file.
"""

import re
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    field_validator,
    model_validator,
)

from autotune.config.candidate import CandidateSection
from autotune.config.faults import Said, raise_if_any
from autotune.config.sections import (
    OpenSection,
    Section,
    Several,
    VllmArgs,
    did_you_mean,
    refuse_keys,
    thawed,
)
from autotune.config.values import Duration, Fraction, Ks, Milliseconds, Text, Utilizations
from autotune.config.vllm_fields import (
    HARMLESS_SAMPLING,
    OWNED_ENGINE_ARGS,
    OWNED_ENV,
    REFUSED_SAMPLING,
    REQUEST_FIELDS,
)
from autotune.core.study import Constraint, Level, Objective, Sampling, Search

_SEARCH = Search()
_OBJECTIVE = Objective()
Positive = Annotated[int, Field(ge=1)]


class TargetSection(Section):
    """The model that is served and how; the same for every candidate."""

    model: str = Field(min_length=1)
    """A local folder (relative to this file) or the id of a model on the Hugging Face hub."""
    engine: str = Field(default="vllm", pattern=r"^[a-z][a-z0-9_]*$")
    """The engine that serves it: a plugin of autotune/engines."""
    engine_args: VllmArgs = Field(default={})
    """vLLM's own arguments as they will be deployed, such as max_model_len, with dashes or
    underscores. A text that begins with ./ or ../ is a path relative to this file."""
    env: dict[str, Text] = Field(default={})
    """Environment variables of the engine."""
    launcher: Several[str] = ()
    """argv prefix that starts the engine elsewhere: another environment, a wrapper."""

    @field_validator("engine_args")
    @classmethod
    def _ours(cls, args: dict[str, JsonValue]) -> dict[str, JsonValue]:
        refuse_keys(args, OWNED_ENGINE_ARGS)
        return args

    @field_validator("env")
    @classmethod
    def _our_env(cls, env: dict[str, str]) -> dict[str, str]:
        refuse_keys(env, OWNED_ENV)
        return env


class LevelSection(Section):
    """One concurrency of the workload."""

    level: Positive
    """How many requests are under way at any time."""
    weight: float = Field(default=1.0, gt=0)
    """What the level counts in the overall pick."""


def _levels(value: object) -> object:
    items = value if isinstance(value, list) else [value]
    return [{"level": item} if not isinstance(item, dict) else item for item in items]


def _sampling_schema(schema: dict[str, Any]) -> None:
    schema["properties"].pop("params")
    schema["additionalProperties"] = True


class SamplingSection(OpenSection):
    """The production sampling parameters. Further keys are request fields of vLLM."""

    model_config = ConfigDict(json_schema_extra=_sampling_schema)
    rest: ClassVar[str] = "params"

    temperature: float = Field(ge=0)
    """Mandatory: acceptance, and so the answer, depends on it."""
    params: dict[str, JsonValue] = Field(default={})

    @field_validator("params")
    @classmethod
    def _passable(cls, params: dict[str, JsonValue]) -> dict[str, JsonValue]:
        kept = {k: v for k, v in params.items() if v not in HARMLESS_SAMPLING.get(k, ())}
        refuse_keys(kept, REFUSED_SAMPLING)
        known = ("temperature", *REQUEST_FIELDS, *REFUSED_SAMPLING)
        faults: list[Said] = [
            ((key,), f"unknown request field {key!r}{hint}")
            for key in kept
            if key not in known and (hint := did_you_mean(key, known))
        ]
        raise_if_any(faults)
        return kept

    def value(self) -> Sampling:
        """The core's value."""
        return Sampling(temperature=self.temperature, params=thawed(self.params))


class WorkloadSection(Section):
    """What is sent to the server, as production sends it."""

    prompts: str = Field(min_length=1)
    """JSON lines, relative to this file: `messages` as in the OpenAI chat API; optional `id`,
    `task`, `language` and `split` (search or confirmation). Without `split` a hash of the id
    decides, 60 to 40."""
    concurrency: Annotated[
        Several[LevelSection],
        BeforeValidator(_levels, json_schema_input_type=Positive | list[Positive | LevelSection]),
        Field(min_length=1),
    ]
    """Requests under way at any time: a number, a list, or a list of {level, weight}."""
    max_tokens: Positive
    """Longest reply, in tokens."""
    sampling: SamplingSection
    """Sent with every request."""
    ignore_eos: bool = False
    """Go on to max_tokens after the end of the reply; for benchmarks, not for production."""
    requests_per_stream: Annotated[int, Field(ge=4)] = 4
    """Requests per concurrent stream in one block of prompts."""
    chat_template_kwargs: dict[str, JsonValue] = Field(default={})
    """Arguments of the chat template, such as enable_thinking."""

    @field_validator("concurrency")
    @classmethod
    def _once(cls, levels: tuple[LevelSection, ...]) -> tuple[LevelSection, ...]:
        found = [level.level for level in levels]
        faults: list[Said] = [
            ((i,), f"concurrency {level} stands here twice")
            for i, level in enumerate(found)
            if level in found[:i]
        ]
        raise_if_any(faults)
        return levels

    @property
    def levels(self) -> tuple[Level, ...]:
        """The core's values."""
        return tuple(Level(concurrency=lv.level, weight=lv.weight) for lv in self.concurrency)


class SearchSection(Section):
    """What is tried and what it may cost."""

    num_speculative_tokens: Ks = _SEARCH.num_speculative_tokens
    """The K to try: a number, a rising list, or {low, high}. K = 0 is always measured."""
    gpu_memory_utilization: Utilizations = _SEARCH.gpu_memory_utilization
    """Share of the GPU's memory (of the RAM on a CPU): a number, a rising list, or
    {low, high, step}."""
    budget: Duration | None = None
    """Wall-clock time for the whole study; without it, until the answer is known."""
    min_blocks: int = _SEARCH.min_blocks
    """Blocks of prompts measured before a K may be dropped."""
    max_blocks: int = _SEARCH.max_blocks
    """Blocks of prompts measured at most."""
    confirm_rounds: int = _SEARCH.confirm_rounds
    """How often baseline and winner are launched in turn at the end."""
    seed: int = _SEARCH.seed
    """Orders the passes, and splits prompts that name no split."""

    @model_validator(mode="after")
    def _sound(self) -> Self:
        self.value()
        return self

    def value(self) -> Search:
        """The core's value."""
        return Search(
            num_speculative_tokens=self.num_speculative_tokens,
            gpu_memory_utilization=self.gpu_memory_utilization,
            budget_s=self.budget,
            min_blocks=self.min_blocks,
            max_blocks=self.max_blocks,
            confirm_rounds=self.confirm_rounds,
            seed=self.seed,
        )


class ObjectiveSection(Section):
    """What is maximised, and what counts as a gain."""

    metric: Literal["output_throughput"] = "output_throughput"
    """Output tokens per second, all streams together."""
    tolerance: Fraction = _OBJECTIVE.tolerance
    """Two speedups closer than this are the same to you: the knee is the smallest such K."""
    min_gain: Fraction = _OBJECTIVE.min_gain
    """The gain that speculation must surely exceed to be recommended."""

    @model_validator(mode="after")
    def _sound(self) -> Self:
        self.value(())
        return self

    def value(self, constraints: tuple[Constraint, ...]) -> Objective:
        """The core's value."""
        return Objective(
            metric=self.metric,
            tolerance=self.tolerance,
            min_gain=self.min_gain,
            constraints=constraints,
        )


class ConstraintsSection(Section):
    """Upper bounds on latencies, with their unit, such as `p99_ttft: 300 ms`."""

    median_ttft: Milliseconds | None = None
    """Time to the first token, median over requests."""
    p99_ttft: Milliseconds | None = None
    """Time to the first token, 99th percentile."""
    median_tpot: Milliseconds | None = None
    """Time per further token, median."""
    p99_tpot: Milliseconds | None = None
    """Time per further token, 99th percentile."""
    median_e2e: Milliseconds | None = None
    """Time to the last token, median."""
    p99_e2e: Milliseconds | None = None
    """Time to the last token, 99th percentile."""

    def value(self) -> tuple[Constraint, ...]:
        """The core's values, in the order of this section."""
        bounds = {name: getattr(self, name) for name in type(self).model_fields}
        return tuple(
            Constraint(metric=f"{name}_ms", upper=upper)
            for name, upper in bounds.items()
            if upper is not None
        )


class MlflowSection(Section):
    """Where MLflow keeps the study."""

    uri: str | None = None
    """sqlite:///FILE (relative to this file) or the address of a tracking server."""
    experiment: Annotated[str, Field(min_length=1)] | None = None
    """MLflow's experiment; default: the study's name."""

    @field_validator("uri")
    @classmethod
    def _database(cls, uri: str | None) -> str | None:
        if uri is not None and (
            uri.startswith("file:") or not re.match(r"[a-z][a-z0-9+-]*:", uri)
        ):
            raise ValueError(
                f"MLflow gives up its store of plain files, got {uri!r}: "
                "write sqlite:///studies/mlflow.db or the address of a server"
            )
        return uri


def _switch(value: object) -> object:
    return {True: {}, False: None}[value] if isinstance(value, bool) else value


class TrackingSection(Section):
    """Who is told of the results; local files stay the truth."""

    mlflow: Annotated[
        MlflowSection | None,
        BeforeValidator(_switch, json_schema_input_type=bool | MlflowSection),
    ] = MlflowSection()
    """true: a SQLite file in studies/; false: nothing; or {uri, experiment}."""


class CandidatesFile(Section):
    """What `autotune run` tunes: target, workload, candidates, search."""

    study: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")] | None = None
    """The study's name and its folder under studies/; default: the name of this file."""
    target: TargetSection
    """The model served and how."""
    workload: WorkloadSection
    """What is sent."""
    candidates: Annotated[Several[CandidateSection], Field(min_length=1)]
    """The ways to draft; plain decoding is always measured beside them."""
    search: SearchSection = SearchSection()
    """What is tried."""
    objective: ObjectiveSection = ObjectiveSection()
    """What is maximised."""
    constraints: ConstraintsSection = ConstraintsSection()
    """Upper bounds on latencies, per concurrency."""
    tracking: TrackingSection = TrackingSection()
    """Where MLflow keeps the study."""
