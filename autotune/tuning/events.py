"""What happens during a study, as values: whoever listens draws progress from them.

Rule: an event is told once what it says is true, in the order of the study; it asks for nothing
back.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from autotune.core.stopping import Stopped
from autotune.core.trial import Failure, Launch, Pass


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchStarted:
    """A server is being started."""

    launch: Launch
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReady:
    """The server has completed its first request."""

    launch: Launch
    boot_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PassDone:
    """One pass was measured and is on disk."""

    launch: Launch
    measured: Pass


@dataclass(frozen=True, slots=True, kw_only=True)
class KStopped:
    """A K is measured no further at one concurrency."""

    launch: Launch
    stopped: Stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateBeaten:
    """No K of the launch can be the answer; it ends here."""

    launch: Launch
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchEnded:
    """The server is gone."""

    launch: Launch
    failure: Failure | None


Event = LaunchStarted | ServerReady | PassDone | KStopped | CandidateBeaten | LaunchEnded
Listener = Callable[[Event], None]
