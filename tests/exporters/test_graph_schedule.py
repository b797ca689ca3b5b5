"""The schedule that asks a GPU engine for the graphs of every K of a live launch."""

import yaml

from autotune.exporters.vllm_yaml import MAX_BATCH_SIZE, graph_schedule, render_engine_args
from tests.builders import GMU, make_spec


def test_every_k_stands_once_in_ranges_without_gap_or_overlap() -> None:
    """vLLM wants the first range to begin at 1, and takes K = 0 as well."""
    schedule = graph_schedule([0, 1, 3, 5])
    assert schedule == [[1, 1, 0], [2, 2, 1], [3, 3, 3], [4, MAX_BATCH_SIZE, 5]]


def test_only_a_launch_that_asks_for_graphs_has_a_schedule() -> None:
    """The exported file has a static K; the schedule is for live launches on a GPU."""
    spec = make_spec()
    candidate = spec.candidates[0]
    plain = yaml.safe_load(render_engine_args(spec, candidate, 3, GMU))
    live = yaml.safe_load(render_engine_args(spec, candidate, 3, GMU, (0, 1, 3)))
    key = "num_speculative_tokens_per_batch_size"
    assert key not in plain["speculative-config"]
    assert live["speculative-config"].pop(key) == graph_schedule([0, 1, 3])
    assert live == plain
