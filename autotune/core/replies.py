"""What is kept of a reply once its text is gone: enough to compare it, not enough to read it.

Law: a text goes in, only counts and keyed marks come out. Nothing here holds a text, so nothing
that is stored or shown from here can.

What the marks protect, and what they do not. A mark is 16 bits of a keyed BLAKE2s over all words so
far. Without the study's key (`reply.key`, which only its owner can read) no guess can be tested
against it; what still shows is how many words a reply has, and which replies of one study begin
alike. With the key, whoever can guess words finds the reply again, one word at a time: to the
holder of the key the marks are as good as the text.
"""

import hashlib
import re
from dataclasses import dataclass
from itertools import pairwise

KEY_BYTES = 32
EVERY_WORD, EVERY_EIGHTH = 64, 512
MARKED: tuple[int, ...] = (*range(EVERY_WORD + 1), *range(EVERY_WORD + 8, EVERY_EIGHTH + 1, 8))
"""After how many words there is a mark. The first one, after none, tells one key from another."""
MARK_CHARACTERS, WHOLE_CHARACTERS = 4, 16
"""Hex digits. Once in 65,536 times a wrong word has the right mark, and the next word tells: the
first difference is then found one word late."""

# Scripts written without spaces: Thai and Lao, Burmese, Khmer, Chinese and Japanese. There each
# character counts as a word.
_UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\s{_UNSPACED}]+")
_LATER_TURN = re.compile(r"(.+)#([2-9]|[1-9]\d{1,5})", re.DOTALL | re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyPrint:
    """The marks of one reply."""

    words: int
    marks: str
    """Hex; one mark for each number in `MARKED` that the reply has words for."""
    whole: str
    """Hex; a mark of the whole text, white space included."""
    distinct_2: float | None
    """Different pairs of neighbouring words over all pairs; None below two words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One reply of a valid pass: where it belongs, what it cost, and its marks."""

    split: str
    """Which prompts: `search` or `confirmation`."""
    candidate: str
    num_speculative_tokens: int
    launch_id: str
    concurrency: int
    block: int
    prompt_id: str
    prompt_tokens: int
    output_tokens: int
    seconds: float
    """From sending the request to the end of its reply."""
    said: ReplyPrint | None
    """None when it was measured before marks were kept."""

    @property
    def point(self) -> tuple[str, str, int]:
        """Split, candidate and K."""
        return self.split, self.candidate, self.num_speculative_tokens

    @property
    def place(self) -> tuple[str, int, int, str]:
        """What two replies must share to be answers to the same turn of the same prompt.

        The same question it is only where all earlier turns were answered alike: a later turn holds
        the replies before it.
        """
        return self.split, self.concurrency, self.block, self.prompt_id

    @property
    def turn(self) -> tuple[str, int]:
        """Id of the conversation and number of the turn, from 1: `81#2` is the second of `81`.

        People may write such ids themselves, so it is one only where the turns before it are there.
        """
        found = _LATER_TURN.fullmatch(self.prompt_id)
        return (found[1], int(found[2])) if found else (self.prompt_id, 1)


def print_of(text: str, key: bytes) -> ReplyPrint:
    """The marks of a text under a key of at most `KEY_BYTES`."""
    found = list(_WORD.finditer(text))
    digest, marks, start = hashlib.blake2s(key=key), [], 0
    for count in MARKED:
        if count > len(found):
            break
        end = found[count - 1].end() if count else 0
        digest.update(text[start:end].encode(errors="surrogatepass"))
        marks.append(digest.hexdigest()[:MARK_CHARACTERS])
        start = end
    digest.update(text[start:].encode(errors="surrogatepass"))
    return ReplyPrint(
        words=len(found),
        marks="".join(marks),
        whole=digest.hexdigest()[:WHOLE_CHARACTERS],
        distinct_2=_distinct_2([match.group() for match in found]),
    )


def comparable(one: ReplyPrint, other: ReplyPrint) -> bool:
    """Whether both were made with the same key."""
    return one.marks[:MARK_CHARACTERS] == other.marks[:MARK_CHARACTERS]


def agreeing_words(one: ReplyPrint, other: ReplyPrint) -> int | None:
    """Words before the first difference; None when there is none.

    Exact up to `EVERY_WORD` words, then the multiple of 8 below, at most `EVERY_EIGHTH`.
    """
    if one.whole == other.whole:
        return None
    pairs = zip(_cut(one.marks), _cut(other.marks), strict=False)
    shared = min(len(one.marks), len(other.marks)) // MARK_CHARACTERS
    equal = next((i for i, (a, b) in enumerate(pairs) if a != b), shared)
    return MARKED[max(equal - 1, 0)]


def _cut(marks: str) -> list[str]:
    return [marks[i : i + MARK_CHARACTERS] for i in range(0, len(marks), MARK_CHARACTERS)]


def _distinct_2(words: list[str]) -> float | None:
    pairs = list(pairwise(words))
    return len(set(pairs)) / len(pairs) if pairs else None
