"""Replies beside those of plain decoding: who matches, where the others part, what is suspect."""

import math

import pytest

from autotune.core.replies import Reply
from autotune.core.textcheck import compare_shifts, compare_texts, text_remarks
from autotune.core.trial import BASELINE
from tests.builders_replies import make_reply

WORDS = "one two three four five six seven eight nine ten"
LATE = WORDS.replace("nine", "other")
EARLY = WORDS.replace("two", "other")


def arm(
    texts: list[str],
    candidate: str = BASELINE,
    k: int = 0,
    *,
    launch: str = "000",
    concurrency: int = 1,
    tokens: int = 10,
) -> list[Reply]:
    """One reply for each text, to prompts in one order."""
    return [
        make_reply(
            text,
            candidate,
            k,
            prompt=f"p{i}",
            launch=launch,
            concurrency=concurrency,
            tokens=tokens,
        )
        for i, text in enumerate(texts)
    ]


def test_match_rate_and_first_difference_by_hand() -> None:
    """Of four replies two match, one parts after 8 words, one after 1; ten words are 20 tokens."""
    replies = arm([WORDS] * 4, tokens=20)
    replies += arm([WORDS, LATE, EARLY, WORDS], "eagle", 2, launch="001", tokens=20)
    level, overall = compare_texts(replies)
    assert (level.concurrency, overall.concurrency) == (1, None)
    assert (overall.compared, overall.matched, overall.rate) == (4, 2, 0.5)
    assert overall.words_before == pytest.approx((8 + 1) / 2)
    assert overall.tokens_before == pytest.approx((16 + 2) / 2)
    assert (overall.early, overall.suspect) == (1, False)
    assert overall.show() == "2 of 4 replies match"


def test_levels_are_told_apart_and_pooled() -> None:
    """A reply is compared at its own concurrency only."""
    replies = arm([WORDS], concurrency=1) + arm([LATE], concurrency=4)
    replies += arm([WORDS], "eagle", 2, launch="001", concurrency=1)
    replies += arm([WORDS], "eagle", 2, launch="001", concurrency=4)
    found = {m.concurrency: (m.matched, m.compared) for m in compare_texts(replies)}
    assert found == {1: (1, 1), 4: (0, 1), None: (1, 2)}


def test_a_second_plain_launch_is_the_reference() -> None:
    """It is compared with the first one, which is never compared with itself."""
    replies = arm([LATE, WORDS], launch="007") + arm([WORDS, WORDS], launch="005")
    (overall,) = [m for m in compare_texts(replies) if m.concurrency is None]
    assert (overall.candidate, overall.matched, overall.compared) == (BASELINE, 1, 2)


def talk(
    texts: list[str], candidate: str = BASELINE, k: int = 0, *, launch: str = "000"
) -> list[Reply]:
    """The replies to the turns of one conversation."""
    ids = ["81", *(f"81#{i}" for i in range(2, len(texts) + 1))]
    return [
        make_reply(text, candidate, k, prompt=ident, launch=launch)
        for ident, text in zip(ids, texts, strict=True)
    ]


@pytest.mark.parametrize(
    ("turns", "compared", "matched"),
    [
        ([WORDS, WORDS, WORDS], 3, 3),
        ([WORDS, LATE, EARLY], 2, 1),
        ([LATE, WORDS, EARLY], 1, 0),
    ],
)
def test_a_conversation_is_compared_up_to_the_first_difference(
    turns: list[str], compared: int, matched: int
) -> None:
    """The turns after it hold another reply, so they ask something else."""
    others = talk(turns, "eagle", 2, launch="001")
    (overall,) = [m for m in compare_texts([*talk([WORDS] * 3), *others]) if not m.concurrency]
    assert (overall.compared, overall.matched, overall.early) == (compared, matched, 0)


def test_each_launch_has_its_own_conversation() -> None:
    """What parted in one launch was said alike in the next, and is compared there."""
    plain = talk([WORDS, WORDS])
    parted = talk([LATE, EARLY], "eagle", 2, launch="001")
    alike = talk([WORDS, WORDS], "eagle", 2, launch="002")
    (overall,) = [m for m in compare_texts([*plain, *parted, *alike]) if not m.concurrency]
    assert (overall.compared, overall.matched) == (3, 2)


@pytest.mark.parametrize("ids", [("case#2", "case#3"), ("case", "case#3"), ("case#1", "case#2")])
def test_a_prompt_that_is_only_called_so_is_no_later_turn(ids: tuple[str, str]) -> None:
    """Without the turns before it there is nothing that it could follow."""
    plain = [make_reply(WORDS, prompt=i) for i in ids]
    other = [make_reply(LATE, "eagle", 2, prompt=i, launch="001") for i in ids]
    (overall,) = [m for m in compare_texts([*plain, *other]) if not m.concurrency]
    assert (overall.compared, overall.matched) == (2, 0)


def test_what_cannot_be_compared_is_not_counted() -> None:
    """Another prompt, another split, another key, no marks at all: neither match nor difference."""
    replies = arm([WORDS])
    others = (
        make_reply(WORDS, "eagle", 2, launch="001", prompt="p9"),
        make_reply(WORDS, "eagle", 2, launch="001", split="confirmation"),
        make_reply(WORDS, "eagle", 2, launch="001", key=b"new"),
        make_reply(WORDS, "eagle", 2, launch="001", marked=False),
    )
    assert compare_texts([*replies, *others]) == ()
    assert compare_texts([]) == ()


def test_most_replies_parting_at_once_are_suspect() -> None:
    """With the figures, and what two plain launches do; half is not most."""
    plain = arm([WORDS] * 4) + arm([WORDS] * 3 + [LATE], launch="003")
    half = arm([EARLY, EARLY, WORDS, WORDS], "ngram", 1, launch="002")
    most = arm([EARLY, EARLY, EARLY, WORDS], "eagle", 2, launch="001")
    found = compare_texts([*plain, *half, *most])
    assert {m.candidate for m in found if m.suspect} == {"eagle"}
    (remark,) = text_remarks(found, ())
    assert "with eagle at K = 2" in remark
    assert "within the first 5 tokens in 3 of 4 replies (search prompts): suspect" in remark
    assert "between two plain launches 3 of 4 replies match" in remark


def test_all_k_of_a_candidate_are_one_remark() -> None:
    """With the figures of the worst."""
    plain = arm([WORDS] * 4)
    some = arm([EARLY, EARLY, EARLY, WORDS], "eagle", 1, launch="001")
    all_of_them = arm([EARLY] * 4, "eagle", 2, launch="001")
    (remark,) = text_remarks(compare_texts([*plain, *some, *all_of_them]), ())
    assert "at K = 2 the text differs" in remark
    assert "4 of 4 replies (search prompts), and so at K = 1: suspect" in remark


def test_an_engine_that_does_not_repeat_itself_is_told() -> None:
    """Then the differences of the candidates say little."""
    found = compare_texts(arm([WORDS] * 2) + arm([EARLY] * 2, launch="003"))
    (remark,) = text_remarks(found, ())
    assert "two launches of plain decoding differ" in remark


def blocks(tokens: list[int], candidate: str = BASELINE, k: int = 0, text: str = "") -> list[Reply]:
    """One reply for each block."""
    launch = "000" if candidate == BASELINE else "001"
    return [
        make_reply(text, candidate, k, block=i, tokens=n, launch=launch)
        for i, n in enumerate(tokens)
    ]


def test_length_ratio_by_hand() -> None:
    """Log ratios ln 2, ln 2, ln 1 of three blocks: a mean of 2/3 ln 2, t(2) = 4.303."""
    plain, other = blocks([10, 20, 30]), blocks([20, 40, 30], "eagle", 2)
    (shift,) = compare_shifts([*plain, *other])
    spread = 4.302653 * math.sqrt((math.log(2) ** 2) / 3 / 3)
    mean = math.log(2) * 2 / 3
    assert (shift.mean_tokens, shift.baseline_mean_tokens) == (30, 20)
    assert shift.tokens.mean == pytest.approx(math.exp(mean))
    assert shift.tokens.low == pytest.approx(math.exp(mean - spread), rel=1e-5)
    assert shift.shifted == ()
    assert (shift.blocks, shift.variety) == (3, None)


def test_a_shift_beyond_the_noise_is_flagged() -> None:
    """All four blocks are about a tenth longer, and half as varied."""
    plain = blocks([100, 120, 90, 110], text="a b c d e")
    other = blocks([110, 133, 99, 121], "eagle", 2, text="a b a b a")
    (shift,) = compare_shifts([*plain, *other])
    length, variety = shift.shifted
    assert length.startswith("mean length 1.10x [1.")
    assert variety.startswith("distinct-2 0.50x [0.")
    assert shift.distinct_2 == 0.5
    assert shift.baseline_distinct_2 == 1.0
    told = text_remarks((), [shift])
    assert len(told) == 1
    assert "mean length 1.10x [" in told[0]


def test_a_tiny_shift_is_none_however_sure() -> None:
    """One per cent in every block alike."""
    (shift,) = compare_shifts([*blocks([100] * 3), *blocks([101] * 3, "eagle", 2)])
    assert shift.tokens.low > 1
    assert shift.shifted == ()


def test_without_a_common_block_there_is_no_comparison() -> None:
    """Nor without plain decoding."""
    other = [make_reply("", "eagle", 2, block=7)]
    assert compare_shifts(other) == ()
    assert compare_shifts([*blocks([10]), *other]) == ()
