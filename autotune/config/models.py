"""What a `model` of the file means: a folder beside the file, or a model on the hub.

Rule: decided by the text and by what exists, without the network; a local folder is made absolute,
since the engine is started elsewhere.
"""

import os
import re
from pathlib import Path

_LOCAL = ("./", "../", "/")
_HUB = re.compile(r"[\w.-]+/[\w.-]+(:[\w.-]+)?")
_STORE = re.compile(r"[a-z0-9]+://.+")


def resolve_model(text: str, root: Path) -> str:
    """The model as the engine is given it; raises ValueError when it can be neither."""
    first = text.split("/", maxsplit=1)[0]
    if text.startswith(_LOCAL) or _exists(root / first):
        return absolute(text, root)
    if _HUB.fullmatch(text) or _STORE.fullmatch(text):
        return text
    raise ValueError(
        f"{text!r} is neither a folder here ({root}) nor the id of a model on the hub (org/name)"
    )


def absolute(text: str, root: Path) -> str:
    """The path as it is seen from anywhere; links are kept."""
    return os.path.normpath(root / text)


def beside_file(text: str, root: Path) -> str:
    """A text that begins with ./ or ../ as a path, any other as it is."""
    return absolute(text, root) if text.startswith(("./", "../")) else text


def check_model(text: str, root: Path) -> None:
    """Raise ValueError unless the model is a folder with config.json, or not a folder at all."""
    model = Path(resolve_model(text, root))
    if not model.is_absolute():
        return
    if not _exists(model):
        raise ValueError(f"there is no folder {model}{_hint(model)}")
    if not _exists(model / "config.json"):
        raise ValueError(f"{model} holds no config.json: it is not a model's folder{_hint(model)}")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name too long, a folder that may not be entered
        return False


def _hint(model: Path) -> str:
    made = re.search(r"/studies/[^/]+/models(/|$)", str(model))
    return "; `make models` builds the demo's models" if made else ""
