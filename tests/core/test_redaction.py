"""Which names hold credentials."""

import pytest

from autotune.core.redaction import is_secret, shown, withheld


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "hf-token", "OPENAI_API_KEY", "api_key", "AWS_SECRET_ACCESS_KEY", "PASSWORD"],
)
def test_credentials_are_known_by_their_name(name: str) -> None:
    """Variables and arguments alike."""
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "max_num_batched_tokens",
        "num_speculative_tokens",
        "tokenizer",
        "tokenizer_mode",
        "VLLM_USE_V2",
    ],
)
def test_what_only_sounds_like_one_is_shown(name: str) -> None:
    """Engine settings speak of tokens all the time."""
    assert not is_secret(name)


def test_the_two_lists_are_the_whole() -> None:
    """Every name is either shown or told to be withheld."""
    env = {"B": "2", "A": "1", "HF_TOKEN": "x"}
    assert shown(env) == {"A": "1", "B": "2"}
    assert withheld(env) == ["HF_TOKEN"]
