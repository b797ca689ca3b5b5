"""What a model's configuration and the shapes of its tensors say."""

import pytest

from autotune.core.checkpoint import Checkpoint
from autotune.core.jsontype import JSON


def of(**config: JSON) -> Checkpoint:
    """A checkpoint of which only the configuration is at hand."""
    return Checkpoint(name="org/some", config=config)


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", 8.0),
        ("Qwen/Qwen3-0.6B", 0.6),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", 0.135),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", 56.0),
        ("Qwen/Qwen3-30B-A3B", 30.0),
        ("./models/70b/", 70.0),
        ("org/no-number-v2", None),
    ],
)
def test_a_name_tells_the_size(name: str, billions: float | None) -> None:
    """The first part of it that is a number of B or M; without one nothing is guessed."""
    found = Checkpoint(name=name).billions
    assert found == (None if billions is None else pytest.approx(billions))


def test_without_a_number_in_the_name_the_tensors_are_counted() -> None:
    """2 * 3 + 4 million parameters are 0.004000006 billion."""
    shapes = {"a.weight": (2, 3), "b.weight": (2000, 2000)}
    assert Checkpoint(name="./target", shapes=shapes).billions == pytest.approx(0.004000006)


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        ({"model_type": "deepseek_v3", "num_nextn_predict_layers": 1}, 1),
        ({"model_type": "qwen3_5_moe", "text_config": {"mtp_num_hidden_layers": 2}}, 2),
        ({"model_type": "minimax_m3_vl", "text_config": {"num_mtp_modules": 3}}, 3),
        ({"model_type": "inkling_model", "mtp_config": {"num_nextn_predict_layers": 4}}, 4),
        ({"architectures": ["Glm4MoeForCausalLM"], "num_nextn_predict_layers": 1}, 1),
        ({"architectures": ["MiMoV2FlashForCausalLM"], "num_nextn_predict_layers": 3}, 1),
        ({"model_type": "deepseek_v3", "num_nextn_predict_layers": 0}, 0),
    ],
)
def test_layers_that_draft_are_found_where_vllm_looks(config: dict[str, JSON], layers: int) -> None:
    """In the config itself, its language model or its own section; of MiMo-V2 the first alone."""
    assert of(**config).mtp_layers == layers
    assert of(**config).mtp_known


def test_layers_of_a_model_that_vllm_does_not_draft_with() -> None:
    """They are there, but no method is."""
    other = of(model_type="llama", num_nextn_predict_layers=1)
    assert (other.mtp_layers, other.mtp_known) == (1, False)


def test_a_head_is_known_by_its_joining_layer() -> None:
    """Two hidden states make EAGLE, three EAGLE-3; an ordinary model joins none."""
    for shape, method in (((8, 16), "eagle"), ((8, 24), "eagle3")):
        for name in ("fc.weight", "model.fc.weight"):
            assert Checkpoint(name="h", shapes={name: shape}).heads == method
    assert Checkpoint(name="m", shapes={"layers.0.other_fc.weight": (8, 16)}).heads is None


def test_a_head_of_speculators_names_method_and_target() -> None:
    """The config has both; a method that the table does not know is none."""
    head = of(
        speculators_model_type="eagle3",
        speculators_config={"verifier": {"name_or_path": "Qwen/Qwen3-8B"}},
    )
    assert (head.heads, head.verifier) == ("eagle3", "Qwen/Qwen3-8B")
    assert of(speculators_model_type="peagle").heads is None
    assert of(speculators_config="odd").verifier == ""
