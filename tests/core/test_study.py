"""What is asked, as values: names that follow from others."""

import pytest

from autotune.core.jsontype import JSON
from autotune.core.study import Target


@pytest.mark.parametrize(
    ("given", "name"),
    [({}, "org/m"), ({"served_model_name": "a"}, "a"), ({"served_model_name": ["b", "c"]}, "b")],
)
def test_requests_carry_the_first_served_name(given: dict[str, JSON], name: str) -> None:
    """vLLM answers to all of them; without any the model is its own name."""
    assert Target(model="org/m", engine_args=given).served_name == name


@pytest.mark.parametrize("nothing", [None, []])
def test_an_empty_served_name_is_none(nothing: JSON) -> None:
    """As vLLM takes it."""
    assert Target(model="m", engine_args={"served_model_name": nothing}).served_name == "m"
