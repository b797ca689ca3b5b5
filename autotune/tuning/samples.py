"""Per-request samples of a launch: JSON lines while it runs, one Parquet file when it has ended.

Laws: a pass is on disk (fsynced) before the next begins; a line counts when its newline is there,
so a kill costs at most the line it tore; a prompt or a reply is never written, of a reply only the
marks of core/replies.py under the study's own key.
"""

import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from autotune.core.jsontype import JSON
from autotune.core.replies import print_of
from autotune.files import write_bytes
from autotune.ports import RequestSample

LINES = "samples.jsonl"
PARQUET = "samples.parquet"

_COLUMNS = {
    "prompt_id": pa.string(),
    "prompt_tokens": pa.int64(),
    "output_tokens": pa.int64(),
    "sent_s": pa.float64(),
    "waited_s": pa.float64(),
    "first_token_s": pa.float64(),
    "end_s": pa.float64(),
    "finish_reason": pa.string(),
    "error": pa.string(),
    "reply_words": pa.int64(),
    "reply_marks": pa.string(),
    "reply_whole": pa.string(),
    "distinct_2": pa.float64(),
    "chunk_ms": pa.list_(pa.float64()),
    "chunk_tokens": pa.list_(pa.int64()),
}
_CHUNKS = ("chunk_ms", "chunk_tokens")


class SampleWriter:
    """Appends passes to the samples file of one launch; closed by its `with` block."""

    def __init__(self, path: Path, reply_key: bytes) -> None:
        self._key = reply_key
        self._file = path.open("ab")
        self._file.truncate(len(_whole_lines(path)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()

    def append(self, pass_header: Mapping[str, JSON], samples: Iterable[RequestSample]) -> None:
        """One line per request, each with the header's fields; on disk when this returns."""
        requests = (dict(pass_header) | _row(sample, self._key) for sample in samples)
        lines = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in requests)
        self._file.write(lines.encode())
        self._file.flush()
        os.fsync(self._file.fileno())


def compact(lines: Path) -> Path:
    """Turn JSON lines into Parquet beside them; the lines go when the Parquet is in place."""
    whole = io.BytesIO()
    pq.write_table(_table(lines), whole, compression="zstd")
    target = write_bytes(lines.with_suffix(".parquet"), whole.getvalue())
    lines.unlink()
    return target


def read(folder: Path) -> pd.DataFrame:
    """The samples of a launch, from the Parquet file or, until it is there, from the lines."""
    frame: pd.DataFrame = _read(folder).to_pandas()
    return frame


def rows(folder: Path) -> list[dict[str, Any]]:
    """The same, a dict for each request and without the chunks; empty where there are no samples.

    Columns that an older autotune did not write are missing.
    """
    if not any((folder / name).exists() for name in (PARQUET, LINES)):
        return []
    table = _read(folder)
    wanted = [name for name in table.column_names if name not in _CHUNKS]
    found: list[dict[str, Any]] = table.select(wanted).to_pylist()
    return found


def _read(folder: Path) -> pa.Table:
    parquet = folder / PARQUET
    return pq.read_table(parquet) if parquet.exists() else _table(folder / LINES)


def _row(sample: RequestSample, key: bytes) -> dict[str, JSON]:
    first, said = sample.first_token_s, print_of(sample.text, key)
    return {
        "prompt_id": sample.prompt_id,
        "prompt_tokens": sample.prompt_tokens,
        "output_tokens": sample.output_tokens,
        "sent_s": round(sample.sent_s, 6),
        "waited_s": round(sample.waited_s, 6),
        "first_token_s": None if first is None else round(first, 6),
        "end_s": round(sample.end_s, 6),
        "finish_reason": sample.finish_reason,
        "error": sample.error,
        "reply_words": said.words,
        "reply_marks": said.marks,
        "reply_whole": said.whole,
        "distinct_2": None if said.distinct_2 is None else round(said.distinct_2, 4),
        "chunk_ms": [round((at - sample.sent_s) * 1e3, 2) for at in sample.chunk_s],
        "chunk_tokens": list(sample.chunk_tokens),
    }


def _whole_lines(path: Path) -> bytes:
    content = path.read_bytes()
    return content[: content.rfind(b"\n") + 1]


def _table(path: Path) -> pa.Table:
    lines: Sequence[dict[str, JSON]] = [json.loads(x) for x in _whole_lines(path).splitlines()]
    header = {name: None for row in lines for name in row if name not in _COLUMNS}
    arrays = {name: pa.array([row.get(name) for row in lines]) for name in header}
    for name, kind in _COLUMNS.items():
        arrays[name] = pa.array([row.get(name) for row in lines], type=kind)
    return pa.table(arrays)
