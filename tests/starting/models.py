"""Models' folders and a cache of the hub, as small as they can be."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path

REVISION = "a" * 40
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 8}


def model(
    folder: Path,
    config: Mapping[str, object],
    *,
    parameters: int = 0,
    tensors: Mapping[str, tuple[int, ...]] | None = None,
    tokens: tuple[str, ...] = (),
    **files: Mapping[str, object],
) -> Path:
    """A folder with a configuration, the header of its weights, and a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = {"config": config, **files}
    if tokens:
        contents["tokenizer"] = {"model": {"vocab": {t: i for i, t in enumerate(tokens)}}}
    for name, content in contents.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    shapes = {**({"w": (parameters,)} if parameters else {}), **(tensors or {})}
    header = json.dumps(
        {"__metadata__": {}} | {name: {"dtype": "BF16", "shape": s} for name, s in shapes.items()}
    ).encode()
    if shapes:
        weights = struct.pack("<Q", len(header)) + header
        (folder / "model.safetensors").write_bytes(weights)
    return folder


def in_cache(cache: Path, name: str) -> Path:
    """The folder of a model in a cache, for `model` to fill."""
    repository = cache / f"models--{name.replace('/', '--')}"
    (repository / "blobs").mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(REVISION, encoding="utf-8")
    return repository / "snapshots" / REVISION
