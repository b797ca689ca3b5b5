"""`response_format`: what replies must look like, in the shape that vLLM's server takes.

Rule: what vLLM would refuse with every request is a fault of the file. Source: vLLM 0.32,
entrypoints/generate/base/protocol.py.
"""

from collections.abc import Mapping
from typing import cast

from autotune.config.values import shown
from autotune.core.jsontype import JSON

TYPES = ("json_schema", "json_object", "structural_tag", "text")
_SCHEMA_SHAPE = "{type: json_schema, json_schema: {name: ..., schema: {...}}}"


def checked_response_format(value: object) -> Mapping[str, JSON]:
    """The value, if vLLM takes it; raises ValueError with the rule and the right shape."""
    if not isinstance(value, dict) or value.get("type") not in TYPES:
        kind = value.get("type") if isinstance(value, dict) else value
        raise ValueError(
            f"response_format has a type of {', '.join(TYPES)}, got {shown(kind)}; "
            f"a JSON schema is written {_SCHEMA_SHAPE}"
        )
    if value["type"] == "json_schema":
        inner = value.get("json_schema")
        named = isinstance(inner, dict) and isinstance(inner.get("name"), str)
        if not isinstance(inner, dict) or not named or not isinstance(inner.get("schema"), dict):
            raise ValueError(
                f"a response_format of type json_schema is written {_SCHEMA_SHAPE}, "
                f"got {shown(inner)}"
            )
    return cast("Mapping[str, JSON]", value)
