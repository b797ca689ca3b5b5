"""A full disk is a cause, not a crash: it stops the study, and whoever frees space runs it again.

Rule: only the errors that say so count; any other error of the system goes on its way.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from autotune.core.causes import CAUSES
from autotune.core.trial import Cause, Failure
from autotune.errors import StudyStoppedError

FULL = (errno.ENOSPC, errno.EDQUOT)


def disk_full(error: OSError) -> Failure:
    """The failure that such an error is; raises it again when it is another."""
    if error.errno not in FULL:
        raise error
    remedy = CAUSES[Cause.DISK_FULL].remedy
    return Failure(cause=Cause.DISK_FULL, detail=str(error), remedy=remedy)


@contextmanager
def stops_when_full() -> Iterator[None]:
    """Where results are written outside of a launch."""
    try:
        yield
    except OSError as error:
        raise StudyStoppedError(disk_full(error)) from error
