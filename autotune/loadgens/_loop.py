"""The event loop of a pass.

Law: it is libuv's. asyncio's own spends a quarter of the client's CPU time per chunk in Python,
between the kernel and the first line of ours (`make bench-client`).
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


def run_pass(main: Coroutine[Any, Any, T]) -> T:
    """Run a pass to its end on a loop of its own."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)
