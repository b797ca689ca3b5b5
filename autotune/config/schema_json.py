"""The JSON Schema of a candidates file, for editors and for the reference.

Rule: made from the sections by pydantic, then rid of what says nothing: titles, null defaults,
defaults of whole sections.
"""

from typing import Any

from autotune.config.schema import CandidatesFile


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a candidates file."""
    schema = CandidatesFile.model_json_schema()
    for section in (schema, *schema["$defs"].values()):
        section.pop("title", None)
        for key in section.get("properties", {}).values():
            _tidy(key)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "candidates.yaml of autotune",
        **schema,
    }


def _tidy(key: dict[str, Any]) -> None:
    key.pop("title", None)
    key["description"] = " ".join(key["description"].split())
    if "$ref" in key or key.get("default", ...) in (None, [], {}):
        key.pop("default", None)
    choices = [choice for choice in key.pop("anyOf", []) if choice != {"type": "null"}]
    if len(choices) == 1:
        key |= choices[0]
    elif choices:
        key["anyOf"] = choices
