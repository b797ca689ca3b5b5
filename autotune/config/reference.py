"""The reference of candidates.yaml, made from the schema: JSON Schema for editors and Markdown.

Rule: nothing is written by hand; `python -m autotune.config.reference` renews both files under
docs/, and a test fails when they are old.
"""

from typing import Any

from autotune.config.schema import CandidatesFile


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a candidates file."""
    schema = CandidatesFile.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema
