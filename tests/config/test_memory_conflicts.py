"""What decides the KV cache instead of gpu_memory_utilization is refused while that is searched."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from autotune.config import load
from autotune.errors import CandidatesFileError, Fault
from tests.config.conftest import PROMPTS

Faults = Callable[..., list[Fault]]
ARGS = "engine_args: {max_model_len: 64}"
SEVERAL = ("0.3", "[0.3, 0.6]")


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("engine_args: {kv-cache-memory-bytes: 1000}", "engine_args.kv_cache_memory_bytes"),
        ("engine_args: {num_gpu_blocks_override: 9}", "engine_args.num_gpu_blocks_override"),
        ("env: {VLLM_CPU_KVCACHE_SPACE: 4}", "env.VLLM_CPU_KVCACHE_SPACE"),
        ("env: {VLLM_CPU_KVCACHE_SPACE: 0}", "env.VLLM_CPU_KVCACHE_SPACE"),
        ("env: {VLLM_ENABLE_STARTUP_PLAN: 1}", "env.VLLM_ENABLE_STARTUP_PLAN"),
    ],
)
def test_one_in_the_file_is_refused_at_its_line(
    good: str, faults_of: Faults, given: str, path: str
) -> None:
    """With the rule and the remedy; with one utilization it may well be meant so."""
    text = good.replace(ARGS, given)
    (fault,) = faults_of(text.replace(*SEVERAL))
    assert (fault.line, fault.path) == (4, f"target.{path}")
    assert "search.gpu_memory_utilization has 2 values to choose from" in fault.message
    assert "remove it, or give one gpu_memory_utilization" in fault.message
    assert faults_of(text) == []


@pytest.mark.parametrize("value", ["''", "0"])
def test_a_switch_that_is_off_is_none(good: str, faults_of: Faults, value: str) -> None:
    """The startup plan is off at 0."""
    text = good.replace(ARGS, f"env: {{VLLM_ENABLE_STARTUP_PLAN: {value}}}")
    assert faults_of(text.replace(*SEVERAL)) == []


@pytest.mark.parametrize(
    ("environ", "count"),
    [({"VLLM_CPU_KVCACHE_SPACE": "4"}, 1), ({"VLLM_CPU_KVCACHE_SPACE": ""}, 0), ({}, 0)],
)
def test_one_in_our_own_environment_is_refused_where_it_is_searched(
    tmp_path: Path, good: str, environ: Mapping[str, str], count: int
) -> None:
    """The engine inherits it, so it is as good as one in the file."""
    (tmp_path / "prompts.jsonl").write_text(PROMPTS)
    file = tmp_path / "c.yaml"
    file.write_text(good.replace(*SEVERAL))
    faults: list[Fault] = []
    try:
        load(file, environ=environ)
    except CandidatesFileError as error:
        faults = list(error.faults)
    assert [(f.line, f.path) for f in faults] == [(15, "search.gpu_memory_utilization")] * count
    assert all("is set in the environment of autotune" in f.message for f in faults)
    file.write_text(good)
    assert load(file, environ=environ).spec.search.gpu_memory_utilization == (0.3,)
