"""What a study folder knows of itself, so that `show` and `report` need no candidates file.

Rule: spec.json holds the study as it was last run, what its readers ask for and no more: the values
and what the engine's host said. It holds prompts, and a storage URL may hold a password, so that
nobody but its owner can read it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from autotune.core.counting import counted
from autotune.core.study import StudySpec
from autotune.errors import UserError
from autotune.files import write_bytes
from autotune.tuning.paths import StudyPaths


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedStudy:
    """A study as it was last run."""

    spec: StudySpec
    file: str
    """Path of the candidates file."""
    fingerprint: str
    storage: str
    """URL of the Optuna storage, as it can be opened."""
    probe: Mapping[str, str]
    target_files: Mapping[str, str] = field(default_factory=dict)
    """Digests of what a local target is made of, as it was when the study ran."""


_SAVED: TypeAdapter[SavedStudy] = TypeAdapter(SavedStudy)


def save(study: SavedStudy, paths: StudyPaths) -> None:
    """Write spec.json, whole or not at all."""
    write_bytes(paths.folder / "spec.json", _SAVED.dump_json(study, indent=1), private=True)


def load(paths: StudyPaths) -> SavedStudy:
    """Read spec.json; raises UserError that names the studies there are."""
    file = paths.folder / "spec.json"
    if not file.exists():
        folder = paths.root / "studies"
        found = sorted(p.parent.name for p in folder.glob("*/spec.json"))
        known = f"there are: {', '.join(found)}" if found else "none has been run here yet"
        raise UserError(f"no study {paths.name!r} under {folder} ({known})")
    try:
        return _SAVED.validate_json(file.read_bytes())
    except ValidationError as error:
        raise UserError(
            f"{file} was written by another version of autotune; run the study again to renew it "
            f"({counted(error.error_count(), 'other field')})"
        ) from error


def find_root(start: Path) -> Path:
    """The nearest folder upwards that holds studies/; `start` itself if there is none."""
    for folder in (start, *start.parents):
        if (folder / "studies").is_dir():
            return folder
    return start
