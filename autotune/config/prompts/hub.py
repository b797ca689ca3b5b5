"""A data set of the Hugging Face hub, read with the package `datasets` where that is installed.

Rule: the package is imported when a data set is read and at no other time; what it cannot get is a
fault with a remedy, not a traceback. It has errors of its own (datasets/exceptions.py), and lets
those of the packages it stands on through: all of them become a ValueError here, and nothing else.
"""

import contextlib
import hashlib
import importlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from autotune.config.prompts._rows import Row
from autotune.config.prompts.formats import FORMATS, format_of
from autotune.config.prompts.reading import Collected, Prompts
from autotune.core.jsontype import JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class HubDataset:
    """Which rows of which data set."""

    name: str
    split: str = "train"
    subset: str | None = None
    column: str | None = None
    """The column that holds what is asked; None: the first of those that are known."""
    limit: int | None = None

    @property
    def where(self) -> str:
        """How faults name it."""
        subset = f"/{self.subset}" if self.subset else ""
        return f"{self.name}{subset}[{self.split}]"


Load = Callable[[HubDataset], Iterable[Mapping[str, JSON]]]


_REMEDY = "save the prompts as JSON lines and name that file"


def load_rows(source: HubDataset) -> Iterator[Mapping[str, JSON]]:
    """The rows as `datasets` gives them; raises ValueError when it cannot."""
    if importlib.util.find_spec("datasets") is None:
        raise ValueError(
            "the package `datasets` is not installed beside autotune: `pip install datasets`; or "
            f"{_REMEDY}"
        )
    with _told():
        datasets: Any = importlib.import_module("datasets")
        # What is streamed is fetched row by row, so it may fail at any of them.
        yield from datasets.load_dataset(
            source.name, source.subset, split=source.split, streaming=source.limit is not None
        )


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Turn what `datasets` raises into one ValueError with the first cause and the remedy."""
    try:
        yield
    except _troubles() as error:
        first: BaseException = error
        while first.__cause__ is not None:  # "An error occurred while generating the dataset"
            first = first.__cause__
        raise ValueError(f"{_line(error, first)}; {_REMEDY}") from error


def _line(error: BaseException, first: BaseException) -> str:
    lines = [str(e).strip().partition("\n")[0].rstrip(".: ") for e in (error, first)]
    named = [line or type(e).__name__ for line, e in zip(lines, (error, first), strict=True)]
    return ": ".join(dict.fromkeys(named))


def _troubles() -> tuple[type[BaseException], ...]:
    """All that reading a data set raises on its own account.

    ImportError: a format that needs another package. RuntimeError: a data set that is a script,
    which datasets 4 runs no more; what is not implemented. EOFError: a torn archive.
    """
    found: list[type[BaseException]] = [OSError, ValueError, ImportError, RuntimeError, EOFError]
    for module, name in (
        ("datasets.exceptions", "DatasetsError"),
        ("httpx", "HTTPError"),  # huggingface_hub 1
        ("httpx2", "HTTPError"),  # and 2
        ("aiohttp", "ClientError"),
        ("pyarrow.lib", "ArrowException"),
    ):
        # Only what is loaded can have been raised.
        if hasattr(sys.modules.get(module), name):
            found.append(getattr(sys.modules[module], name))
    return tuple(found)


def read_hub(source: HubDataset, *, seed: int, load: Load = load_rows) -> Prompts:
    """Read a data set; faults are returned, never raised."""
    try:
        rows = list(_wanted(source, load(source)))
    except (OSError, ValueError) as error:
        return Prompts(faults=(f"{source.where}: {error}",))
    name = format_of(row.value for row in rows)
    if name is None:
        columns = ", ".join(known.key for known in FORMATS.values() if known.key)
        return Prompts(
            faults=(f"{source.where}: no column of {columns}: save it as a file with one",)
        )
    form = replace(FORMATS[name], ours=False)
    found = Collected(where=source.where, form=form, seed=seed)
    found.add_all(rows, source.limit)
    told = json.dumps([row.value for row in rows], sort_keys=True)
    return found.prompts(hashlib.sha256(told.encode()).hexdigest())


_IDS = ("id", "question_id")
_TASKS = ("task", "category")


def _wanted(source: HubDataset, rows: Iterable[Mapping[str, JSON]]) -> Iterator[Row]:
    """What the formats read of each row: other columns may be called anything."""
    keys = [known.key for known in FORMATS.values() if known.key]
    for number, row in enumerate(rows, start=1):
        if source.limit is not None and number > source.limit:
            return
        column = source.column or next((key for key in keys if key in row), None)
        if column is None or column not in row:
            raise ValueError(
                f"row {number} has no column {column or ' or '.join(keys)}, but {', '.join(row)}"
            )
        ids: dict[str, JSON] = {key: row[key] for key in _IDS if row.get(key) is not None}
        tasks = {key: row[key] for key in _TASKS if isinstance(row.get(key), str)}
        yield Row(line=number, value={**ids, **tasks, column: row[column]})
