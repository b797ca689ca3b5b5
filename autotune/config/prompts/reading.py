"""A prompts file: its rows with their lines, its format, and each prompt in one of two splits.

Rule: a prompt keeps its split when others are added (a hash of its id decides, not its rank);
faults begin with file and line, the first ten are shown and the others counted.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from autotune.config.prompts._rows import Row, json_rows, text_rows
from autotune.config.prompts.formats import DEFAULT, FORMATS, TEXT, Format, format_of
from autotune.config.values import shown
from autotune.core.counting import counted
from autotune.core.jsontype import JSON
from autotune.core.workload import Prompt

SPLITS = ("search", "confirmation")
_SEARCH_SHARE = 0.6
_SHOWN_FAULTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """What a prompts file holds and what is wrong with it."""

    search: tuple[Prompt, ...] = ()
    confirmation: tuple[Prompt, ...] = ()
    sha256: str = ""
    faults: tuple[str, ...] = ()
    """Each begins with the file and the line of the prompts file."""
    lines: Mapping[str, int] = field(default_factory=dict)
    """The line (of a data set: the row) of each prompt, by id."""
    notes: tuple[str, ...] = ()
    """What was passed over, and is to be told."""


def read_prompts(
    path: Path, *, seed: int, format_name: str | None = None, limit: int | None = None
) -> Prompts:
    """Read a prompts file; faults are returned, never raised."""
    try:
        raw = path.read_bytes()
        content = raw.decode("utf-8-sig")
    except FileNotFoundError:
        return Prompts(faults=(f"there is no file {path}",))
    except UnicodeDecodeError as error:
        number = raw.count(b"\n", 0, error.start) + 1
        return Prompts(faults=(f"{path}:{number}: not UTF-8: save the file as UTF-8",))
    except OSError as error:
        return Prompts(faults=(f"{path} cannot be read: {error.strerror}",))
    name = format_name or _detected(path, content)
    rows = text_rows(content) if name == TEXT else json_rows(content)
    found = Collected(where=str(path), form=FORMATS[name], seed=seed)
    found.add_all(rows, limit)
    return found.prompts(hashlib.sha256(raw).hexdigest())


def _detected(path: Path, content: str) -> str:
    """The format by what stands in the file; a .txt is judged by its first line alone."""
    plain = path.suffix == ".txt"
    rows = islice(json_rows(content), 1 if plain else None)
    return format_of(row.value for row in rows) or (TEXT if plain else DEFAULT)


@dataclass(slots=True, kw_only=True)
class Collected:
    """The prompts met so far, by split, and where each stands."""

    where: str
    form: Format
    seed: int
    faults: list[str] = field(default_factory=list)
    empty: int = 0
    """Rows that hold no prompt."""
    repeated: int = 0
    _splits: dict[str, list[Prompt]] = field(default_factory=lambda: {s: [] for s in SPLITS})
    _lines: dict[str, int] = field(default_factory=dict)
    _requests: dict[str, int] = field(default_factory=dict)
    """The line of every id under which a request will be sent."""

    def add_all(self, rows: Iterable[Row], limit: int | None) -> None:
        """Every row, or those up to the last prompt that is wanted."""
        for row in rows:
            if limit is not None and len(self._lines) >= limit:
                return
            try:
                self._add(row)
            except ValueError as error:
                self.faults.append(f"{self.where}:{row.line}: {error}")

    def _add(self, row: Row) -> None:
        if row.fault:
            raise ValueError(row.fault)
        prompt = self.form.prompt(row.value)
        if prompt is None:
            self.empty += 1
            return
        ids = [prompt.id, *(f"{prompt.id}#{i}" for i in range(2, prompt.requests + 1))]
        taken = next((name for name in ids if name in self._requests), None)
        if taken is not None and not self.form.ours:
            self.repeated += 1
            return
        if taken is not None:
            raise ValueError(
                f"the prompt {taken!r} stands in line {self._requests[taken]} already: "
                "a repeated prompt measures the prefix cache"
            )
        split = _split(row.value if self.form.ours else None, prompt.id, self.seed)
        self._requests |= dict.fromkeys(ids, row.line)
        self._lines[prompt.id] = row.line
        self._splits[split].append(prompt)

    def prompts(self, sha256: str) -> Prompts:
        """What has come of it."""
        faults = self.faults[:_SHOWN_FAULTS]
        if len(self.faults) > _SHOWN_FAULTS:
            more = counted(len(self.faults) - _SHOWN_FAULTS, "more line")
            faults.append(f"{self.where}: and {more} at fault")
        if not faults:
            faults = [
                f"{self.where}: no prompt of the split {split!r}: add some, or leave `split` out"
                for split in SPLITS
                if not self._splits[split]
            ]
        return Prompts(
            search=tuple(self._splits["search"]),
            confirmation=tuple(self._splits["confirmation"]),
            sha256=sha256,
            faults=tuple(faults),
            lines=self._lines,
            notes=tuple(self._notes()),
        )

    def _notes(self) -> Iterable[str]:
        if self.empty:
            yield f"{self.where}: {counted(self.empty, 'row')} passed over: nothing is asked"
        if self.repeated:
            yield f"{self.where}: {counted(self.repeated, 'row')} passed over: the id of another"


def _split(row: JSON, prompt_id: str, seed: int) -> str:
    given = row.get("split") if isinstance(row, dict) else None
    if given is None:
        digest = hashlib.sha256(f"{seed}:{prompt_id}".encode()).digest()
        share = int.from_bytes(digest[:8]) / 2**64
        return "search" if share < _SEARCH_SHARE else "confirmation"
    if given not in SPLITS:
        raise ValueError(f'"split" is search or confirmation, got {shown(given)}')
    return str(given)
