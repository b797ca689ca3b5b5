"""The reference of candidates.yaml under docs/: the JSON Schema, and the same for reading.

Rule: nothing is written by hand; `python -m autotune.config.reference` renews both files, and a
test fails when they are old.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from autotune.config.prompts.formats import FORMATS
from autotune.config.schema_json import json_schema
from autotune.config.vllm_fields import (
    OWNED_ENGINE_ARGS,
    OWNED_ENV,
    REFUSED_SAMPLING,
    REFUSED_SETTINGS,
)

DOCS = Path(__file__).parents[2] / "docs"

_HEAD = """\
# candidates.yaml

Every key, with its default. This page is made by `python -m autotune.config.reference`; the same
for editors is [candidates.schema.json](candidates.schema.json), a commented example is
[candidates.yaml](../candidates.yaml).

- Paths are relative to the file. `~` and, in every text, `${VAR}` and `${VAR:-default}` are filled
  in; `$${` stands for `${`.
- Unknown keys, keys that stand twice and tabs are faults. All faults are shown at once, as
  `file:line: key: rule and remedy`.
- Scalars are those of YAML 1.2: `true` and `false` alone are truth values, `1:30` is a text.
"""

_FORMATS_HEAD = """\
The format of a file is told by its content, unless `workload.prompts.format` says it.
"""

_REFUSED: Mapping[str, Mapping[str, str]] = {
    "target.engine_args": OWNED_ENGINE_ARGS,
    "target.env": OWNED_ENV,
    "workload.sampling": REFUSED_SAMPLING,
    "candidates": REFUSED_SETTINGS,
}

_TYPES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true, false",
    "object": "mapping",
}


def files() -> Mapping[Path, str]:
    """Both files as they should be."""
    return {
        DOCS / "candidates.schema.json": json.dumps(json_schema(), indent=2) + "\n",
        DOCS / "candidates.md": markdown(),
    }


def markdown() -> str:
    """The reference as Markdown."""
    schema = json_schema()
    parts = [_HEAD, *_table("The whole file", 2, schema, schema)]
    parts += [part for name in schema["properties"] for part in _sections(name, schema)]
    parts += ["## Formats of prompts\n", _FORMATS_HEAD, _formats()]
    parts += ["## Keys that are refused\n", "Some keys are not yours to set, each for a reason.\n"]
    parts += [_refusals(place, reasons) for place, reasons in _REFUSED.items()]
    return "\n".join(parts)


def _sections(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    """The table of a top-level key, and of the sections inside it."""
    for ref in _refs(schema["properties"][name]):
        section = schema["$defs"][ref]
        yield from _table(f"`{name}`", 2, section, schema)
        for key, inner in section["properties"].items():
            for below in _refs(inner):
                if "properties" in schema["$defs"][below]:
                    yield from _table(f"`{name}.{key}`", 3, schema["$defs"][below], schema)


def _table(
    title: str, depth: int, section: Mapping[str, Any], schema: Mapping[str, Any]
) -> Iterator[str]:
    yield f"{'#' * depth} {title}\n"
    yield f"{section['description']}\n"
    yield "| key | value | default | meaning |\n|---|---|---|---|"
    required = section.get("required", [])
    for key, row in section["properties"].items():
        default = "**required**" if key in required else _default(row)
        yield f"| `{key}` | {_type(row, schema)} | {default} | {row['description']} |"
    yield ""


def _refusals(place: str, reasons: Mapping[str, str]) -> str:
    rows = [f"| `{key}` | {reason} |" for key, reason in reasons.items()]
    return "\n".join(
        [f"### In `{place}`\n", "| key | why, and what to do |", "|---|---|", *rows, ""]
    )


def _formats() -> str:
    rows = [f"| `{name}` | {known.summary} |" for name, known in FORMATS.items()]
    return "\n".join(["| format | what stands in the file |", "|---|---|", *rows, ""])


def _default(row: Mapping[str, Any]) -> str:
    return f"`{json.dumps(row['default'])}`" if "default" in row else ""


def _type(row: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """What may stand there, in words."""
    if "anyOf" in row:
        return " or ".join(_type(choice, schema) for choice in row["anyOf"])
    if "$ref" in row:
        properties = schema["$defs"][row["$ref"].rsplit("/", 1)[-1]].get("properties", {})
        return f"{{{', '.join(properties)}}}" if len(properties) <= 3 else "mapping"  # noqa: PLR2004
    if row.get("type") == "array":
        inner = _type(row["items"], schema)
        return f"list of ({inner})" if " or " in inner else f"list of {inner}"
    if "properties" in row:
        return f"{{{', '.join(row['properties'])}}}"
    choices = row.get("enum", [row["const"]] if "const" in row else [])
    return ", ".join(f"`{choice}`" for choice in choices) or _TYPES[row["type"]]


def _refs(row: Mapping[str, Any]) -> Iterator[str]:
    """The names of the sections that a key may hold."""
    if "$ref" in row:
        yield row["$ref"].rsplit("/", 1)[-1]
    for inner in (*row.get("anyOf", ()), *([row["items"]] if "items" in row else ())):
        yield from _refs(inner)


def write() -> None:
    """Renew both files."""
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
