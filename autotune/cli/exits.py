"""Exit codes, for scripts and CI; shown by `autotune run --help`.

Rule: every way to end has one code, a code never changes its meaning, and MEANING tells them all.
"""

from enum import IntEnum


class Exit(IntEnum):
    """How a command ended."""

    SPECULATE = 0
    BUG = 1
    USER = 2
    DO_NOT_SPECULATE = 3
    UNDECIDED = 4
    CANNOT_RUN = 5
    BUDGET = 6
    INTERRUPTED = 130
    TERMINATED = 143


MEANING = {
    Exit.SPECULATE: "finished: speculate, configuration exported",
    Exit.DO_NOT_SPECULATE: "finished: do not speculate, the baseline's configuration exported",
    Exit.UNDECIDED: "finished: tie or inconclusive",
    Exit.BUG: "a bug in autotune (traceback)",
    Exit.USER: "your file, arguments or models",
    Exit.CANNOT_RUN: "the baseline cannot run, no candidate could, or the machine stopped it",
    Exit.BUDGET: "budget spent before a confirmed answer",
    Exit.INTERRUPTED: "interrupted; run again to go on",
    Exit.TERMINATED: "terminated; run again to go on",
}
