"""Files written whole or not at all."""

import os
from pathlib import Path


def write_text(path: Path, text: str) -> Path:
    """Write UTF-8 text whole; gives the path."""
    return write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> Path:
    """Write beside the file, then rename, so that a kill leaves the old one; gives the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    try:
        with new.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.rename(path)
    finally:
        new.unlink(missing_ok=True)
    return path
