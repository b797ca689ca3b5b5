"""vllm-schedule.yaml: the engine arguments with K per batch size, where that was confirmed.

Rule: it is the file that the launch with the schedule was started from, byte for byte; vllm.yaml
with the static K stays the recommendation.
"""

from collections.abc import Mapping

from autotune.core.jsontype import JSON
from autotune.core.recommendation import Recommendation
from autotune.core.study import StudySpec
from autotune.exporters.vllm_yaml import render_engine_args
from autotune.ports import Exporter


class VllmSchedule:
    """Renders the confirmed schedule as vLLM's own configuration file."""

    filename = "vllm-schedule.yaml"

    def render(
        self, spec: StudySpec, result: Recommendation, provenance: Mapping[str, JSON]
    ) -> str:
        """The engine arguments; empty where no schedule is offered."""
        found = result.schedule
        if found is None or not found.offered:
            return ""
        return render_engine_args(
            spec, found.candidate, found.num_speculative_tokens, found.gpu_memory_utilization
        )


PLUGIN: Exporter = VllmSchedule()
