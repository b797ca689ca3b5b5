"""What the rows of several formats share: ids, texts, and keys that may not stand in them.

Rule: a fault is a ValueError with the rule, what was given, and what to write instead.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence

from autotune.config.response_format import checked_response_format
from autotune.config.values import shown
from autotune.config.vllm_fields import REFUSED_SAMPLING, REQUEST_FIELDS
from autotune.core.jsontype import JSON

Message = Mapping[str, JSON]
_PER_PROMPT = ("messages", "response_format")


def mapping(row: JSON, key: str) -> Mapping[str, JSON]:
    """The row, if it is an object."""
    if not isinstance(row, dict):
        raise ValueError(f'a line is an object with "{key}", got {shown(row)}')  # noqa: TRY004
    return row


def own_row(row: JSON, key: str) -> Mapping[str, JSON]:
    """The row of a file that is written for a study: no key in it may seem to be sent."""
    found = mapping(row, key)
    for name in found:
        if name not in _PER_PROMPT and name in (*REQUEST_FIELDS, *REFUSED_SAMPLING):
            raise ValueError(
                f"{name!r} is not sent per prompt: it stands in workload.sampling, "
                "the same for every request"
            )
    return found


def user(text: str) -> Message:
    """A message of the user."""
    return {"role": "user", "content": text}


def text_of(row: Mapping[str, JSON], key: str) -> str:
    """An optional text."""
    value = row.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f'"{key}" must be a text, got {shown(value)}')  # noqa: TRY004
    return value


def words(value: JSON, name: str) -> str:
    """A text that says something."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name} must be a text that is not empty, got {shown(value)}")
    return value


def id_of(
    row: Mapping[str, JSON], key: str, messages: Sequence[Message], later: Sequence[str] = ()
) -> str:
    """The id of the row, or a hash of what is sent."""
    given = row.get(key)
    if isinstance(given, str | int) and not isinstance(given, bool) and str(given):
        return str(given)
    if given is not None:
        raise ValueError(f'"{key}" must be a text, got {shown(given)}')
    said: list[object] = [*messages, *later]
    text = json.dumps(said, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def response_format_of(row: Mapping[str, JSON]) -> Mapping[str, JSON] | None:
    """An optional `response_format` in vLLM's shape."""
    given = row.get("response_format")
    return None if given is None else checked_response_format(given)
