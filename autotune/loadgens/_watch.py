"""What keeps a client honest while a pass runs: its lag is seen, its garbage waits.

Law: a client that was kept from running says by how much its timestamps may be late.
"""

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

LAG_PERIOD_S = 0.02


class LagWatch:
    """How late the event loop came to a timer that was due: the delay on any timestamp."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._worst = 0.0
        self._schedule()

    def stop(self) -> float:
        """End watching; the worst lag in seconds, one still under way included."""
        self._handle.cancel()
        self._measure()
        return self._worst

    def _schedule(self) -> None:
        self._due = time.perf_counter() + LAG_PERIOD_S
        self._handle = self._loop.call_later(LAG_PERIOD_S, self._tick)

    def _tick(self) -> None:
        self._measure()
        self._schedule()

    def _measure(self) -> None:
        self._worst = max(self._worst, time.perf_counter() - self._due)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """A full collection of a large process stops every stream for tens of milliseconds."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
