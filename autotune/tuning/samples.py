"""Per-request samples of a launch: JSON lines while it runs, one Parquet file when it has ended.

Laws: a pass is on disk (fsynced) before the next begins; a line counts when its newline is there,
so a kill costs at most the line it tore; a prompt or a reply is never written, only its hash.
"""

import hashlib
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from autotune.core.study import JSON
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
    "text_sha1": pa.string(),
    "chunk_ms": pa.list_(pa.float64()),
    "chunk_tokens": pa.list_(pa.int64()),
}


class SampleWriter:
    """Appends passes to the samples file of one launch; closed by its `with` block."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab")
        self._file.truncate(len(_whole_lines(path)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()

    def append(self, pass_header: Mapping[str, JSON], samples: Iterable[RequestSample]) -> None:
        """One line per request, each with the header's fields; on disk when this returns."""
        rows = (dict(pass_header) | _row(sample) for sample in samples)
        lines = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
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
    parquet = folder / PARQUET
    table = pq.read_table(parquet) if parquet.exists() else _table(folder / LINES)
    frame: pd.DataFrame = table.to_pandas()
    return frame


def _row(sample: RequestSample) -> dict[str, JSON]:
    first = sample.first_token_s
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
        "text_sha1": _sha1(sample.text),
        "chunk_ms": [round((at - sample.sent_s) * 1e3, 2) for at in sample.chunk_s],
        "chunk_tokens": list(sample.chunk_tokens),
    }


def _sha1(text: str) -> str:
    """Tells equal replies from different ones; no secret hangs on it."""
    return hashlib.sha1(text.encode(errors="surrogatepass"), usedforsecurity=False).hexdigest()


def _whole_lines(path: Path) -> bytes:
    content = path.read_bytes()
    return content[: content.rfind(b"\n") + 1]


def _table(path: Path) -> pa.Table:
    rows: Sequence[dict[str, JSON]] = [json.loads(x) for x in _whole_lines(path).splitlines()]
    header = {name: None for row in rows for name in row if name not in _COLUMNS}
    arrays = {name: pa.array([row.get(name) for row in rows]) for name in header}
    for name, kind in _COLUMNS.items():
        arrays[name] = pa.array([row.get(name) for row in rows], type=kind)
    return pa.table(arrays)
