"""What lies on this machine: a target's files, models beside it, the hub's cache.

Rule: the network is never used and no weight is read: JSON files and the headers of safetensors.
A file that is broken counts as not there; the engine will say so.
"""

import hashlib
import importlib.util
import json
import re
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from autotune.core.checkpoint import Checkpoint
from autotune.core.jsontype import JSON
from autotune.errors import UserError

_HUB = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_HEADER_LENGTH = 8
_LONGEST_HEADER = 100 << 20
PYTHON_TIMEOUT_S = 60.0


def read_target(model: str, cache: Path | None = None) -> Checkpoint:
    """A local folder, or an id of the hub with what the cache has of it."""
    folder = Path(model).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise UserError(f"{folder} holds no config.json: it is not a model's folder")
        return read_folder(model, folder)
    if not _HUB.fullmatch(model) or folder.exists():
        raise UserError(f"{model!r} is neither a folder here nor the id of a model (org/name)")
    snapshot = next((path for name, path in _snapshots(cache) if name == model), None)
    return read_folder(model, snapshot) if snapshot else Checkpoint(name=model)


def beside(model: str, like: Checkpoint) -> list[Checkpoint]:
    """The other models of the folder that a local target lies in; `like` is that target."""
    folder = Path(model).expanduser().absolute()
    if not folder.is_dir():
        return []
    own = folder.resolve()
    return [
        read_folder(str(other), other, like)
        for other in sorted(folder.parent.iterdir())
        if (other / "config.json").is_file() and other.resolve() != own
    ]


def cached(like: Checkpoint, cache: Path | None = None) -> list[Checkpoint]:
    """The models in the hub's cache that have a configuration."""
    return [read_folder(name, path, like) for name, path in _snapshots(cache)]


def _snapshots(cache: Path | None) -> Iterator[tuple[str, Path]]:
    """Id and folder of each model in the cache: the revision `main`, else the newest."""
    # Importing it takes a tenth of a second; only this verb asks.
    from huggingface_hub import scan_cache_dir  # noqa: PLC0415
    from huggingface_hub.errors import CacheNotFound  # noqa: PLC0415

    try:
        found = scan_cache_dir(cache)
    except CacheNotFound:
        return
    for repo in sorted(found.repos, key=lambda one: one.repo_id):
        if repo.repo_type != "model" or not repo.revisions:
            continue
        newest = max(repo.revisions, key=lambda revision: revision.last_modified)
        snapshot = repo.refs.get("main", newest).snapshot_path
        if (snapshot / "config.json").is_file():
            yield repo.repo_id, snapshot


def read_folder(name: str, folder: Path, like: Checkpoint | None = None) -> Checkpoint:
    """What the files of a model's folder say.

    A tokenizer takes a second to read: that of another size than `like` has is left alone.
    """
    found = Checkpoint(
        name=name,
        config=_json(folder / "config.json"),
        generation=_json(folder / "generation_config.json"),
        shapes={k: v for file in sorted(folder.glob("*.safetensors")) for k, v in _shapes(file)},
    )
    if like is not None and like.vocab_size != found.vocab_size:
        return found
    return replace(found, vocabulary=_vocabulary(folder / "tokenizer.json"))


def _json(path: Path) -> Mapping[str, JSON]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _shapes(path: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of each tensor, from the header: its length in eight bytes, then JSON."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(_HEADER_LENGTH))
            header = json.loads(file.read(min(length, _LONGEST_HEADER)))
        for name, about in header.items():
            if name != "__metadata__":
                yield name, tuple(about["shape"])
    except (OSError, ValueError, struct.error, KeyError, TypeError, AttributeError):
        return


def _vocabulary(path: Path) -> str:
    """A digest of the tokens by id, added ones included; empty where there is no such file."""
    found = _json(path)
    model, added = found.get("model"), found.get("added_tokens")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if not vocabulary:
        return ""
    specials = [
        [token.get("id"), token.get("content")]
        for token in (added if isinstance(added, list) else [])
        if isinstance(token, dict)
    ]
    text = json.dumps([vocabulary, specials], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def has_package(python: str, package: str) -> bool:
    """Whether an interpreter finds a package; that it does not run is a UserError."""
    if python == sys.executable:
        return importlib.util.find_spec(package) is not None
    code = "import importlib.util as u, sys; print(u.find_spec(sys.argv[1]) is not None)"
    try:
        done = subprocess.run(
            [python, "-c", code, package],
            capture_output=True,
            text=True,
            timeout=PYTHON_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(f"--python: {python!r} does not run: {error}") from error
    return done.stdout.strip() == "True"
