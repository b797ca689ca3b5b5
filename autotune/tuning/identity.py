"""What tells one set of model files from another, without reading gigabytes.

Rule: the configuration is read whole, of each weight file its size, head and tail: retraining in
place changes them; a copy of the same files is the same model. Hub ids have no identity here.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from autotune.core.study import JSON, StudySpec, Target

EDGE = 1 << 20
WEIGHTS = ("*.safetensors", "*.bin", "*.gguf")


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
    config = folder / "config.json"
    digest.update(config.read_bytes() if config.exists() else b"")
    for path in sorted(p for pattern in WEIGHTS for p in folder.glob(pattern)):
        size = path.stat().st_size
        digest.update(f"{path.name} {size}".encode())
        with path.open("rb") as file:
            digest.update(file.read(EDGE))
            file.seek(max(size - EDGE, 0))
            digest.update(file.read(EDGE))
    return digest.hexdigest()[:16]


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
