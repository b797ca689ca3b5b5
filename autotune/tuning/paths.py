"""Every file name of a study, in one place."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPaths:
    """Where one study keeps its things."""

    root: Path
    """Folder that holds studies/ and reports/."""
    name: str

    @property
    def folder(self) -> Path:
        """studies/<name>."""
        return self.root / "studies" / self.name

    @property
    def database(self) -> Path:
        """The Optuna study."""
        return self.folder / "study.db"

    @property
    def lock(self) -> Path:
        """Held by the autotune that works on the study."""
        return self.folder / "study.lock"

    @property
    def reply_key(self) -> Path:
        """The secret under which replies are marked."""
        return self.folder / "reply.key"

    @property
    def launches(self) -> Path:
        """One folder per launch: launches/NNN."""
        return self.folder / "launches"

    @property
    def verification(self) -> "StudyPaths":
        """The launches that verify what the study has recommended: studies/<name>/verify."""
        return StudyPaths(root=self.root, name=f"{self.name}/verify")

    @property
    def report(self) -> Path:
        """reports/<name>."""
        return self.root / "reports" / self.name

    def next_launch(self, known: Iterable[str] = ()) -> Path:
        """Make the folder of the next launch; `known` are launches whose folder may be gone."""
        self.launches.mkdir(parents=True, exist_ok=True)
        names = (*(p.name for p in self.launches.iterdir()), *known)
        numbers = [int(name) for name in names if name.isdigit()]
        folder = self.launches / f"{max(numbers, default=0) + 1:03d}"
        folder.mkdir()
        return folder
