"""What an interval of the speedup allows to say.

Rule: `speculate` needs an interval that lies above 1 + min_gain; an interval that covers it is no
answer unless all of it is within the tolerance.
"""

from enum import StrEnum

from autotune.core.statistics import Interval
from autotune.core.study import StudySpec


class Verdict(StrEnum):
    """What to do."""

    SPECULATE = "speculate"
    DO_NOT_SPECULATE = "do_not_speculate"
    TIE = "tie"
    INCONCLUSIVE = "inconclusive"


def judge(spec: StudySpec, speedup: Interval | None) -> tuple[Verdict, str]:
    """The verdict that an interval allows, with its reason."""
    need = 1 + spec.objective.min_gain
    tolerance = spec.objective.tolerance
    if speedup is None:
        return Verdict.INCONCLUSIVE, "no candidate could be measured"
    shown = speedup.show()
    if speedup.low > need:
        return Verdict.SPECULATE, f"the speedup {shown} lies above {need:g}x"
    if speedup.high <= need:
        return Verdict.DO_NOT_SPECULATE, f"the best speedup {shown} does not reach {need:g}x"
    if need * (1 - tolerance) <= speedup.low and speedup.high <= need * (1 + tolerance):
        return (
            Verdict.TIE,
            f"the speedup {shown} is {need:g}x within the tolerance of {tolerance:.0%}",
        )
    return (
        Verdict.INCONCLUSIVE,
        f"the interval of the speedup {shown} covers {need:g}x: more blocks or launches are needed",
    )
