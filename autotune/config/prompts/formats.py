"""The formats of prompts: how a row of each is told, and what makes a prompt of it.

Rule: a table. The key of a row tells its format; formats that others have made keep their own
columns as they are, in those that are written for a study every key is judged.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from autotune.config.prompts import openai, sharegpt, spec_bench, text, vllm_custom
from autotune.core.jsontype import JSON
from autotune.core.workload import Prompt

TEXT = "text"
DEFAULT = "openai"


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format of prompts."""

    prompt: Callable[[JSON], Prompt | None]
    """The prompt of a row; None if the row holds none. Raises ValueError with rule and remedy."""
    summary: str
    key: str = ""
    """The key that tells a row of this format."""
    ours: bool = False
    """Written for a study: `split` is obeyed and a repeated prompt is a fault."""


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        "openai": Format(
            key="messages",
            prompt=openai.prompt,
            ours=True,
            summary="JSON lines with `messages` as in the OpenAI chat API; optional `id`, `task`, "
            "`language`, `response_format` and `split` (search or confirmation).",
        ),
        "vllm_custom": Format(
            key="prompt",
            prompt=vllm_custom.prompt,
            ours=True,
            summary="JSON lines with `prompt`, as `vllm bench serve --dataset-name custom` reads "
            "them; `output_tokens` bounds the reply where it is less than max_tokens. Optional "
            "keys as above.",
        ),
        "sharegpt": Format(
            key="conversations",
            prompt=sharegpt.prompt,
            summary="A JSON array (or JSON lines) with `conversations` of {from, value}; the first "
            "turn of the human is the prompt.",
        ),
        "spec_bench": Format(
            key="turns",
            prompt=spec_bench.prompt,
            summary="JSON lines with `question_id`, `category` and `turns`, Spec-Bench's "
            "question.jsonl; a later turn is sent after the reply to the one before.",
        ),
        TEXT: Format(
            prompt=text.prompt, ours=True, summary="A .txt file with a prompt on each line."
        ),
    }
)


def format_of(rows: Iterable[JSON]) -> str | None:
    """The format of the first row that shows one."""
    for row in rows:
        for name, known in FORMATS.items():
            if isinstance(row, dict) and known.key and known.key in row:
                return name
    return None
