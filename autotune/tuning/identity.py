"""What tells one set of model files from another, without reading gigabytes.

Rule: the configuration is read whole, of each large file its size, head and tail: retraining in
place changes them; a copy of the same files is the same model. Hub ids have no identity here.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from autotune.core.adapters import lora_modules
from autotune.core.jsontype import JSON
from autotune.core.study import StudySpec, Target

EDGE = 1 << 20
CONFIGS = ("config.json", "adapter_config.json")
WEIGHTS = ("*.safetensors", "*.bin", "*.gguf")
TOKENIZER = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template*",
    "additional_chat_templates/*",
)
"""What makes tokens of messages; the templates as transformers looks for them."""
DEFAULTS = "generation_config.json"


def with_weights(spec: StudySpec) -> StudySpec:
    """The study with the identity of every local draft filled in."""
    candidates = (replace(c, weights=identity(c.model) if c.model else "") for c in spec.candidates)
    return replace(spec, candidates=tuple(candidates))


def identity(model: str) -> str:
    """Sixteen hex digits for a local folder; empty for anything else."""
    folder = Path(model)
    if not folder.is_dir():
        return ""
    digest = hashlib.sha256()
    for config in (folder / name for name in CONFIGS):
        digest.update(config.read_bytes() if config.exists() else b"")
    for path in _found(folder, WEIGHTS):
        digest.update(_edges(path))
    return digest.hexdigest()[:16]


def served_with(target: Target) -> Mapping[str, str]:
    """What is served beside the target's weights: a digest of its files, of each adapter its own.

    The files are those of the tokenizer, the chat templates and the defaults of sampling, where
    the engine looks for them. Empty where none of it is a local file.
    """
    digest, files = hashlib.sha256(), list(_beside(target))
    for path in files:
        digest.update(_edges(path))
    adapters = {f"lora {name}": identity(path) for name, path in _adapters(target.engine_args)}
    found = {"files": digest.hexdigest()[:16] if files else "", **adapters}
    return {name: value for name, value in found.items() if value}


def files_of(target: Target) -> Mapping[str, str]:
    """Digests of all that a local target is made of, by what they are of; empty on the hub."""
    served = {f"target_{name}": value for name, value in served_with(target).items()}
    weights = identity(target.model)
    return {"target": weights, **served} if weights else served


def _beside(target: Target) -> Iterator[Path]:
    args = target.engine_args
    defaults = args.get("generation_config", "auto")
    # With `vllm` the engine takes the tokens that end a reply from there all the same.
    folder = target.model if defaults in ("auto", "vllm") else str(defaults)
    yield from _found(Path(str(args.get("tokenizer") or target.model)), TOKENIZER)
    yield from _found(Path(folder), [DEFAULTS])
    given = Path(str(args.get("chat_template") or ""))
    if _is_file(given):
        yield given


def _adapters(engine_args: Mapping[str, JSON]) -> Iterator[tuple[str, str]]:
    """Name and path of each adapter."""
    for module in lora_modules(engine_args):
        if "path" in module:
            yield str(module.get("name")), str(module["path"])


def _found(folder: Path, patterns: Iterable[str]) -> list[Path]:
    return sorted(p for pattern in patterns for p in folder.glob(pattern) if p.is_file())


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # the template itself instead of its name
        return False


def _edges(path: Path) -> bytes:
    """Name, size, head and tail: all there is of a small file."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(EDGE)
        file.seek(max(size - EDGE, 0))
        return f"{path.name} {size}".encode() + head + file.read(EDGE)


def model_defaults(target: Target) -> Mapping[str, JSON]:
    """The sampling parameters that the engine takes from a local target's own file; else none."""
    if target.engine_args.get("generation_config", "auto") != "auto":
        return {}
    file = Path(target.model) / "generation_config.json"
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # not there, or no JSON: the engine will say so
    return found if isinstance(found, dict) else {}
