"""What a launch has measured, on disk before the next pass starts.

Rules: a line is fsynced before anything else happens; a torn last line is a pass that never was;
a launch without its `told` mark was interrupted, and `salvage` turns what it had into records.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from pydantic import TypeAdapter, ValidationError

from autotune.core.trial import EngineFacts, Launch, Measurement, Pass, Record
from autotune.files import write_text
from autotune.tuning.passes import Readings

_LAUNCH: TypeAdapter[Launch] = TypeAdapter(Launch)
_PASS: TypeAdapter[Pass] = TypeAdapter(Pass)
_READINGS: TypeAdapter[Readings] = TypeAdapter(Readings)
_FACTS: TypeAdapter[EngineFacts] = TypeAdapter(EngineFacts)

LAUNCH_FILE = "launch.json"
PASSES_FILE = "passes.jsonl"
FACTS_FILE = "facts.json"
TOLD_FILE = "told"


class Journal:
    """The journal of one launch; a context manager around its passes file."""

    def __init__(self, folder: Path, launch: Launch, fingerprint: str) -> None:
        self.folder = folder
        header = {"fingerprint": fingerprint, "launch": _LAUNCH.dump_python(launch, mode="json")}
        write_text(folder / LAUNCH_FILE, json.dumps(header, indent=1) + "\n")

    def __enter__(self) -> Self:
        self._file: IO[bytes] = (self.folder / PASSES_FILE).open("ab")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def facts(self, facts: EngineFacts) -> None:
        """Keep what the engine said of itself."""
        write_text(self.folder / FACTS_FILE, _FACTS.dump_json(facts, indent=1).decode())

    def add(self, measured: Pass, read: Readings) -> None:
        """Append one pass and the engine's counters around it; on disk when this returns."""
        counters = _READINGS.dump_json(read)
        self._file.write(_PASS.dump_json(measured)[:-1] + b',"counters":' + counters + b"}\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def mark_told(folder: Path) -> None:
    """All records of this launch are in the ledger."""
    (folder / TOLD_FILE).touch()


def passes(folder: Path) -> list[Pass]:
    """The passes of a launch; what comes after a torn line is dropped."""
    path = folder / PASSES_FILE
    if not path.exists():
        return []
    found = []
    for line in path.read_bytes().splitlines():
        try:
            found.append(_PASS.validate_json(line))
        except ValidationError:
            break
    return found


def launch_of(folder: Path) -> Launch | None:
    """What a launch was made for; None where nothing says."""
    file = folder / LAUNCH_FILE
    if not file.exists():
        return None
    return _LAUNCH.validate_python(json.loads(file.read_text(encoding="utf-8"))["launch"])


def salvage(folder: Path) -> Iterator[Record]:
    """Records of an interrupted launch: every K that has at least one valid pass."""
    if (folder / TOLD_FILE).exists() or not (folder / LAUNCH_FILE).exists():
        return
    header = json.loads((folder / LAUNCH_FILE).read_text(encoding="utf-8"))
    launch = _LAUNCH.validate_python(header["launch"])
    facts_file = folder / FACTS_FILE
    facts = _FACTS.validate_json(facts_file.read_bytes()) if facts_file.exists() else None
    measured = passes(folder)
    for k in launch.num_speculative_tokens:
        mine = tuple(p for p in measured if p.num_speculative_tokens == k)
        if any(not p.invalid for p in mine):
            yield Record(
                trial=launch.trial(k),
                outcome=Measurement(passes=mine, cut_short=True),
                launch_id=folder.name,
                fingerprint=header["fingerprint"],
                why=launch.why,
                facts=facts,
            )
