"""Replies for tests, from their words: the texts are given here and marked as the store does it."""

from autotune.core.replies import Reply, print_of
from autotune.core.trial import BASELINE

KEY = b"a key for tests"


def make_reply(
    text: str = "",
    candidate: str = BASELINE,
    k: int = 0,
    *,
    prompt: str = "p0",
    launch: str = "000",
    split: str = "search",
    concurrency: int = 1,
    block: int = 0,
    prompt_tokens: int = 30,
    tokens: int = 10,
    seconds: float = 1.0,
    key: bytes = KEY,
    marked: bool = True,
) -> Reply:
    """One reply; of the baseline unless told otherwise."""
    return Reply(
        split=split,
        candidate=candidate,
        num_speculative_tokens=k,
        launch_id=launch,
        concurrency=concurrency,
        block=block,
        prompt_id=prompt,
        prompt_tokens=prompt_tokens,
        output_tokens=tokens,
        seconds=seconds,
        said=print_of(text, key) if marked else None,
    )
