"""Files written whole or not at all.

Rule: when a function here returns, the content is on disk under its name; until then the old
content is.
"""

import os
from pathlib import Path

OWNER_ONLY = 0o600


def write_text(path: Path, text: str) -> Path:
    """Write UTF-8 text whole; gives the path."""
    return write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes, *, private: bool = False) -> Path:
    """Write beside the file, then rename, so that a kill leaves the old one; gives the path.

    A private file can be read by its owner only.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    try:
        with new.open("wb") as file:
            if private:
                os.fchmod(file.fileno(), OWNER_ONLY)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.rename(path)
    finally:
        new.unlink(missing_ok=True)
    return path
