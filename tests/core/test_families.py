"""The tables of known drafts: sound rows, and which of them fit a target."""

import re

import pytest

from autotune.core.checkpoint import Checkpoint
from autotune.core.families import (
    FAMILIES,
    HEADS,
    family_of,
    heads_for,
    same_model,
    small_enough,
)
from autotune.core.jsontype import JSON
from autotune.core.methods import METHODS


def test_the_tables_name_repositories_and_methods() -> None:
    """Every name is org/name and stands once; every method is known; every head has a source."""
    for head in HEADS:
        assert head.method in METHODS
        assert re.fullmatch(r"[\w.-]+/[\w.-]+, [\w.-]+\.md", head.source)
    named = [head.model for head in HEADS] + [s.model for f in FAMILIES for s in f.siblings]
    assert len(named) == len(set(named))
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+", name) for name in named)


def test_a_family_has_its_own_siblings() -> None:
    """By name and, where that is at hand, by vocabulary."""
    for family in FAMILIES:
        for sibling in family.siblings:
            assert sibling.vocab_size in family.vocab_sizes
            assert family_of(Checkpoint(name=sibling.model)) is family


def test_a_quantized_copy_has_the_heads_of_its_original() -> None:
    """A local folder, too; another model of the same beginning has not."""
    original = [head.model for head in heads_for("Qwen/Qwen3-8B")]
    assert "RedHatAI/Qwen3-8B-speculator.eagle3" in original
    for name in ("Qwen/Qwen3-8B-FP8", "o/Qwen3-8B-AWQ", "./m/Qwen3-8B", "/m/qwen3-8b-w4a16"):
        assert [head.model for head in heads_for(name)] == original
    assert heads_for("Qwen/Qwen3-8B-Base") == []
    assert not same_model("Qwen/Qwen3-4B", "Qwen/Qwen3-4B-Instruct-2507")


@pytest.mark.parametrize(
    ("target", "fits", "too_large"),
    [(8.0, 1.24, 3.2), (14.0, 1.7, 7.0), (70.0, 7.0, 13.0), (0.135, 0.06, 0.07)],
)
def test_the_size_of_a_draft(target: float, fits: float, too_large: float) -> None:
    """7B: about one; 13B: up to three; 70B: up to seven; always at most half of the target."""
    assert small_enough(fits, target)
    assert not small_enough(too_large, target)


def test_a_config_decides_over_a_name() -> None:
    """A model that is called Llama and has another vocabulary is none of them."""
    other: dict[str, JSON] = {"model_type": "llama", "vocab_size": 32000}
    name = "org/Llama-3.1-8B-tuned"
    assert family_of(Checkpoint(name=name)) is FAMILIES[0]
    assert family_of(Checkpoint(name=name, config=other)) is None
