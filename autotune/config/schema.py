"""The candidates file, section by section: its keys, their meaning, their defaults.

Rule: the texts under the fields are the documentation; each section makes the core's value and so
lets the core judge it. Nothing here reads another file.
"""

import re
from importlib.util import find_spec
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    JsonValue,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from autotune.config.candidate import CandidateSection
from autotune.config.faults import raise_if_any
from autotune.config.sections import (
    Section,
    Several,
    VllmArgs,
    not_empty,
    refused,
)
from autotune.config.values import Duration, Fraction, Ks, Milliseconds, Text, Utilizations
from autotune.config.vllm_fields import (
    OWNED_ENGINE_ARGS,
    OWNED_ENV,
)
from autotune.config.workload import WorkloadSection
from autotune.core.study import Constraint, Objective, Search

Sampler = Literal["tpe", "gp", "qmc", "random", "grid"]

_SEARCH = Search()
_OBJECTIVE = Objective()


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
        raise_if_any(refused(args, OWNED_ENGINE_ARGS))
        return args

    @field_validator("env")
    @classmethod
    def _our_env(cls, env: dict[str, str]) -> dict[str, str]:
        raise_if_any(refused(env, OWNED_ENV))
        return env


class SearchSection(Section):
    """What is tried and what it may cost."""

    num_speculative_tokens: Ks = _SEARCH.num_speculative_tokens
    """The K to try: a number, a rising list, or {low, high}. K = 0 is always measured. Few of them
    come first, then those around the best; while the largest is the best and the curve rises, up to
    four times as large ones are tried."""
    gpu_memory_utilization: Utilizations = Field(
        default=_SEARCH.gpu_memory_utilization,
        json_schema_extra={"default": _SEARCH.gpu_memory_utilization[0]},
    )
    """Share of the GPU's memory (of the RAM on a CPU) that a server takes: a number, a rising list,
    or {low, high, step}, in steps of 0.05 if none is given. The search runs at the largest; what
    is confirmed and deployed is the smallest whose KV cache holds the measured peak with
    headroom."""
    budget: Duration | None = None
    """Wall-clock time for the whole study, such as 90s, 18m, 1h30m (a number is seconds); without
    it a K that may be the answer gets max_blocks."""
    start_timeout: Duration = _SEARCH.start_timeout_s
    """How long a server may take to complete its first request; raise it for large models."""
    min_blocks: int = _SEARCH.min_blocks
    """Blocks of prompts that a K gets at least, where it is measured; two where the budget is far
    too small."""
    max_blocks: int = _SEARCH.max_blocks
    """Blocks of prompts that a K gets at most, if the prompts fill that many."""
    confirm_rounds: int = _SEARCH.confirm_rounds
    """How often baseline and winner are launched in turn at the end."""
    sampler: Sampler = "tpe"
    """What chooses among the values of a candidate when there are more combinations than
    max_variants: an Optuna sampler, or grid, which spreads over all of them."""
    max_variants: int = _SEARCH.max_variants
    """How many combinations of a candidate's lists and ranges are launched at the most."""
    seed: int = _SEARCH.seed
    """Orders the passes, and splits prompts that name no split."""

    @field_validator("sampler")
    @classmethod
    def _can_run(cls, sampler: Sampler) -> Sampler:
        if sampler == "gp" and find_spec("torch") is None:
            raise ValueError(
                "the sampler gp needs torch beside autotune, which is not installed: install it, "
                "or take another sampler"
            )
        return sampler

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
            start_timeout_s=self.start_timeout,
            min_blocks=self.min_blocks,
            max_blocks=self.max_blocks,
            confirm_rounds=self.confirm_rounds,
            sampler=self.sampler,
            max_variants=self.max_variants,
            seed=self.seed,
        )


class ObjectiveSection(Section):
    """What is maximised, and what counts as a gain."""

    metric: Literal["output_throughput", "tpot", "e2e", "goodput"] = "output_throughput"
    """What a speedup is a ratio of: output_throughput (in a closed loop the time per reply at equal
    length, at a request rate the mean E2E latency), tpot (mean time per output token), e2e (mean
    E2E latency), goodput (requests per second that keep workload.slo)."""
    tolerance: Fraction = _OBJECTIVE.tolerance
    """Two speedups closer than this (2% or 0.02) are the same to you: the knee is the smallest K
    within it of the best."""
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
        if uri is not None and (uri.startswith("file:") or not re.match(r"[a-z][a-z0-9+-]*:", uri)):
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
    ] = Field(default=MlflowSection(), json_schema_extra={"default": True})
    """true: a SQLite file in studies/; false: nothing; or {uri, experiment}."""


_STUDY_SCHEMA = WithJsonSchema({"type": "string", "pattern": "^[a-z0-9][a-z0-9._-]*$"})


def _study(name: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name):
        near = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")
        hint = f"; did you mean {near!r}?" if near else ""
        raise ValueError(
            "a study's name is made of a-z, 0-9, dot, dash and underscore, and begins with a "
            f"letter or digit, got {name!r}{hint}"
        )
    return name


class CandidatesFile(Section):
    """What `autotune run` tunes: target, workload, candidates, search."""

    study: Annotated[str, AfterValidator(_study), _STUDY_SCHEMA] | None = None
    """The study's name and its folder under studies/; default: the name of this file, or of its
    folder if it is candidates.yaml."""
    target: TargetSection
    """The model served and how."""
    workload: WorkloadSection
    """What is sent."""
    candidates: Annotated[Several[CandidateSection], AfterValidator(not_empty)] = Field(
        json_schema_extra={"minItems": 1}
    )
    """The ways to draft; plain decoding is always measured beside them."""
    search: SearchSection = SearchSection()
    """What is tried."""
    objective: ObjectiveSection = ObjectiveSection()
    """What is maximised."""
    constraints: ConstraintsSection = ConstraintsSection()
    """Upper bounds on latencies, per concurrency."""
    tracking: TrackingSection = TrackingSection()
    """Where MLflow keeps the study."""
