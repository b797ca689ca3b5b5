"""What differs between generations of vLLM: arguments, names of metrics, lines of the log.

Rules: whoever needs such a fact asks this table; names are tried newest first, whatever version the
engine says it is, so that an unknown one is read as far as it is known; what is then not found is
not known, never 0. Sources, at the tag of each row: vllm/engine/arg_utils.py; for metrics
vllm/engine/metrics.py (0.7), vllm/v1/metrics/loggers.py and vllm/v1/spec_decode/metrics.py since.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

Version = tuple[int, int, int]

_COUNTED = {
    "generation_tokens": "vllm:generation_tokens_total",
    "prompt_tokens": "vllm:prompt_tokens_total",
    "preemptions": "vllm:num_preemptions_total",
    "running": "vllm:num_requests_running",
    "waiting": "vllm:num_requests_waiting",
}
_DRAFTED = {
    "drafts": "vllm:spec_decode_num_drafts_total",
    "draft_tokens": "vllm:spec_decode_num_draft_tokens_total",
    "accepted_tokens": "vllm:spec_decode_num_accepted_tokens_total",
    "accepted_per_pos": "vllm:spec_decode_num_accepted_tokens_per_pos_total",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What the versions from one on have in common."""

    since: Version
    tag: str
    """The tag that this row was read from."""
    metrics: Mapping[str, str]
    """What autotune calls a figure -> the engine's name of it; absent where it counts none."""
    speculative_config: bool = True
    """Whether a draft is set by --speculative-config."""


GENERATIONS = (
    Generation(
        since=(0, 9, 2),
        tag="v0.32.0",
        metrics={
            **_COUNTED,
            **_DRAFTED,
            "prefix_queries": "vllm:prefix_cache_queries_total",
            "prefix_hits": "vllm:prefix_cache_hits_total",
            "kv_cache_usage": "vllm:kv_cache_usage_perc",
        },
    ),
    Generation(
        since=(0, 8, 0),
        tag="v0.11.0",  # which names what it renamed in 0.9.2
        metrics={
            **_COUNTED,
            **_DRAFTED,
            "prefix_queries": "vllm:gpu_prefix_cache_queries_total",
            "prefix_hits": "vllm:gpu_prefix_cache_hits_total",
            "kv_cache_usage": "vllm:gpu_cache_usage_perc",
        },
    ),
    Generation(
        since=(0, 0, 0),
        tag="v0.7.3",
        # It counts accepted, drafted and emitted tokens, but not drafts: no acceptance length.
        metrics={**_COUNTED, "kv_cache_usage": "vllm:gpu_cache_usage_perc"},
        speculative_config=False,
    ),
)
"""Newest first."""

START_LINE = re.compile(r"Initializing an? (?:V[01] )?LLM engine \(v([^)]+)\)")
"""The line that tells version and resolved settings: `a V0` in vllm/engine/llm_engine.py, `a V1`
in vllm/v1/engine/core.py."""


def metric_names(field: str) -> tuple[str, ...]:
    """The names that a figure has had, newest first."""
    return tuple(dict.fromkeys(g.metrics[field] for g in GENERATIONS if field in g.metrics))


def refusal(version: str) -> str | None:
    """Why this vLLM cannot be tuned, in one sentence; None for one that can, or is unknown."""
    known = parsed(version)
    row = next((g for g in GENERATIONS if known and known >= g.since), None)
    if row is None or row.speculative_config:
        return None
    return (
        f"vLLM {version} is too old: it takes drafts by --speculative-model and "
        "--num-speculative-tokens, autotune needs --speculative-config: use a newer vLLM"
    )


def parsed(version: str) -> Version | None:
    """`0.11.0rc1+cpu` as (0, 11, 0); None for what tells nothing, such as a build of a checkout."""
    match = re.match(r"v?(\d+)\.(\d+)\.(\d+)", version)
    if match is None or "dev" in version:
        return None
    major, minor, patch = match.groups()
    return int(major), int(minor), int(patch)
