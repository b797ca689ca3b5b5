"""One autotune per study: an advisory lock that the kernel drops when its holder dies."""

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from autotune.errors import StudyLockedError


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock, or raise StudyLockedError that names the holder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise StudyLockedError(
                f"{holder} is working on this study ({path}); wait for it or end it"
            ) from error
        file.truncate(0)
        file.write(f"autotune, process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield
