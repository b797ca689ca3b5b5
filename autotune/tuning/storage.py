"""The database of a study: how it is opened, and what its own words for trouble mean.

Rule: a study is copied into its next generation, `name~2`, where Optuna cannot change it.
"""

import errno
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import optuna
from sqlalchemy.exc import SQLAlchemyError

from autotune.errors import UserError

SQLITE_PATIENCE_S = 120


def open_storage(url: str) -> optuna.storages.RDBStorage:
    """Optuna's storage; raises UserError for one that cannot be opened."""
    # A dashboard or a slow disk may hold SQLite's lock for longer than Optuna would wait (5 s).
    options = {"connect_args": {"timeout": SQLITE_PATIENCE_S}} if url.startswith("sqlite") else {}
    try:
        return optuna.storages.RDBStorage(url, engine_kwargs=options)
    except (SQLAlchemyError, ImportError, ValueError) as error:
        raise UserError(f"the Optuna storage {url!r} cannot be opened: {error}") from error
    except RuntimeError as error:
        # Optuna's own words: another schema version, and the command that upgrades it.
        raise UserError(f"the Optuna storage {url!r} is of another version: {error}") from error


@contextmanager
def full_disk_is_told() -> Iterator[None]:
    """SQLite's word for a full disk becomes the system's."""
    try:
        yield
    except optuna.exceptions.StorageInternalError as error:
        origin = getattr(error.__cause__, "orig", None)
        if getattr(origin, "sqlite_errorcode", None) != sqlite3.SQLITE_FULL:
            raise
        raise OSError(errno.ENOSPC, f"the study's database: {origin}") from error


def is_of(name: str, study_name: str) -> bool:
    """Whether a stored study is a generation of this one."""
    return re.fullmatch(re.escape(name) + r"(~\d+)?", study_name) is not None


def generation(study_name: str) -> int:
    """How often a study was copied, counted from 1."""
    number = study_name.partition("~")[2]
    return int(number) if number else 1
