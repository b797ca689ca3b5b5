"""From vLLM's /metrics text to Counters.

Rules: the names are those of _versions.py, newest first; samples are summed over engines;
`_created` timestamps are no counters; a family that is absent is None ("not known"), never 0, and
one that no pass can do without is an error.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from autotune.core.acceptance import SpecCounters
from autotune.core.trial import Cause
from autotune.engines._versions import metric_names
from autotune.errors import LaunchError
from autotune.ports import Counters


@dataclass(frozen=True, slots=True)
class Samples:
    """All samples of one scrape, by full sample name."""

    values: Mapping[str, list[tuple[Mapping[str, str], float]]]

    def total(self, field: str) -> float | None:
        """Sum over engines of the first known name of a field; None when none is there."""
        found = self._find(field)
        return sum(value for _, value in found) if found else None

    def by_position(self) -> tuple[int, ...]:
        """Accepted tokens by position, summed over engines."""
        positions: dict[int, float] = defaultdict(float)
        for labels, value in self._find("accepted_per_pos"):
            positions[int(labels["position"])] += value
        return tuple(int(positions[i]) for i in range(max(positions, default=-1) + 1))

    def labels(self, name: str) -> Mapping[str, str]:
        """The labels of the first sample of an info metric; empty when absent."""
        found = self.values.get(name, [])
        return found[0][0] if found else {}

    def _find(self, field: str) -> list[tuple[Mapping[str, str], float]]:
        return next((self.values[n] for n in metric_names(field) if n in self.values), [])


def scrape(text: str) -> Samples:
    """Parse the text of /metrics."""
    values: dict[str, list[tuple[Mapping[str, str], float]]] = defaultdict(list)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if not sample.name.endswith("_created"):
                values[sample.name].append((sample.labels, sample.value))
    return Samples(values)


def counters(samples: Samples) -> Counters:
    """One reading; raises LaunchError when the engine shows less than a pass needs."""
    return Counters(
        spec=_spec(samples),
        generation_tokens=_needed(samples, "generation_tokens"),
        prompt_tokens=_needed(samples, "prompt_tokens"),
        prefix_queries=_count(samples, "prefix_queries"),
        prefix_hits=_count(samples, "prefix_hits"),
        preemptions=_count(samples, "preemptions"),
        running=_needed(samples, "running"),
        waiting=_needed(samples, "waiting"),
        kv_cache_usage=samples.total("kv_cache_usage"),
    )


def kv_cache_tokens(samples: Samples) -> int | None:
    """Capacity of the KV cache in tokens, from cache_config_info; None when not told."""
    info = samples.labels("vllm:cache_config_info")
    blocks, size = info.get("num_gpu_blocks", ""), info.get("block_size", "")
    return int(blocks) * int(size) if blocks.isdigit() and size.isdigit() else None


def kv_cache_usage(text: str) -> float | None:
    """The share of the KV cache in use, of the fullest engine; None when it is not shown.

    The whole text is not parsed: this is read while requests are under way.
    """
    for name in metric_names("kv_cache_usage"):
        found = re.findall(rf"^{re.escape(name)}(?:\{{.*\}})? (\S+)", text, re.MULTILINE)
        if found:
            return max(map(float, found))
    return None


def _spec(samples: Samples) -> SpecCounters | None:
    """None unless all three are counted: of less, acceptance cannot be told."""
    counted = [_count(samples, name) for name in ("drafts", "draft_tokens", "accepted_tokens")]
    drafts, drafted, accepted = counted
    if drafts is None or drafted is None or accepted is None:
        return None
    return SpecCounters(
        drafts=drafts,
        draft_tokens=drafted,
        accepted_tokens=accepted,
        accepted_per_pos=samples.by_position(),
    )


def _count(samples: Samples, field: str) -> int | None:
    total = samples.total(field)
    return None if total is None else int(total)


def _needed(samples: Samples, field: str) -> int:
    count = _count(samples, field)
    if count is None:
        raise LaunchError(
            Cause.ENGINE_REFUSED,
            f"/metrics shows no {' or '.join(metric_names(field))}",
            "the names of this engine's metrics are unknown: use a version of vLLM that shows them",
        )
    return count
