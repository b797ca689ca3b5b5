"""Exit codes, for scripts and CI; shown by `autotune run --help`."""

from enum import IntEnum

from autotune.core.recommendation import Basis, Recommendation, Verdict


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
    Exit.USER: "your file or arguments",
    Exit.CANNOT_RUN: "the baseline cannot run, or no candidate could",
    Exit.BUDGET: "budget spent before a confirmed answer",
    Exit.INTERRUPTED: "interrupted; run again to go on",
    Exit.TERMINATED: "terminated; run again to go on",
}


def of_result(result: Recommendation, *, complete: bool) -> Exit:
    """The exit code of a study; `complete` says that nothing was left to launch."""
    if result.basis is Basis.NOTHING:
        return Exit.CANNOT_RUN if complete else Exit.BUDGET
    if not complete:
        return Exit.BUDGET
    match result.verdict:
        case Verdict.SPECULATE:
            return Exit.SPECULATE if result.basis is Basis.CONFIRMED else Exit.UNDECIDED
        case Verdict.DO_NOT_SPECULATE:
            return Exit.DO_NOT_SPECULATE
        case Verdict.TIE | Verdict.INCONCLUSIVE:
            return Exit.UNDECIDED
