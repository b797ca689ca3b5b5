"""The section `workload`: prompts, concurrency, sampling parameters.

Rule: it is production's traffic or the answer is worth nothing, so what vLLM would refuse, ignore
or answer differently while it speculates is a fault here.
"""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    field_validator,
    model_validator,
)

from autotune.config.faults import Said, raise_if_any
from autotune.config.response_format import checked_response_format
from autotune.config.sections import (
    OpenSection,
    Positive,
    Section,
    Several,
    did_you_mean,
    not_empty,
    refused,
    thawed,
)
from autotune.config.values import Milliseconds
from autotune.config.vllm_fields import HARMLESS_SAMPLING, REFUSED_SAMPLING, REQUEST_FIELDS
from autotune.core.workload import Level, Sampling, Slo

PLACEHOLDER = "YOUR-PROMPTS.jsonl"
_REPLACE = (
    f"{PLACEHOLDER} is a placeholder that `autotune init` has left: name a file of real prompts "
    "from your traffic here (docs/candidates.md has the formats)"
)
_RANDOM_NAMES = ("random", "random-mm", "prefix_repetition", "synthetic")
_RANDOM = (
    "prompts of random tokens are refused: how many drafts are accepted depends on the text, and "
    "what is measured on random tokens says nothing about production; name a file of real prompts "
    "(one that is really called so: ./NAME)"
)


class LevelSection(Section):
    """One concurrency of the workload."""

    level: Positive
    """How many requests are under way at any time; with a request_rate, at most."""
    weight: float = Field(default=1.0, gt=0)
    """What the level counts in the overall pick."""
    request_rate: float | None = Field(default=None, gt=0)
    """Requests per second, coming by themselves (Poisson arrivals): the open loop of `vllm bench
    serve --request-rate R --max-concurrency level`. Throughput is the rate's there, so the speedup
    is one of mean E2E latency. A block takes requests_per_stream * level / request_rate seconds.
    With conversations of several turns it is conversations that come at this rate: each later turn
    is a request on top, sent when the reply before it has come. Without it the level is a closed
    loop."""


def _levels(value: object) -> object:
    items = value if isinstance(value, list) else [value]
    return [{"level": item} if not isinstance(item, dict) else item for item in items]


class SloSection(Section):
    """Service level objectives with their unit, such as `ttft: 300 ms`; any of them."""

    ttft: Milliseconds | None = None
    """Time to the first token."""
    tpot: Milliseconds | None = None
    """Time per further token, mean over a reply."""
    e2e: Milliseconds | None = None
    """Time to the last token."""

    @model_validator(mode="after")
    def _sound(self) -> Self:
        self.value()
        return self

    def value(self) -> Slo:
        """The core's value."""
        return Slo(ttft_ms=self.ttft, tpot_ms=self.tpot, e2e_ms=self.e2e)


def _sampling_schema(schema: dict[str, Any]) -> None:
    schema["properties"].pop("params")
    schema["additionalProperties"] = True


class SamplingSection(OpenSection):
    """The production sampling parameters. Further keys are request fields of vLLM."""

    model_config = ConfigDict(json_schema_extra=_sampling_schema)
    rest: ClassVar[str] = "params"

    temperature: float = Field(ge=0)
    """0 is greedy; no default, since acceptance and so the answer depend on it."""
    params: dict[str, JsonValue] = Field(default={})

    @field_validator("params")
    @classmethod
    def _passable(cls, params: dict[str, JsonValue]) -> dict[str, JsonValue]:
        kept = {k: v for k, v in params.items() if v not in HARMLESS_SAMPLING.get(k, ())}
        known = ("temperature", *REQUEST_FIELDS, *REFUSED_SAMPLING)
        unknown: list[Said] = [
            ((key,), f"unknown request field {key!r}{hint}")
            for key in kept
            if key not in known and (hint := did_you_mean(key, known))
        ]
        raise_if_any(refused(kept, REFUSED_SAMPLING) + unknown)
        return kept

    def value(self) -> Sampling:
        """The core's value."""
        return Sampling(temperature=self.temperature, params=thawed(self.params))


def _prompts(value: object) -> object:
    return {"file": value} if isinstance(value, str) else value


class PromptsSection(Section):
    """A file of prompts, or a data set of the Hugging Face hub."""

    file: Annotated[str, Field(min_length=1)] | None = None
    """The file, relative to this one. `prompts: FILE` means the same."""
    format: Literal["openai", "vllm_custom", "sharegpt", "spec_bench", "text"] | None = None
    """What stands in the file; default: told by its content."""
    hf: Annotated[str, Field(pattern=r"^[\w.-]+(/[\w.-]+)?$")] | None = None
    """A data set of the hub, org/name; read with the package `datasets`, which must be there."""
    subset: str | None = None
    """The data set's configuration, where it has several."""
    split: str | None = None
    """The data set's split; default: train."""
    column: Literal["prompt", "messages", "turns", "conversations"] | None = None
    """The column of the data set that holds what is asked; default: the first of these there is."""
    limit: Positive | None = None
    """Read no more than this many prompts."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        said: list[Said] = [
            ((key,), f"{value!r}: {_RANDOM}")
            for key, value in (("file", self.file), ("hf", self.hf))
            if value in _RANDOM_NAMES
        ]
        if self.file == PLACEHOLDER:
            said.append((("file",), _REPLACE))
        if (self.file is None) == (self.hf is None):
            said.append(((), "give one of file and hf (or just a file's name)"))
        hub = ("subset", "split", "column") if self.hf is None else ()
        said += [((key,), f"{key} belongs to hf: remove it") for key in hub if getattr(self, key)]
        if self.hf is not None and self.format is not None:
            said.append((("format",), "format belongs to file: name the column instead"))
        raise_if_any(said)
        return self


class WorkloadSection(Section):
    """What is sent to the server, as production sends it."""

    prompts: Annotated[
        PromptsSection,
        BeforeValidator(_prompts, json_schema_input_type=str | PromptsSection),
    ]
    """A file of prompts in one of the formats below, relative to this file, or a mapping. A prompt
    that names no `split` is put into one by a hash of its id: 60 of 100 are for the search, the
    others for the confirmation."""
    concurrency: Annotated[
        Several[LevelSection],
        BeforeValidator(_levels, json_schema_input_type=Positive | list[Positive | LevelSection]),
        AfterValidator(not_empty),
    ]
    """Requests under way at any time: a number, a list, or a list of {level, weight,
    request_rate}."""
    max_tokens: Positive
    """Longest reply, in tokens."""
    sampling: SamplingSection
    """Sent with every request."""
    ignore_eos: bool = False
    """false: a reply ends where the model ends it, as in production. true: it goes on to
    max_tokens, so that all replies are equally long, as benchmarks want them; drafts are accepted
    more or less often in text that is continued by force, and with that the speedup is another."""
    requests_per_stream: Annotated[int, Field(ge=4)] = 4
    """Prompts per concurrent stream in one block; of a conversation all turns are sent."""
    chat_template_kwargs: dict[str, JsonValue] = Field(default={})
    """Arguments of the chat template, such as enable_thinking."""
    slo: SloSection | None = None
    """What makes a request a good one. Goodput, the good requests per second, is then shown beside
    the speedup, as in `vllm bench serve --goodput`; objective.metric says
    whether it is maximised, too."""
    too_long: Literal["refuse", "drop"] = "refuse"
    """What becomes of a prompt that leaves no room for max_tokens in the context: `refuse` stops
    before anything is launched, `drop` goes on without it. Of a conversation all turns and replies
    count."""
    lora: Annotated[str, Field(min_length=1)] | None = None
    """The LoRA adapter that requests name as their model; target.engine_args must serve it:
    enable_lora: true and lora_modules: [name=path]. Drafts are not adapted."""
    response_format: (
        Annotated[dict[str, JsonValue], AfterValidator(checked_response_format)] | None
    ) = None
    """What every reply must look like, as vLLM takes it: {type: json_schema, json_schema: {name,
    schema}}. A prompt may have one of its own."""

    @field_validator("concurrency")
    @classmethod
    def _once(cls, levels: tuple[LevelSection, ...]) -> tuple[LevelSection, ...]:
        found = [level.level for level in levels]
        faults: list[Said] = [
            ((i,), f"concurrency {level} stands here twice; a level has one request_rate or none")
            for i, level in enumerate(found)
            if level in found[:i]
        ]
        raise_if_any(faults)
        return levels

    @property
    def levels(self) -> tuple[Level, ...]:
        """The core's values."""
        return tuple(
            Level(concurrency=lv.level, weight=lv.weight, request_rate=lv.request_rate)
            for lv in self.concurrency
        )
