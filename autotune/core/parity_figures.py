"""What was measured in two arms: the checks of a comparison that look at figures.

Rules: a check names its numbers, and a figure that nobody counted gives no doubt; what cannot be
(more tokens than steps allow, a loop for a reply) makes the comparison invalid, what can be
explained is a remark with its explanation.
"""

import math
from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from autotune.core.acceptance import MIN_DRAFTS
from autotune.core.counting import counted
from autotune.core.pairs import Pair, Row
from autotune.core.trial import Pass

LENGTH_TOLERANCE = 0.02
LOOP_SHARE = 0.2
"""Share of looping replies, beyond the baseline's, above which an arm is fast for nothing."""
HIT_DIFFERENCE = 0.02
CEILING_SLACK = 1.05
SHORT_REPLY = 16
TREND = 0.05
"""How much the second half of a launch must differ from the first to be called a trend."""
LEARNING_PASSES = 3


def _never_proposed(pair: Pair) -> str | None:
    spec, tokens = pair.arm.spec, sum(p.output_tokens for p in pair.arm.passes)
    if spec is None or spec.drafts > 0:
        return None
    return (
        f"never proposed: not one draft over {tokens} tokens, so its acceptance is not known "
        "(it is not 0)"
    )


def _uncounted(pair: Pair) -> str | None:
    if pair.arm.spec is not None:
        return None
    return "acceptance unavailable: this engine version shows no counters of speculation"


def _few_drafts(pair: Pair) -> str | None:
    profile = pair.arm.spec.profile if pair.arm.spec else None
    if profile is None or profile.sufficient:
        return None
    seen = profile.counters
    told = f"{seen.accepted_tokens} of {seen.draft_tokens} tokens"
    interval = profile.rate_interval
    if interval and profile.rate is not None:
        told += f" ({profile.rate:.0%}, between {interval[0]:.0%} and {interval[1]:.0%})"
    return (
        f"{counted(seen.drafts, 'draft')}, {told} accepted: insufficient, {MIN_DRAFTS} are needed"
    )


def _short_replies(pair: Pair) -> str | None:
    length = _tokens_per_reply(pair.arm.passes)
    if length >= SHORT_REPLY or pair.arm.spec is None or pair.arm.spec.drafts == 0:
        return None
    return (
        f"replies have {length:.0f} tokens on average: drafts accepted past their end are counted, "
        "so the acceptance length is biased upward"
    )


def _warned(pair: Pair) -> str | None:
    counts: Counter[str] = Counter()
    for p in pair.arm.passes:
        counts.update(p.warnings)
    found = [f"{what}, {counted(count, 'time')}" for what, count in sorted(counts.items())]
    return f"the engine's log warns: {'; '.join(found)}" if found else None


def _not_json(pair: Pair) -> str | None:
    ours, theirs = (sum(p.not_json for p in arm.passes) for arm in (pair.arm, pair.baseline))
    if not ours:
        return None
    counts = [sum(p.requests for p in arm.passes) for arm in (pair.arm, pair.baseline)]
    return (
        f"{ours} of {counts[0]} replies are no JSON, which response_format asked for; of the "
        f"baseline's {theirs} of {counts[1]}"
    )


def _host(pair: Pair) -> str | None:
    seen = [
        why
        for side in (pair.arm, pair.baseline)
        for r in side.records
        for p in side.of(r)
        if (why := pair.short.get((r.launch_id, p.order)))
    ]
    total = len(pair.arm.passes) + len(pair.baseline.passes)
    return f"in {len(seen)} of {counted(total, 'pass', 'passes')} {seen[0]}" if seen else None


def _lengths(pair: Pair) -> str | None:
    ours = _tokens_per_reply(pair.arm.on(pair.shared))
    theirs = _tokens_per_reply(pair.baseline.on(pair.shared))
    if not ours or not theirs or abs(ours / theirs - 1) <= LENGTH_TOLERANCE:
        return None
    return f"{ours:.1f} tokens per reply, the baseline's have {theirs:.1f} on the same prompts"


def _lengths_forced(pair: Pair) -> str | None:
    return _lengths(pair) if pair.spec.workload.ignore_eos else None


def _lengths_free(pair: Pair) -> str | None:
    return None if pair.spec.workload.ignore_eos else _lengths(pair)


def _loops(pair: Pair) -> str | None:
    ours, theirs = _loop_share(pair.arm.passes), _loop_share(pair.baseline.passes)
    if ours - theirs <= LOOP_SHARE:
        return None
    return f"{ours:.0%} of the replies are one phrase over and over, {theirs:.0%} of the baseline's"


def _prefix_hits(pair: Pair) -> str | None:
    ours, theirs = _hit_rate(pair.arm.passes), _hit_rate(pair.baseline.passes)
    if ours is None or theirs is None or abs(ours - theirs) <= HIT_DIFFERENCE:
        return None
    return f"{ours:.0%} of the prompt tokens came from the prefix cache, {theirs:.0%} in baseline"


def _preemptions(pair: Pair) -> str | None:
    ours, theirs = _preempted(pair.arm.passes), _preempted(pair.baseline.passes)
    if not ours or theirs is None or theirs > 0:
        return None
    held = [s.capacity for s in (pair.arm, pair.baseline)]
    room = (
        "; its KV cache holds {:,} tokens, the baseline's {:,}".format(*held) if all(held) else ""
    )
    told = f"{counted(ours, 'preemption')}, none in the baseline{room}"
    return f"{told}: a slowdown is memory, not the draft"


def _above_the_ceiling(pair: Pair) -> str | None:
    if pair.concurrency != 1:
        return None
    ratios = [ratio for launch in pair.speedups for ratio in launch]
    most = pair.num_speculative_tokens + 1
    speedup = math.exp(fmean(map(math.log, ratios))) if ratios else 0.0
    if speedup <= most * CEILING_SLACK:
        return None
    return f"{speedup:.1f} times the baseline's speed at concurrency 1: K + 1 = {most} is the most"


def _apart(pair: Pair) -> str | None:
    """Passes whose replies took another time than their steps explain: the estimates disagree."""
    known = [p.steps for p in pair.arm.passes if p.steps and p.request_rate is None]
    gaps = [abs(steps.unexplained) for steps in known if not steps.consistent]
    if not gaps:
        return None
    return (
        f"in {len(gaps)} of {counted(len(pair.arm.passes), 'pass', 'passes')} replies took up to "
        f"{max(gaps):.0%} more or less time than their steps explain"
    )


def _learned(pair: Pair) -> str | None:
    if not pair.spec.candidate(pair.candidate).row.learns:
        return None
    for launch in pair.speedups:
        if len(launch) >= LEARNING_PASSES and _rises(launch):
            first, second = _halves(launch)
            return (
                f"it learns from the replies: {_series(launch)}, that is {first:.2f} in the first "
                f"half of a launch and {second:.2f} in the second; every launch starts cold, and "
                "what is reported is the mean from there on"
            )
    return None


def _series(values: Sequence[float]) -> str:
    """Single passes, not estimates: they have no interval."""
    return f"{', '.join(f'{v:.2f}' for v in values)} of the baseline's speed block by block"


def _rises(values: Sequence[float]) -> bool:
    """Whether the second half lies above the first, all of it, and by more than `TREND`."""
    half = len(values) // 2
    first, second = _halves(values)
    return second / first - 1 > TREND and max(values[:half]) < min(values[-half:])


def _halves(values: Sequence[float]) -> tuple[float, float]:
    half = len(values) // 2
    return fmean(values[:half]), fmean(values[-half:])


def _tokens_per_reply(passes: Sequence[Pass]) -> float:
    requests = sum(p.requests for p in passes)
    return sum(p.output_tokens for p in passes) / requests if requests else 0.0


def _loop_share(passes: Sequence[Pass]) -> float:
    return sum(p.looping for p in passes) / sum(p.requests for p in passes)


def _hit_rate(passes: Sequence[Pass]) -> float | None:
    known = [p.prefix_hit_rate for p in passes if p.prefix_hit_rate is not None]
    return fmean(known) if known else None


def _preempted(passes: Sequence[Pass]) -> int | None:
    known = [p.preemptions for p in passes if p.preemptions is not None]
    return sum(known) if known else None


FIGURES = (
    Row(
        what="forced length",
        check=_lengths_forced,
        remedy="with ignore_eos all replies are equally long: see finish_reason in the samples",
        invalid=True,
        per_level=True,
    ),
    Row(
        what="loops",
        check=_loops,
        remedy="such text is drafted for free: see sampling parameters, quantization and draft",
        invalid=True,
        per_level=True,
    ),
    Row(
        what="ceiling",
        check=_above_the_ceiling,
        remedy="an accounting error, or a cache that answers: compare usage and text of one reply",
        invalid=True,
        per_level=True,
    ),
    Row(
        what="never proposed", check=_never_proposed, remedy="its speedup is measured all the same"
    ),
    Row(what="uncounted", check=_uncounted, remedy="its speedup is measured all the same"),
    Row(what="few drafts", check=_few_drafts, remedy="more blocks or longer replies tell more"),
    Row(what="short replies", check=_short_replies, remedy="go by the speedup"),
    Row(what="warnings", check=_warned, remedy="check that the replies still validate"),
    Row(
        what="not JSON",
        check=_not_json,
        remedy="look at replies by hand before it is deployed: replies cut at max_tokens are not "
        "among them",
    ),
    Row(
        what="host", check=_host, remedy="see `autotune show --passes`, and repeat on a quiet host"
    ),
    Row(
        what="length",
        check=_lengths_free,
        remedy="speeds are per token; longer contexts and later stops shift acceptance",
        per_level=True,
    ),
    Row(
        what="prefix hits",
        check=_prefix_hits,
        remedy="turn prefix caching off to see the draft's own part",
        per_level=True,
    ),
    Row(
        what="preemptions",
        check=_preemptions,
        remedy="raise search.gpu_memory_utilization, or lower max_num_seqs",
        per_level=True,
    ),
    Row(
        what="steps and replies",
        check=_apart,
        remedy="stalls of host or client, which the speedup by steps leaves out",
        per_level=True,
    ),
    Row(what="learning", check=_learned, per_level=True),
)
"""The checks, those first that make a comparison invalid."""
