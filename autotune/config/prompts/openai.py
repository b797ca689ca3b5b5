"""OpenAI chat messages, one JSON object a line.

Rule: a key that would be sent to the server is refused, notes of any other name may stand there.
"""

from collections.abc import Mapping

from autotune.config.prompts._row import id_of, own_row, response_format_of, text_of
from autotune.config.values import shown
from autotune.core.jsontype import JSON
from autotune.core.workload import Prompt


def prompt(row: JSON) -> Prompt:
    """The prompt of a line."""
    found = own_row(row, "messages")
    messages = messages_of(found.get("messages"))
    return Prompt(
        id=id_of(found, "id", messages),
        messages=messages,
        task=text_of(found, "task"),
        response_format=response_format_of(found),
    )


def messages_of(messages: JSON) -> tuple[Mapping[str, JSON], ...]:
    """The messages, each with a role and something said."""
    if not isinstance(messages, list) or not messages:
        raise ValueError('"messages" must be a list of at least one {"role": ..., "content": ...}')
    found = [message for message in messages if isinstance(message, dict) and _is_message(message)]
    for message in messages:
        if message not in found:
            raise ValueError(f'a message has "role" and "content", got {shown(message)}')
    return tuple(found)


def _is_message(message: Mapping[str, JSON]) -> bool:
    said = "content" in message or "tool_calls" in message
    return said and isinstance(message.get("role"), str)
