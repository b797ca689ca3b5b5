"""The error tree: whose fault it is decides the class, and the class decides the exit code.

    AutotuneError
    ├── UserError            exit 2   the user's file, arguments or machine
    │   └── CandidatesFileError       faults in candidates.yaml, all at once
    ├── StudyLockedError     exit 2   another autotune works on this study
    ├── StudyStoppedError    exit 5   the machine lets no launch through; run again to go on
    └── LaunchError          a value in the end: becomes a Failure, the study goes on

Anything else that escapes is a bug and ends as a traceback (exit 1).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.core.causes import CAUSES
from autotune.core.trial import Cause, Failure


class AutotuneError(Exception):
    """Base of every error that autotune raises on purpose."""


class UserError(AutotuneError):
    """The user can mend it: the message names the rule and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing wrong in a file: where, which rule, what to do."""

    path: str
    line: int | None
    message: str

    def show(self, file: str) -> str:
        """`file:line: path: message`, as compilers write it."""
        place = f"{file}:{self.line}" if self.line is not None else file
        return f"{place}: {self.path}: {self.message}" if self.path else f"{place}: {self.message}"


class CandidatesFileError(UserError):
    """Every fault of a candidates file at once."""

    def __init__(self, file: str, faults: Sequence[Fault]) -> None:
        self.file = file
        self.faults = tuple(faults)
        super().__init__("\n".join(fault.show(file) for fault in faults))


class StudyLockedError(UserError):
    """Another process works on the study."""


class StudyStoppedError(AutotuneError):
    """No other launch would escape this failure: a person has to mend the machine first."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(f"{failure.cause}: {failure.detail}\nremedy: {failure.remedy}")


class LaunchError(AutotuneError):
    """A launch that cannot go on; carries the observed cause.

    Without a remedy of its own it has that of the cause.
    """

    def __init__(
        self, cause: Cause, detail: str, remedy: str = "", *, after_s: float | None = None
    ) -> None:
        self.cause = cause
        self.detail = detail
        self.after_s = after_s
        self.remedy = remedy or CAUSES[cause].remedy
        super().__init__(f"{cause}: {detail}")

    @property
    def failure(self) -> Failure:
        """The same as a value."""
        return Failure(
            cause=self.cause, detail=self.detail, remedy=self.remedy, after_s=self.after_s
        )
