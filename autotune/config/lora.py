"""LoRA adapters that the engine serves: which names there are, and their paths.

Rule: `lora_modules` is read as vLLM 0.32 reads it from a config file: texts `name=path` or JSON
objects as texts, or one mapping (LoRAParserAction in vllm/entrypoints/launchers/cli_args.py;
load_config_file in vllm/utils/argparse_utils.py, which writes a list's items as plain text).
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from autotune.config.models import beside_file
from autotune.core.study import JSON

MODULES = "lora_modules"


def lora_fault(name: str, engine_args: Mapping[str, JSON]) -> str | None:
    """Why requests cannot name this adapter, and what to write."""
    given = engine_args.get(MODULES)
    if isinstance(given, list) and any(isinstance(item, dict) for item in given):
        return (
            f"vLLM's configuration file cannot carry mappings in the list {MODULES}: write "
            "name=path for each adapter"
        )
    served = sorted(adapters(engine_args))
    if name not in served:
        there = f"there are: {', '.join(served)}" if served else "it serves none"
        return (
            f"the engine serves no adapter {name!r} ({there}): add {name}=path to "
            f"target.engine_args.{MODULES}"
        )
    if engine_args.get("enable_lora") is not True:
        return "the engine serves no adapters without target.engine_args.enable_lora: true"
    return None


def adapters(engine_args: Mapping[str, JSON]) -> set[str]:
    """The names of the adapters that the engine serves."""
    return {str(found["name"]) for found in map(_module, _items(engine_args)) if "name" in found}


def with_path(name: str, value: JSON, root: Path) -> JSON:
    """An engine argument; of adapters the paths that begin with ./ or ../ are made absolute."""
    if name != MODULES or not isinstance(value, list):
        return value
    return [_absolute(item, root) if isinstance(item, str) else item for item in value]


def _absolute(item: str, root: Path) -> str:
    name, equals, path = item.partition("=")
    return f"{name}{equals}{beside_file(path, root)}"


def _items(engine_args: Mapping[str, JSON]) -> Iterator[JSON]:
    given = engine_args.get(MODULES)
    yield from given if isinstance(given, list) else [given]


def _module(item: JSON) -> Mapping[str, JSON]:
    if isinstance(item, dict):
        return item
    if not isinstance(item, str):
        return {}
    if "=" in item and "," not in item:
        name, _, path = item.partition("=")
        return {"name": name, "path": path}
    try:
        found = json.loads(item)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
