"""What was said: the replies of every point beside those of plain decoding.

Rules: at temperature 0 a reply is compared with the one that plain decoding gave to the same
prompt at the same concurrency; kernels in bf16 round differently with the shape of a batch, so
replies part without anything being wrong, those of two plain launches, too, and a difference never
fails a pass. A later turn holds the replies before it: a conversation is compared up to the first
reply that differs, what follows answers another prompt. At other temperatures no two replies need
to agree; lengths and variety are compared, those of all turns.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from scipy.special import stdtrit

from autotune.core.counting import counted
from autotune.core.proportion import CONFIDENCE
from autotune.core.replies import Reply, agreeing_words, comparable
from autotune.core.statistics import Estimate, Interval, mean_of
from autotune.core.trial import BASELINE

EARLY_TOKENS = 5
MOST = 0.5
SMALLEST_SHIFT = 0.02
"""A shift of mean length or variety below this share is not worth a remark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextMatch:
    """The replies of one point against those of plain decoding, temperature 0."""

    split: str
    candidate: str
    """`baseline`: one plain launch against another, what equal launches do by themselves."""
    num_speculative_tokens: int
    concurrency: int | None
    """None: all levels together."""
    compared: int
    """Without the turns of a conversation that follow a reply that differs."""
    matched: int
    words_before: float | None
    """Mean number of words before the first difference, of the replies that differ."""
    tokens_before: float | None
    """The same in tokens, estimated from the tokens per word of the plain reply."""
    early: int
    """Replies that differ within the first `EARLY_TOKENS` tokens."""

    @property
    def rate(self) -> float:
        """The share of replies that match."""
        return self.matched / self.compared

    @property
    def suspect(self) -> bool:
        """Whether most replies differ at their very beginning, which rounding seldom does."""
        return self.early > MOST * self.compared

    def show(self) -> str:
        """`55 of 64 replies match`."""
        return f"{self.matched} of {self.compared} replies match"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextShift:
    """Mean length and variety of a point's replies beside those of plain decoding."""

    split: str
    candidate: str
    num_speculative_tokens: int
    blocks: int
    """Blocks that both ran, all levels together."""
    mean_tokens: float
    baseline_mean_tokens: float
    tokens: Interval
    """Ratio of the mean lengths, block by block; as the next one, within launches."""
    distinct_2: float | None
    baseline_distinct_2: float | None
    variety: Interval | None
    """Ratio of the mean distinct-2; None where nothing was long enough."""
    shifted: tuple[str, ...]
    """What differs beyond the noise, all rows of the table allowed for."""


def compare_texts(replies: Sequence[Reply]) -> tuple[TextMatch, ...]:
    """Every point at each level and overall; of plain decoding, the launches after the first."""
    plain = _first_plain(replies)
    pairs: dict[tuple[str, str, int], list[tuple[Reply, Reply]]] = defaultdict(list)
    for reply in replies:
        other = plain.get(reply.place)
        if other is not None and other.launch_id != reply.launch_id and _comparable(reply, other):
            pairs[reply.point].append((reply, other))
    return tuple(
        match
        for point, found in sorted(pairs.items())
        for match in _levels(point, list(_same_questions(found)))
    )


def compare_shifts(replies: Sequence[Reply]) -> tuple[TextShift, ...]:
    """Lengths and variety of every point but plain decoding, from the blocks that both ran."""
    arms: dict[tuple[str, str, int], list[Reply]] = defaultdict(list)
    for reply in replies:
        arms[reply.point].append(reply)
    points = [p for p in sorted(arms) if p[1] != BASELINE and (p[0], BASELINE, 0) in arms]
    pairs = [(p, _blocks(arms[p]), _blocks(arms[p[0], BASELINE, 0])) for p in points]
    shared = [(point, mine, theirs) for point, mine, theirs in pairs if mine.keys() & theirs.keys()]
    return tuple(_shift(*one, rows=len(shared)) for one in shared)


def text_remarks(matches: Sequence[TextMatch], shifts: Sequence[TextShift]) -> list[str]:
    """What a reader should not miss: a sentence for each candidate and split, with its figures."""
    overall = [m for m in matches if m.concurrency is None]
    reference = {m.split: m for m in overall if m.candidate == BASELINE}
    suspects: dict[tuple[str, str], list[TextMatch]] = defaultdict(list)
    for m in overall:
        if m.suspect:
            suspects[m.split, m.candidate].append(m)
    shifted: dict[tuple[str, str], list[TextShift]] = defaultdict(list)
    for s in shifts:
        if s.shifted:
            shifted[s.split, s.candidate].append(s)
    return [
        *(_suspicion(found, reference.get(split)) for (split, _), found in suspects.items()),
        *(_unlike(found) for found in shifted.values()),
    ]


def _suspicion(found: Sequence[TextMatch], reference: TextMatch | None) -> str:
    worst = max(found, key=lambda m: m.early / m.compared)
    figures = f"{worst.early} of {worst.compared} replies ({worst.split} prompts)"
    if worst.candidate == BASELINE:
        return (
            f"two launches of plain decoding differ within the first {EARLY_TOKENS} tokens in "
            f"{figures}: suspect; this engine does not repeat itself at temperature 0, so the "
            "texts of the others tell little"
        )
    beside = f"; between two plain launches {reference.show()}" if reference else ""
    return (
        f"with {worst.candidate} at K = {worst.num_speculative_tokens} the text differs from that "
        f"of plain decoding within the first {EARLY_TOKENS} tokens in {figures}"
        f"{_also(worst.num_speculative_tokens, found)}: suspect, rounding seldom parts replies "
        f"that early; read a few of both by hand before it is deployed{beside}"
    )


def _unlike(found: Sequence[TextShift]) -> str:
    worst = max(found, key=lambda s: len(s.shifted))
    return (
        f"with {worst.candidate} at K = {worst.num_speculative_tokens} the replies are not like "
        f"those of plain decoding: {', '.join(worst.shifted)} ({worst.split} prompts, "
        f"{counted(worst.blocks, 'block')}){_also(worst.num_speculative_tokens, found)}"
    )


def _also(k: int, found: Sequence[TextMatch] | Sequence[TextShift]) -> str:
    others = [str(m.num_speculative_tokens) for m in found if m.num_speculative_tokens != k]
    return f", and so at K = {', '.join(others)}" if others else ""


def _first_plain(replies: Iterable[Reply]) -> Mapping[tuple[str, int, int, str], Reply]:
    """For each question the reply of the first plain launch that was asked it."""
    first: dict[tuple[str, int, int, str], Reply] = {}
    for reply in sorted(replies, key=lambda r: r.launch_id):
        if reply.candidate == BASELINE and reply.said is not None:
            first.setdefault(reply.place, reply)
    return first


def _comparable(reply: Reply, other: Reply) -> bool:
    return reply.said is not None and other.said is not None and comparable(reply.said, other.said)


def _same_questions(pairs: Iterable[tuple[Reply, Reply]]) -> Iterator[tuple[Reply, Reply]]:
    """The pairs without those of turns that follow a difference in their conversation."""
    talks: dict[tuple[object, ...], dict[int, tuple[Reply, Reply]]] = defaultdict(dict)
    for reply, plain in pairs:
        name, turn = reply.turn
        talks[(reply.launch_id, *reply.place[:-1], name)][turn] = reply, plain
    for talk in talks.values():
        following, alike = 1, True
        for turn, (reply, plain) in sorted(talk.items()):
            if turn != following:  # nothing before it: a prompt that is called so
                yield reply, plain
                continue
            following += 1
            if alike:
                yield reply, plain
                alike = _agreed(reply, plain) is None


def _levels(
    point: tuple[str, str, int], pairs: Sequence[tuple[Reply, Reply]]
) -> Iterator[TextMatch]:
    for concurrency in sorted({reply.concurrency for reply, _ in pairs}):
        mine = [pair for pair in pairs if pair[0].concurrency == concurrency]
        yield _match(point, concurrency, mine)
    yield _match(point, None, pairs)


def _match(
    point: tuple[str, str, int], concurrency: int | None, pairs: Sequence[tuple[Reply, Reply]]
) -> TextMatch:
    split, candidate, k = point
    found = [_agreed(reply, plain) for reply, plain in pairs]
    differ = [f for f in found if f is not None]
    return TextMatch(
        split=split,
        candidate=candidate,
        num_speculative_tokens=k,
        concurrency=concurrency,
        compared=len(pairs),
        matched=len(pairs) - len(differ),
        words_before=fmean(words for words, _ in differ) if differ else None,
        tokens_before=fmean(tokens for _, tokens in differ) if differ else None,
        early=sum(tokens < EARLY_TOKENS for _, tokens in differ),
    )


def _agreed(reply: Reply, plain: Reply) -> tuple[int, float] | None:
    """Words and estimated tokens before the first difference; None without one."""
    if reply.said is None or plain.said is None:
        return None
    words = agreeing_words(reply.said, plain.said)
    if words is None:
        return None
    return words, words * plain.output_tokens / max(plain.said.words, 1)


@dataclass(frozen=True, slots=True)
class _Block:
    """The means of one block's replies, all launches of an arm together."""

    tokens: float
    distinct_2: float | None


def _blocks(replies: Iterable[Reply]) -> dict[tuple[int, int], _Block]:
    groups: dict[tuple[int, int], list[Reply]] = defaultdict(list)
    for reply in replies:
        groups[reply.concurrency, reply.block].append(reply)
    return {place: _block(group) for place, group in groups.items()}


def _block(replies: Sequence[Reply]) -> _Block:
    variety = [r.said.distinct_2 for r in replies if r.said and r.said.distinct_2 is not None]
    return _Block(fmean(r.output_tokens for r in replies), fmean(variety) if variety else None)


def _shift(
    point: tuple[str, str, int],
    mine: Mapping[tuple[int, int], _Block],
    theirs: Mapping[tuple[int, int], _Block],
    *,
    rows: int,
) -> TextShift:
    split, candidate, k = point
    shared = [(mine[place], theirs[place]) for place in sorted(mine.keys() & theirs.keys())]
    lengths = [(a.tokens, b.tokens) for a, b in shared]
    varieties = [(a.distinct_2, b.distinct_2) for a, b in shared]
    known = [(a, b) for a, b in varieties if a is not None and b is not None]
    tokens = _log_ratio(lengths)
    variety = _log_ratio(known) if known else None
    parts = (("mean length", tokens), ("distinct-2", variety))
    return TextShift(
        split=split,
        candidate=candidate,
        num_speculative_tokens=k,
        blocks=len(shared),
        mean_tokens=fmean(a for a, _ in lengths),
        baseline_mean_tokens=fmean(b for _, b in lengths),
        tokens=tokens.interval(),
        distinct_2=fmean(a for a, _ in known) if known else None,
        baseline_distinct_2=fmean(b for _, b in known) if known else None,
        variety=variety.interval() if variety else None,
        shifted=tuple(
            f"{name} {estimate.interval().show()}"
            for name, estimate in parts
            if estimate and _beyond_noise(estimate, 2 * rows)
        ),
    )


def _log_ratio(pairs: Iterable[tuple[float, float]]) -> Estimate:
    return mean_of([math.log(a / b) for a, b in pairs])


def _beyond_noise(estimate: Estimate, comparisons: int) -> bool:
    """Whether the ratio is off 1 with the table's confidence as a whole (Bonferroni)."""
    if estimate.dof <= 0 or abs(estimate.mean) <= SMALLEST_SHIFT:
        return False
    t = float(stdtrit(estimate.dof, 1 - (1 - CONFIDENCE) / 2 / comparisons))
    return abs(estimate.mean) > t * math.sqrt(estimate.variance)
