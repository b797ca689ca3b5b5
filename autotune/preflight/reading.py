"""Models to Checkpoints: local folders, cached snapshots, or what the hub tells.

Rule: nothing is loaded, nothing is downloaded, and no code of a model's is run.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from autotune.core.jsontype import JSON
from autotune.preflight import hub
from autotune.preflight.checkpoint import Checkpoint, Trouble
from autotune.preflight.vocabulary import read_vocabulary
from autotune.preflight.weights import PULL, Weights, is_pointer, read_weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A model as the engine is given it, and what of it is wanted."""

    model: str
    revision: str | None = None
    tokenizer: str = ""
    """Where its tokenizer is if not with the model."""
    vocabulary: bool = False
    """Whether its tokens are wanted, too: they take the longest to read."""
    env: Mapping[str, str] = field(default_factory=dict)
    """The engine's environment, which names the hub's cache and token."""


def read(named: Named, ask: hub.Hub = hub.ask) -> Checkpoint:
    """All that is wanted of a model."""
    folder = Path(named.model)
    if folder.is_absolute():
        return _folder(named, folder)
    if "://" in named.model:
        return Checkpoint(name=named.model, unchecked="it is in a store that is not looked into")
    repository = named.model.partition(":")[0]  # behind the colon a GGUF says which of its files
    snapshot = hub.cached(repository, named.revision, named.env)
    found = _folder(named, snapshot, whole=False) if snapshot else None
    if found is not None and found.weight_bytes:
        return found
    asked = hub.Asked(model=repository, revision=named.revision, token=named.env.get("HF_TOKEN"))
    return _told(named, asked, found or Checkpoint(name=named.model), ask)


def _told(named: Named, asked: hub.Asked, found: Checkpoint, ask: hub.Hub) -> Checkpoint:
    """What the hub says, beside what the cache has of it."""
    try:
        listed = ask(asked)
    except hub.NotToldError as error:
        return _with(found, unchecked=f"its weights are not on this machine, and {error}")
    except hub.NoSuchModelError as error:
        remedy = "see the id and revision; a private model needs HF_TOKEN or `hf auth login`"
        told = f"the hub has no such model or revision, or keeps it from us ({error})"
        return _with(found, Trouble(evidence=f"{named.model}: {told}", remedy=remedy))
    if not listed.has_weights:
        none = f"the repository {named.model} has no weights"
        return _with(found, Trouble(evidence=none, remedy="name the one that has them"))
    if listed.locked:
        told = f"{named.model} is gated, and there is no token"
        remedy = "ask for access on its page, then set HF_TOKEN or run `hf auth login`"
        return _with(found, Trouble(evidence=told, remedy=remedy))
    return Checkpoint(
        name=found.name,
        config=found.config or listed.config,
        weight_bytes=listed.weight_bytes,
        vocabulary=found.vocabulary,
        generation=found.generation,
        unchecked="it is not on this machine yet: of its files the hub has told names and sizes",
    )


def _with(found: Checkpoint, trouble: Trouble | None = None, unchecked: str = "") -> Checkpoint:
    return Checkpoint(
        name=found.name,
        config=found.config,
        vocabulary=found.vocabulary,
        generation=found.generation,
        troubles=(trouble,) if trouble else (),
        unchecked=unchecked,
    )


def _folder(named: Named, folder: Path, *, whole: bool = True) -> Checkpoint:
    """A folder's files; of a snapshot that is not `whole` the missing ones are no trouble."""
    config, trouble = _config(folder)
    weights = read_weights(folder)
    lost = weights.troubles if whole else ()
    return Checkpoint(
        name=named.model,
        config=config,
        tensors=weights.tensors,
        weight_bytes=_size(weights),
        vocabulary=read_vocabulary(_tokenizer(named, folder)) if named.vocabulary else None,
        generation=_mapping(folder / "generation_config.json"),
        troubles=(*((trouble,) if trouble else ()), *lost, *_pointers(folder)),
    )


def _pointers(folder: Path) -> list[Trouble]:
    """Files of the tokenizer that Git LFS has left behind."""
    return [
        Trouble(evidence=f"{folder / name} is a Git LFS pointer, not the file", remedy=PULL)
        for name in ("tokenizer.json", "tokenizer.model")
        if is_pointer(folder / name)
    ]


def _size(weights: Weights) -> int | None:
    """Bytes of the tensors, which is what is loaded; of files without a header all there is."""
    if weights.tensors:
        return sum(tensor.size for tensor in weights.tensors.values())
    return weights.size


def _tokenizer(named: Named, folder: Path) -> Path:
    if not named.tokenizer:
        return folder
    other = Path(named.tokenizer)
    return other if other.is_absolute() else hub.cached(named.tokenizer, None, named.env) or folder


def _config(folder: Path) -> tuple[Mapping[str, JSON], Trouble | None]:
    file = folder / "config.json"
    if is_pointer(file):
        return {}, Trouble(evidence=f"{file} is a Git LFS pointer, not the file", remedy=PULL)
    try:
        found: JSON = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        return {}, Trouble(evidence=f"{file}: {error.strerror}", remedy="name a model's folder")
    except ValueError as error:
        told = f"{file} is no JSON ({error})"
        return {}, Trouble(evidence=told, remedy="copy or download the model again")
    return (found, None) if isinstance(found, dict) else ({}, None)


def _mapping(file: Path) -> Mapping[str, JSON]:
    try:
        found: JSON = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # not there, or no JSON: the engine will say so
    return found if isinstance(found, dict) else {}


def read_adapter(folder: Path) -> Checkpoint:
    """A LoRA adapter's folder: its configuration, and whether its weights are there."""
    file = folder / "adapter_config.json"
    troubles = []
    if not file.exists():
        told = f"{folder} holds no adapter_config.json: it is no LoRA adapter"
        troubles.append(Trouble(evidence=told, remedy="see target.engine_args.lora_modules"))
    elif not any((folder / f"adapter_model.{kind}").exists() for kind in ("safetensors", "bin")):
        told = f"{folder} holds no adapter_model.safetensors"
        troubles.append(Trouble(evidence=told, remedy="copy or download the adapter again"))
    return Checkpoint(name=str(folder), config=_mapping(file), troubles=tuple(troubles))
