"""LoRA adapters that the engine serves: which names there are, and their paths.

Rule: a name that requests carry is one that the engine serves, and what vLLM's configuration file
cannot carry is refused (load_config_file in vllm/utils/argparse_utils.py writes a list's items as
plain text).
"""

from collections.abc import Mapping
from pathlib import Path

from autotune.config.models import beside_file
from autotune.core.adapters import MODULES, lora_modules
from autotune.core.jsontype import JSON


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
    return {str(found["name"]) for found in lora_modules(engine_args) if "name" in found}


def with_path(name: str, value: JSON, root: Path) -> JSON:
    """An engine argument; of adapters the paths that begin with ./ or ../ are made absolute."""
    if name != MODULES or not isinstance(value, list):
        return value
    return [_absolute(item, root) if isinstance(item, str) else item for item in value]


def _absolute(item: str, root: Path) -> str:
    name, equals, path = item.partition("=")
    return f"{name}{equals}{beside_file(path, root)}"
