"""The launches of a verification, one after the other; yields the records of each.

Rule: they are measured anew every time and told to no ledger: what is asked is whether the answer
holds now.
"""

import time
from collections.abc import Iterator

from autotune.core.trial import Record
from autotune.core.verification import next_verification
from autotune.tuning.journal import mark_told
from autotune.tuning.runner import Rig, run_launch
from autotune.tuning.tuner import WriteConfig


def measure(
    rig: Rig, write_config: WriteConfig, *, budget_s: float | None
) -> Iterator[list[Record]]:
    """Launch what is still to be launched until it is known; drain it to the end."""
    started, records = time.monotonic(), list[Record]()
    while True:
        left = None if budget_s is None else budget_s - (time.monotonic() - started)
        launch = next_verification(rig.spec, records, left)
        if launch is None:
            return
        folder = rig.paths.next_launch()
        new = list(run_launch(launch, rig, write_config(launch, folder), folder, records))
        mark_told(folder)
        records += new
        yield new
