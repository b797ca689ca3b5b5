"""The schedule of K per batch size in best-config.yaml.

Rule: it is there only where it is offered, with what showed it in force and what it gains.
"""

import hashlib
from collections.abc import Mapping

from autotune.core.recommendation import Recommendation
from autotune.core.schedule import FIELD
from autotune.core.schedule_offer import ScheduleLevel
from autotune.core.study import StudySpec
from autotune.exporters._figures import figure, interval
from autotune.exporters._yaml import without_nulls
from autotune.exporters.vllm_schedule import PLUGIN


def schedule_section(spec: StudySpec, result: Recommendation) -> Mapping[str, object] | None:
    """The ranges, their file and the evidence; None where no schedule is offered."""
    found, text = result.schedule, PLUGIN.render(spec, result, {})
    if found is None or not text:
        return None
    return {
        "file": PLUGIN.filename,
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "num_speculative_tokens": found.num_speculative_tokens,
        FIELD: [list(one) for one in found.ranges],
        "levels": [_level(level) for level in found.levels],
    }


def _level(level: ScheduleLevel) -> dict[str, object]:
    ratio = level.over_static
    return without_nulls(
        {
            "concurrency": level.concurrency,
            "num_speculative_tokens": level.num_speculative_tokens,
            "speed_over_static": interval(ratio) if ratio else None,
            "drafted_share": figure(level.drafted_share),
            "static_drafted_share": figure(level.static_drafted_share),
            "draft_length": figure(level.draft_length),
        }
    )
