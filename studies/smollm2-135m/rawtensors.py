"""Tensors as raw bytes: just enough of the safetensors format to copy, hash and compose weights.

models.py must answer "is everything already built?" in about a second, and importing torch alone
takes longer. Composing a draft only moves bytes, so nothing here looks inside a tensor.
"""

import hashlib
import json
import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class RawTensor:
    """One tensor as it lies in a file: its type's name (as in "BF16"), shape and bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes | memoryview


def read(path: Path) -> dict[str, RawTensor]:
    """All tensors of a safetensors file by name, mapped rather than loaded.

    Raises ValueError where the file is no safetensors file, cut short ones included.
    """
    with path.open("rb") as file:
        try:
            view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            return dict(_tensors(view))
        except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
            raise ValueError(f"{path} is not a whole safetensors file ({error})") from error


def _tensors(view: memoryview) -> Iterator[tuple[str, RawTensor]]:
    (length,) = _LENGTH.unpack(view[: _LENGTH.size])
    start = _LENGTH.size + length
    header = json.loads(bytes(view[_LENGTH.size : start]))
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        data = view[start + begin : start + end]
        if len(data) != end - begin:
            raise ValueError(f"{name} is cut short")
        yield name, RawTensor(entry["dtype"], tuple(entry["shape"]), data)


def write(path: Path, tensors: Mapping[str, RawTensor]) -> None:
    """Write `tensors` in the order of their names, so that equal tensors give equal files."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, tensor in sorted(tensors.items()):
        end = offset + len(tensor.data)
        shape = list(tensor.shape)
        header[name] = {"dtype": tensor.dtype, "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the format wants the data to start on 8 bytes
    with path.open("wb") as file:
        file.write(_LENGTH.pack(len(text)) + text)
        for _, tensor in sorted(tensors.items()):
            file.write(tensor.data)


def digest(tensors: Mapping[str, RawTensor]) -> str:
    """SHA-256 over names, types, shapes and bytes: the weights, not how a file packs them."""
    total = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        total.update(json.dumps([name, tensor.dtype, list(tensor.shape)]).encode())
        total.update(tensor.data)
    return total.hexdigest()
