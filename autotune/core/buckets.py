"""A point's speedup by the length of its prompts.

A draft follows its target less well far into a long context, and a mixed workload hides it: 1.8x on
short prompts and 0.85x on long ones are told as 1.3x. Here each bucket of prompt lengths is
compared on its own,

    ratio = (sum of plain reply times / their tokens) / (sum of the candidate's / their tokens)

over the same prompts at the same concurrency.

Rules: the ratio is one of totals, never a mean of ratios; its variance is that of the totals over
prompts (linearised), and the launch effect is added, as to every interval between launches.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from autotune.core.noise import LaunchEffect
from autotune.core.replies import Reply
from autotune.core.statistics import Estimate, Interval
from autotune.core.trial import BASELINE

EDGES = (0, 256, 1024, 4096, 16384)
"""Prompt tokens at which a bucket begins; fixed, so that studies can be laid side by side."""
LABELS = ("below 256", "256 to 1k", "1k to 4k", "4k to 16k", "16k and more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """One bucket of prompt lengths of a point at one concurrency."""

    split: str
    candidate: str
    num_speculative_tokens: int
    concurrency: int
    bucket: int
    """Index into `EDGES` and `LABELS`."""
    prompts: int
    speedup: Interval
    """Plain time per output token over the candidate's, the time to the first token included."""

    @property
    def label(self) -> str:
        """`256 to 1k`."""
        return LABELS[self.bucket]


@dataclass(frozen=True, slots=True)
class _Cost:
    """Seconds and tokens of one prompt's reply, the mean over the launches of an arm."""

    seconds: float
    tokens: float


Costs = Mapping[tuple[int, str], _Cost]
"""(block, prompt id) to its cost."""
_At = tuple[str, str, int, int]
"""Split, candidate, K, concurrency."""


def bucket_of(prompt_tokens: int) -> int:
    """The index of the bucket of a prompt."""
    return sum(prompt_tokens >= edge for edge in EDGES) - 1


def by_length(replies: Sequence[Reply], effect: LaunchEffect) -> tuple[Bucket, ...]:
    """Every point at each level, bucket by bucket; empty unless the prompts fill two or more."""
    if len({bucket_of(r.prompt_tokens) for r in replies}) < 2:  # noqa: PLR2004 - one tells nothing
        return ()
    arms: dict[_At, list[Reply]] = defaultdict(list)
    for reply in replies:
        if reply.output_tokens > 0:
            arms[*reply.point, reply.concurrency].append(reply)
    found = []
    for at, mine in sorted(arms.items()):
        split, candidate, k, concurrency = at
        plain = arms.get((split, BASELINE, 0, concurrency))
        if candidate != BASELINE and k > 0 and plain is not None:
            found += _point(at, mine, plain, effect)
    return tuple(found)


def bucket_remarks(buckets: Iterable[Bucket]) -> list[str]:
    """Candidates that are faster on prompts of one length and slower on others, the clearest case.

    Of the confirmation if it is such a case, else of the search.
    """
    points: dict[_At, list[Bucket]] = defaultdict(list)
    for b in buckets:
        points[b.split, b.candidate, b.num_speculative_tokens, b.concurrency].append(b)
    divided: dict[str, list[_At]] = defaultdict(list)
    for at, mine in points.items():
        if _contrast(mine) > 1:
            divided[at[1]].append(at)
    return [
        _remark(max(found, key=lambda at: (at[0] == "confirmation", _contrast(points[at]))), points)
        for found in divided.values()
    ]


def _contrast(buckets: Sequence[Bucket]) -> float:
    """The best of the buckets above 1 over the worst of those below; 1 unless there are both."""
    faster = [b.speedup.mean for b in buckets if b.speedup.low > 1]
    slower = [b.speedup.mean for b in buckets if b.speedup.high < 1]
    return max(faster) / min(slower) if faster and slower else 1.0


def _remark(at: _At, points: Mapping[_At, Sequence[Bucket]]) -> str:
    split, candidate, k, concurrency = at
    faster = [b for b in points[at] if b.speedup.low > 1]
    slower = [b for b in points[at] if b.speedup.high < 1]
    return (
        f"at K = {k} {candidate} helps some prompts and hurts others by their length (concurrency "
        f"{concurrency}, {split} prompts): {_shown(faster)}, but {_shown(slower)}; one figure for "
        "all lengths holds for this mix of prompts only"
    )


def _shown(buckets: Iterable[Bucket]) -> str:
    return ", ".join(f"{b.speedup.show()} with {b.label} tokens" for b in buckets)


def _point(
    at: _At, mine: Sequence[Reply], plain: Sequence[Reply], effect: LaunchEffect
) -> list[Bucket]:
    split, candidate, k, concurrency = at
    costs, plain_costs = _costs(mine), _costs(plain)
    lengths = {(r.block, r.prompt_id): bucket_of(r.prompt_tokens) for r in plain}
    launches = len({r.launch_id for r in mine}), len({r.launch_id for r in plain})
    shared = sorted(costs.keys() & plain_costs.keys())
    found = []
    for bucket in sorted({lengths[place] for place in shared}):
        inside = [place for place in shared if lengths[place] == bucket]
        estimate = log_ratio_of_totals(
            [(plain_costs[p].seconds, plain_costs[p].tokens) for p in inside],
            [(costs[p].seconds, costs[p].tokens) for p in inside],
        )
        found.append(
            Bucket(
                split=split,
                candidate=candidate,
                num_speculative_tokens=k,
                concurrency=concurrency,
                bucket=bucket,
                prompts=len(inside),
                speedup=effect.on(estimate, *launches).interval(),
            )
        )
    return found


def log_ratio_of_totals(
    plain: Sequence[tuple[float, float]], mine: Sequence[tuple[float, float]]
) -> Estimate:
    """log of (seconds per token of `plain`) / (those of `mine`), prompt by prompt in one order.

    The variance is that of the linearised totals: prompt i moves the logarithm by
    t_i / T - n_i / N of the plain arm less the same of the other, and these shares sum to zero.
    """
    shares = [a - b for a, b in zip(_influence(plain), _influence(mine), strict=True)]
    n = len(shares)
    variance = n / (n - 1) * sum(share**2 for share in shares) if n > 1 else 0.0
    mean = math.log(_per_token(plain) / _per_token(mine))
    return Estimate(mean=mean, variance=variance, dof=n - 1, n=n)


def _per_token(costs: Sequence[tuple[float, float]]) -> float:
    return sum(seconds for seconds, _ in costs) / sum(tokens for _, tokens in costs)


def _influence(costs: Sequence[tuple[float, float]]) -> list[float]:
    seconds, tokens = sum(s for s, _ in costs), sum(n for _, n in costs)
    return [s / seconds - n / tokens for s, n in costs]


def _costs(replies: Iterable[Reply]) -> Costs:
    groups: dict[tuple[int, str], list[Reply]] = defaultdict(list)
    for reply in replies:
        groups[reply.block, reply.prompt_id].append(reply)
    return {
        place: _Cost(
            sum(r.seconds for r in group) / len(group),
            sum(r.output_tokens for r in group) / len(group),
        )
        for place, group in groups.items()
    }
