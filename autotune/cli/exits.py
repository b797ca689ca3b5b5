"""Exit codes, for scripts and CI; shown by `run --help` and `verify --help`.

Rule: every way to end has one code, a code never changes its meaning, and the tables tell them all.
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

VERIFIED = MEANING | {
    Exit.SPECULATE: "still good: it starts, and it pays as it is asked to",
    Exit.DO_NOT_SPECULATE: "stale: it does not pay here any more, run the study again",
    Exit.UNDECIDED: "undecided: a tie or inconclusive",
    Exit.CANNOT_RUN: "broken: the deployment, or plain decoding, cannot run here",
    Exit.BUDGET: "budget spent before every launch was made",
    Exit.INTERRUPTED: "interrupted",
    Exit.TERMINATED: "terminated",
}
"""The same codes in the words of `verify`."""
