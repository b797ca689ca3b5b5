"""The sampling parameters that a target comes with."""

import json
from pathlib import Path

import pytest

from autotune.core.study import Target
from autotune.tuning.identity import model_defaults

QWEN = {"temperature": 0.6, "top_k": 20, "eos_token_id": [1, 2]}


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A folder with a generation_config.json."""
    (tmp_path / "generation_config.json").write_text(json.dumps(QWEN))
    return str(tmp_path)


def test_a_local_model_tells_its_defaults(model: str) -> None:
    """vLLM takes them for what a request does not say."""
    assert model_defaults(Target(model=model)) == QWEN
    auto = Target(model=model, engine_args={"generation_config": "auto"})
    assert model_defaults(auto) == QWEN


def test_defaults_that_the_engine_does_not_use_are_none(model: str) -> None:
    """generation_config: vllm, or another file."""
    assert model_defaults(Target(model=model, engine_args={"generation_config": "vllm"})) == {}


@pytest.mark.parametrize("content", [None, "", "[1]", "{"])
def test_a_model_without_a_sound_file_has_none(tmp_path: Path, content: str | None) -> None:
    """Nor has one on the hub; what is broken the engine will tell itself."""
    if content is not None:
        (tmp_path / "generation_config.json").write_text(content)
    assert model_defaults(Target(model=str(tmp_path))) == {}
    assert model_defaults(Target(model="org/model")) == {}
