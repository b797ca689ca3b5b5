"""What tells one set of model files from another, without reading gigabytes.

Rule: the configuration is read whole, of each weight file its size, head and tail: retraining in
place changes them; a copy of the same files is the same model. Hub ids have no identity here.
"""

import hashlib
from dataclasses import replace
from pathlib import Path

from autotune.core.study import StudySpec

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
