"""Files written whole or not at all."""

import os
from pathlib import Path


def write_text(path: Path, text: str) -> Path:
    """Write beside the file, then rename, so that a kill leaves the old one; gives the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    with new.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)
    return path
