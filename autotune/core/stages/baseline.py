"""The first stage: plain decoding, the denominator of every speedup.

Rule: a level that has its blocks is not measured again, and without a baseline the study ends.
"""

from collections.abc import Iterator, Sequence

from autotune.core.causes import retried
from autotune.core.memory_bounds import in_force
from autotune.core.stages.making import make_launch
from autotune.core.stages.points import enough, given_up, of_point, of_search, says_nothing
from autotune.core.study import StudySpec
from autotune.core.trial import BASELINE, TRIES, Failure, Launch, Record, Stage
from autotune.core.wording import level_words, listed_words


def launches(spec: StudySpec, records: Sequence[Record]) -> Iterator[Launch]:
    """The baseline, unless every level has it, or it was tried in vain."""
    mine = of_point(of_search(in_force(spec, records)), BASELINE, 0)
    missing = [lv for lv in spec.workload.levels if not enough(spec, mine, lv)]
    if not missing or given_up(spec, mine):
        return
    why = "the denominator of every speedup"
    if len(missing) < len(spec.workload.levels):
        why += f", at {listed_words(map(level_words, missing))}"
    yield make_launch(spec, records, Stage.BASELINE, None, (0,), why=why)


def failed(records: Sequence[Record]) -> Failure | None:
    """The failure that ended the study, if the baseline could not be measured."""
    mine = [r for r in records if r.trial.stage is Stage.BASELINE]
    if any(r.measurement and not r.measurement.cut_short for r in mine):
        return None
    counted = [r.outcome for r in mine if not says_nothing(r)]
    failures = [outcome for outcome in counted if isinstance(outcome, Failure)]
    over = len(failures) >= TRIES or any(not retried(f) for f in failures)
    return failures[-1] if over else None
