"""What an Optuna trial says of a record: the whole of it, and what a dashboard shows beside."""

import itertools
import json
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from autotune.core.trial import Failure, Record

_RECORD: TypeAdapter[Record] = TypeAdapter(Record)
RECORD, RECORD_ID = "record", "record_id"
CHUNK = 32_000
"""Characters of a record in one attribute. Optuna keeps them as TEXT, which in MySQL ends at 65,535
bytes, and escaping may double them."""


def record_id(record: Record) -> str:
    """What makes a record itself: the launch and the K."""
    return f"{record.launch_id}:{record.trial.num_speculative_tokens}"


def attributes(record: Record) -> dict[str, object]:
    """The user attributes of a record's trial."""
    attributes: dict[str, object] = {
        RECORD_ID: record_id(record),
        **_chunks(record),
        "why": record.why,
        "launch": record.launch_id,
    }
    if isinstance(record.outcome, Failure):
        attributes |= {"cause": record.outcome.cause.value, "detail": record.outcome.detail}
        return attributes
    if record.outcome.pruned:
        attributes |= {"pruned": record.outcome.pruned}
    if record.outcome.spec and record.outcome.spec.profile:
        profile = record.outcome.spec.profile
        attributes |= {"acceptance_rate": profile.rate, "acceptance_length": profile.length}
    return attributes


def _chunks(record: Record) -> dict[str, str]:
    """The record as text, in attributes that any database holds: `record`, `record.1`, ..."""
    # ASCII, so that no character takes more than two bytes when Optuna escapes the text again.
    text = json.dumps(json.loads(_RECORD.dump_json(record)))
    parts = [text[i : i + CHUNK] for i in range(0, len(text), CHUNK)]
    return {RECORD if i == 0 else f"{RECORD}.{i}": part for i, part in enumerate(parts)}


def record_of(held: Mapping[str, Any]) -> Record:
    """The record that a trial was told with, from its user attributes."""
    names = (RECORD, *(f"{RECORD}.{i}" for i in range(1, len(held))))
    parts = itertools.takewhile(held.__contains__, names)
    return _RECORD.validate_json("".join(held[name] for name in parts))
