"""Which names hold credentials, and which lines of a log quote what was said."""

import pytest

from autotune.core.redaction import WITHHELD, is_secret, shown, withheld, without_quotes


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


@pytest.mark.parametrize(
    "line",
    [
        "Failed to advance FSM for request r1 for tokens 17. Please file an issue.",
        "Unexpected: grammar rejected tokens [17, 4] for request r1. Terminating request.",
        "Unexpected: grammar terminated or rejected draft token 17 for request r1 during bitmask",
        "Request r1 details: prompt: 'hello', prompt_token_ids: [17], prompt_embeds shape: None.",
        "Request r1 JSON body: {'messages': [{'content': '17'}]}",
        "Generated response r1 (streaming delta): output: '17', finish_reason: stop",
        "Generated response r1 details: output_token_ids: [17]",
    ],
)
def test_lines_that_quote_what_was_said_are_left_out(line: str) -> None:
    """The lines around them stay as they are, also without an end."""
    log = f"INFO fine\nERROR 11-30 04:10:05 [x.py:1] {line}\nINFO 17 requests"
    assert without_quotes(log) == f"INFO fine\n{WITHHELD}\nINFO 17 requests"


def test_other_lines_of_a_log_stay() -> None:
    """What it says of requests without quoting them."""
    log = "Received request r1: params: SamplingParams(), lora_request: None.\r\nlast\n\n"
    assert without_quotes(log) == log
    assert without_quotes("") == ""
