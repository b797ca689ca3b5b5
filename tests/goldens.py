"""Texts that we emit, compared with files; AUTOTUNE_UPDATE_GOLDEN=1 writes the files anew."""

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"


def check_golden(name: str, text: str) -> None:
    """Assert that `text` is what tests/golden/<name> holds."""
    path = FOLDER / name
    if os.environ.get("AUTOTUNE_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{path} differs; see {__file__}"
