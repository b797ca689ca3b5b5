"""`show --requests`: every request of one launch, while it runs and when it has ended.

Rule: a row is what the samples hold; a launch needs no record to be looked into.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from autotune.cli.showing import console, study_paths
from autotune.errors import UserError
from autotune.tuning import samples, saved
from autotune.tuning.paths import StudyPaths

LAST = "last"
NAMES = (
    *("pass", "block", "c", "K", "prompt", "tokens in", "out"),
    *("sent s", "TTFT ms", "end s", "finish", "error", "pass invalid"),
)


def show(name: str, root: Path | None, launch: str) -> None:
    """Print the requests of a launch; times are seconds since their pass began."""
    paths = study_paths(name, root)
    saved.load(paths)
    folder = _folder(paths, launch)
    try:
        rows = samples.rows(folder)
    except (OSError, ValueError) as error:
        raise UserError(f"the samples in {folder} are damaged: {error}") from error
    table = Table(*NAMES, title=f"requests of launch {folder.name}")
    for row in rows:
        table.add_row(*(escape(cell) for cell in _cells(row)))
    console.print(table)


def _folder(paths: StudyPaths, launch: str) -> Path:
    """The folder of a launch, by `3`, `003` or `last`."""
    folders = {int(p.name): p for p in sorted(paths.launches.glob("[0-9]*")) if p.name.isdigit()}
    wanted = max(folders, default=0) if launch == LAST else int(launch) if launch.isdigit() else -1
    if wanted not in folders:
        known = ", ".join(p.name for p in folders.values()) or "none"
        raise UserError(f"no launch {launch!r} under {paths.launches}; there are: {known}")
    return folders[wanted]


def _cells(row: Mapping[str, Any]) -> list[str]:
    first = row["first_token_s"]
    return [
        *(str(row[name]) for name in ("order", "block", "concurrency", "num_speculative_tokens")),
        row["prompt_id"],
        str(row["prompt_tokens"]),
        str(row["output_tokens"]),
        f"{row['sent_s']:.3f}",
        "" if first is None else f"{(first - row['sent_s']) * 1e3:.1f}",
        f"{row['end_s']:.3f}",
        row["finish_reason"] or "",
        row["error"] or "",
        row["invalid"] or "",
    ]
