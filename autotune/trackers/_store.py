"""An MLflow store seen from outside: where it is, what is wrong with it, what it raises.

Rule: nothing here imports mlflow; what cannot work is found at once, where MLflow would wait.
"""

import contextlib
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

SQLITE = "sqlite:///"
SQLITE_MAGIC = b"SQLite format 3\0"


def resolve(uri: str) -> str:
    """The tracking URI with an absolute path: a relative one means another store elsewhere."""
    if not uri.startswith(SQLITE) or uri.startswith(f"{SQLITE}/"):
        return uri
    return f"{SQLITE}{Path(uri.removeprefix(SQLITE)).resolve()}"


def artifact_location(uri: str) -> str | None:
    """`mlartifacts` beside a SQLite database; None leaves it to the tracking server."""
    path = _sqlite_path(uri)
    return str(path.parent / "mlartifacts") if path else None


def without_password(text: str) -> str:
    """The text without the credentials of a URL in it."""
    return re.sub(r"//[^/@\s]+@", "//", text)


def _sqlite_path(uri: str) -> Path | None:
    return Path(unquote(uri.removeprefix(SQLITE))) if uri.startswith(SQLITE) else None


def check_sqlite(uri: str) -> None:
    """Raise OSError at once where MLflow would try for two minutes."""
    path = _sqlite_path(uri)
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        with path.open("r+b") as file:
            if file.read(len(SQLITE_MAGIC)) not in (b"", SQLITE_MAGIC):
                raise OSError(f"{path} is not an SQLite database")
    elif not os.access(path.parent, os.W_OK):
        raise OSError(f"{path.parent} cannot be written to")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """MLflow warns of its own dependencies, migrations and retries; we say once what matters."""
    loggers = [logging.getLogger(name) for name in ("mlflow", "alembic", "urllib3")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def troubles() -> tuple[type[BaseException], ...]:
    """Everything that MLflow, its database and its artefact stores raise on their own account."""
    found: list[type[BaseException]] = [OSError, ImportError]  # OSError includes requests' errors
    for module, name in (
        ("mlflow.exceptions", "MlflowException"),
        ("sqlalchemy.exc", "SQLAlchemyError"),
        ("alembic.util.exc", "CommandError"),
        ("botocore.exceptions", "BotoCoreError"),
        ("botocore.exceptions", "ClientError"),
        ("boto3.exceptions", "Boto3Error"),
        ("azure.core.exceptions", "AzureError"),
        ("google.api_core.exceptions", "GoogleAPIError"),
    ):
        # Only what is loaded can have been raised.
        if module in sys.modules and hasattr(sys.modules[module], name):
            found.append(getattr(sys.modules[module], name))
    return tuple(found)
