"""The report's section on the schedule: what K per batch size did beside the static K.

Rule: it is there wherever a schedule was worth a launch; one that is not offered says why.
"""

from collections.abc import Mapping

from autotune.core.objective import FIGURES
from autotune.core.recommendation import Recommendation
from autotune.core.schedule import schedule_words
from autotune.core.schedule_offer import ScheduleAnswer
from autotune.core.study import StudySpec
from autotune.reporting.tables import Table


def section(spec: StudySpec, result: Recommendation) -> Mapping[str, object]:
    """What the template needs; an empty `schedule` leaves the section out."""
    found = result.schedule
    if found is None or not found.ranges:
        return {"schedule": ""}
    return {
        "schedule": schedule_words(found.ranges),
        "schedule_refused": found.refused,
        "schedule_levels": _table(found) if found.levels else [],
        "schedule_gain": FIGURES[spec.objective.metric].gain,
    }


def _table(found: ScheduleAnswer) -> Table:
    head = ["concurrency", "K", "speed over the static K", "tokens from drafts"]
    head += ["the same at the static K", "tokens per draft"]
    rows = [
        [
            str(level.concurrency),
            str(level.num_speculative_tokens),
            level.over_static.show() if level.over_static else "",
            _share(level.drafted_share),
            _share(level.static_drafted_share),
            f"{level.draft_length:.2f}" if level.draft_length is not None else "",
        ]
        for level in found.levels
    ]
    return [head, *rows]


def _share(value: float | None) -> str:
    return f"{value:.0%}" if value is not None else ""
