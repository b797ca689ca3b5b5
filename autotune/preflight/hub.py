"""Models that are named by a hub id: in the local cache, or one question to the hub.

Rule: a cached snapshot is a folder like any other; else the hub is asked once, with the token that
there is and a bound on the time. Who cannot be reached has refused nothing.
"""

import importlib
import importlib.util
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotune.core.jsontype import JSON

TIMEOUT_S = 5.0
_WEIGHTS = re.compile(r"\.(safetensors|bin|pt|pth|gguf)$")


class NotToldError(Exception):
    """The hub could not be asked; says why."""


class NoSuchModelError(Exception):
    """The hub has no such model, or none that this token may see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the hub is asked about."""

    model: str
    revision: str | None = None
    token: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """What the hub tells of a repository."""

    files: Mapping[str, int | None]
    """Names and sizes."""
    locked: bool = False
    """Whether it is gated and there is no token that could open it."""
    config: Mapping[str, JSON] = field(default_factory=dict)

    @property
    def weight_bytes(self) -> int | None:
        """Of its weights, in one format; None: no size is told."""
        safe = {n: s for n, s in self.files.items() if n.endswith(".safetensors") and "/" not in n}
        found = safe or {n: s for n, s in self.files.items() if _WEIGHTS.search(n) and "/" not in n}
        sizes = [size for size in found.values() if size is not None]
        return sum(sizes) if sizes else None

    @property
    def has_weights(self) -> bool:
        """Whether there are any."""
        return any(_WEIGHTS.search(name) for name in self.files)


Hub = Callable[[Asked], Listed]
"""Raises NotToldError or NoSuchModelError."""


def cached(model: str, revision: str | None, env: Mapping[str, str]) -> Path | None:
    """The snapshot of a hub id in the local cache; None if it has none with a config."""
    home = Path(env.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    cache = Path(env.get("HF_HUB_CACHE") or home / "hub").expanduser()
    folder = cache / f"models--{model.replace('/', '--')}"
    ref = folder / "refs" / (revision or "main")
    try:
        commit = ref.read_text(encoding="utf-8").strip()
    except OSError:
        commit = revision or ""
    snapshot = folder / "snapshots" / commit
    return snapshot if commit and (snapshot / "config.json").exists() else None


def ask(asked: Asked) -> Listed:
    """Ask the hub, once."""
    if importlib.util.find_spec("huggingface_hub") is None:
        raise NotToldError("the package `huggingface_hub` is not installed beside autotune")
    hub: Any = importlib.import_module("huggingface_hub")
    errors: Any = importlib.import_module("huggingface_hub.errors")
    try:
        info = hub.HfApi(token=asked.token).model_info(
            asked.model, revision=asked.revision, timeout=TIMEOUT_S, files_metadata=True
        )
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        raise NoSuchModelError(_line(error)) from error
    except _troubles() as error:
        raise NotToldError(_line(error)) from error
    return Listed(
        files={file.rfilename: file.size for file in info.siblings or []},
        locked=bool(info.gated) and not (asked.token or hub.get_token()),
        config=info.config or {},
    )


def _troubles() -> tuple[type[Exception], ...]:
    """What stands for a hub that is not reached: its own errors are OSErrors.

    The others are of the HTTP client that huggingface_hub brings along, 1 or 2.
    """
    found: list[type[Exception]] = [OSError, ValueError]
    for name in ("httpx", "httpx2"):
        if importlib.util.find_spec(name) is not None:
            client: Any = importlib.import_module(name)
            found.append(client.HTTPError)
    return tuple(found)


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__
