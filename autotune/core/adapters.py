"""LoRA adapters as the engine's arguments name them.

Rule: `lora_modules` is read as vLLM 0.32 reads it from a config file: texts `name=path` or JSON
objects as texts, or one mapping (LoRAParserAction in vllm/entrypoints/launchers/cli_args.py).
"""

import json
from collections.abc import Iterator, Mapping

from autotune.core.jsontype import JSON

MODULES = "lora_modules"


def lora_modules(engine_args: Mapping[str, JSON]) -> Iterator[Mapping[str, JSON]]:
    """What is said of each adapter; empty for what cannot be read."""
    given = engine_args.get(MODULES)
    for item in given if isinstance(given, list) else [given]:
        yield _module(item)


def _module(item: JSON) -> Mapping[str, JSON]:
    if isinstance(item, str) and "=" in item and "," not in item:
        name, _, path = item.partition("=")
        return {"name": name, "path": path}
    try:
        found = json.loads(item) if isinstance(item, str) else item
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
