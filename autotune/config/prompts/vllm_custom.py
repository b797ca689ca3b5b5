"""`vllm bench serve --dataset-name custom`: a prompt a line, with the length of its reply or not.

Rule: the prompt is one message of the user, rendered by the chat template, as vLLM's own benchmark
does it (CustomDataset in vllm/benchmarks/datasets/datasets.py).
"""

from collections.abc import Mapping

from autotune.config.prompts._row import id_of, own_row, response_format_of, text_of, user, words
from autotune.config.values import shown
from autotune.core.jsontype import JSON
from autotune.core.workload import Prompt


def prompt(row: JSON) -> Prompt:
    """The prompt of a line."""
    found = own_row(row, "prompt")
    messages = (user(words(found.get("prompt"), '"prompt"')),)
    return Prompt(
        id=id_of(found, "id", messages),
        messages=messages,
        task=text_of(found, "task"),
        response_format=response_format_of(found),
        max_tokens=_output_tokens(found),
    )


def _output_tokens(row: Mapping[str, JSON]) -> int | None:
    given = row.get("output_tokens")
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise ValueError(f'"output_tokens" is a whole number of at least 1, got {shown(given)}')
    return given
