"""The weight files of a local folder: are they whole, and what tensors are in them.

Rule: headers only, without torch: a safetensors file begins with the length of its JSON header
(eight bytes), which names every tensor with its dtype, shape and place in the file.
"""

import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from autotune.core.counting import counted
from autotune.core.jsontype import JSON
from autotune.preflight.checkpoint import Tensor, Trouble

INDEX = "model.safetensors.index.json"
OTHERS = ("*.bin", "*.pt", "*.pth", "*.gguf")
"""What vLLM loads when there is no safetensors file (model_loader/default_loader.py), and GGUF."""
NO_WEIGHTS = ("training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth")
LFS = b"version https://git-lfs"
LENGTH_BYTES = 8
HEADER_LIMIT = 100_000_000  # of the safetensors format

PULL = "fetch the files themselves: `git lfs pull`, or `hf download`"
AGAIN = "download or copy the model again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """What a folder holds of them."""

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    size: int | None = None
    troubles: tuple[Trouble, ...] = ()


class _BrokenFileError(Exception):
    """A weight file that is not whole; says what is wrong with it."""


def read_weights(folder: Path) -> Weights:
    """Everything about a folder's weights that can be known without loading them."""
    index, missing = _shards(folder)
    files = index or sorted(folder.glob("*.safetensors"))
    others = [p for p in _others(folder) if p.name not in NO_WEIGHTS] if not files else []
    if not files and not others and not missing:
        none = f"{folder} holds no weights (*.safetensors, *.bin, *.pt, *.gguf)"
        return Weights(troubles=(Trouble(evidence=none, remedy=AGAIN),))
    tensors: dict[str, Tensor] = {}
    troubles = list(_absent(folder, missing))
    for file in files:
        try:
            tensors |= _header(file)
        except _BrokenFileError as error:
            troubles.append(_broken(file, error))
    troubles += [_pointer(file) for file in others if is_pointer(file)]
    size = sum(file.stat().st_size for file in (*files, *others)) if not troubles else None
    return Weights(tensors=tensors if not troubles else {}, size=size, troubles=tuple(troubles))


def is_pointer(file: Path) -> bool:
    """Whether it is what Git LFS leaves in place of a large file."""
    try:
        with file.open("rb") as opened:
            return opened.read(len(LFS)) == LFS
    except OSError:
        return False


def _others(folder: Path) -> Iterator[Path]:
    for pattern in OTHERS:
        yield from sorted(folder.glob(pattern))


def _shards(folder: Path) -> tuple[list[Path], list[str]]:
    """The files that the index names: those that are there, and the names of the others."""
    try:
        found: JSON = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return [], []  # no index; one that is no JSON leaves the files themselves
    names = found.get("weight_map") if isinstance(found, dict) else None
    wanted = sorted({str(v) for v in names.values()}) if isinstance(names, dict) else []
    there = [folder / name for name in wanted if (folder / name).exists()]
    return there, [name for name in wanted if not (folder / name).exists()]


def _absent(folder: Path, names: Iterable[str]) -> Iterator[Trouble]:
    missing = list(names)
    if missing:
        shown = ", ".join(missing[:3]) + (" ..." if len(missing) > 3 else "")  # noqa: PLR2004
        files = counted(len(missing), "weight file")
        told = f"{files} named by {folder / INDEX} and not there ({shown})"
        yield Trouble(evidence=told, remedy=AGAIN)


def _broken(file: Path, error: _BrokenFileError) -> Trouble:
    return Trouble(evidence=f"{file} {error}", remedy=PULL if is_pointer(file) else AGAIN)


def _pointer(file: Path) -> Trouble:
    return Trouble(evidence=f"{file} is a Git LFS pointer, not the file", remedy=PULL)


def _header(file: Path) -> dict[str, Tensor]:
    """The tensors of one file; raises _BrokenFileError when it is not whole."""
    if is_pointer(file):
        raise _BrokenFileError("is a Git LFS pointer, not the file")
    try:
        actual = file.stat().st_size
        with file.open("rb") as opened:
            head = opened.read(LENGTH_BYTES)
            if len(head) < LENGTH_BYTES:
                raise _BrokenFileError(f"is cut off after {actual} bytes")
            (length,) = struct.unpack("<Q", head)
            if length > min(HEADER_LIMIT, actual):
                raise _BrokenFileError("is no safetensors file, or is cut off in its header")
            described: JSON = json.loads(opened.read(length))
    except OSError as error:
        raise _BrokenFileError(f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise _BrokenFileError("has a header that is no JSON") from error
    if not isinstance(described, dict):
        raise _BrokenFileError("has a header that is no table of tensors")
    rows = {n: row for n, row in described.items() if n != "__metadata__" and isinstance(row, dict)}
    need = LENGTH_BYTES + length + max((_end(row) for row in rows.values()), default=0)
    if actual < need:
        raise _BrokenFileError(f"is cut off: {actual} bytes of {need}")
    return {name: _tensor(row) for name, row in rows.items()}


def _end(row: Mapping[str, JSON]) -> int:
    offsets = row.get("data_offsets")
    last = offsets[-1] if isinstance(offsets, list) and offsets else 0
    return last if isinstance(last, int) else 0


def _tensor(row: Mapping[str, JSON]) -> Tensor:
    shape = row.get("shape")
    numbers = [n for n in shape if isinstance(n, int)] if isinstance(shape, list) else []
    return Tensor(dtype=str(row.get("dtype")), shape=tuple(numbers))
