"""The fields of vLLM's SpeculativeConfig, read from its source, in the interpreter that has it.

Rules: nothing of vLLM is imported, which would take seconds and a working torch; standard library
alone, since the text of this file is run in the engine's environment; what cannot be read is an
empty answer.
"""

import ast
import importlib.util
import json
from pathlib import Path

PLACES = ("config/speculative.py", "config/__init__.py", "config.py")
"""Where the class stood in one version or another."""


def speculative_fields() -> "dict[str, object]":
    """Each field with its default, None where that is not a plain value; empty without vLLM."""
    spec = importlib.util.find_spec("vllm")
    folders = (spec.submodule_search_locations or []) if spec else []
    for file in (Path(folder) / place for folder in folders for place in PLACES):
        found = fields_of(file.read_text(encoding="utf-8")) if file.is_file() else {}
        if found:
            return found
    return {}


def fields_of(source: str) -> "dict[str, object]":
    """The annotated fields of the class SpeculativeConfig in a source text."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name == "SpeculativeConfig":
            rows = [row for row in node.body if isinstance(row, ast.AnnAssign)]
            return {
                row.target.id: row.value.value if isinstance(row.value, ast.Constant) else None
                for row in rows
                if isinstance(row.target, ast.Name) and not row.target.id.startswith("_")
            }
    return {}


if __name__ == "__main__":
    print(json.dumps(speculative_fields()))  # noqa: T201 - the answer to the process that asks
