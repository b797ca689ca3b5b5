"""Diagnoses by the load: concurrency, length of the replies, memory.

Rules: an interval decides whether a gain is there or gone; preemptions are counted beside those of
plain decoding; a failure for lack of memory is one of verification only where a smaller K ran.
"""

import math
from collections.abc import Iterator, Sequence

from autotune.core.counting import counted
from autotune.core.diagnosis.case import Case, Cases
from autotune.core.diagnosis.table import Diagnosis, Seen
from autotune.core.trial import Cause, Pass

PREEMPTED = 0.01
"""Preemptions per request from which memory is in the way; fewer are a moment's peak."""
FIRST_TOKEN = 0.5
"""Share of a reply's time from which its first token dominates: the rest is all that speculation
can shorten, so even for free it could not double the speed (Amdahl 1967)."""
MIN_REPLIES = 20
"""Replies below which their length says little."""
VERIFICATION = frozenset(
    {Cause.OUT_OF_MEMORY_RUNTIME, Cause.OUT_OF_MEMORY_CAPTURE, Cause.OUT_OF_MEMORY_START}
)
"""At graph capture or in a step: activations and graphs grow with K + 1 tokens for each request."""


def batch_too_large(case: Case) -> Iterator[Seen]:
    """A gain at one concurrency is gone at a higher one."""
    found = [(lv, case.point(lv.concurrency)) for lv in case.spec.workload.levels]
    points = sorted((lv.concurrency, p.speedup) for lv, p in found if p and not lv.request_rate)
    good = [(c, s) for c, s in points if s.low > case.need]
    gone = [(c, s) for c, s in points if s.mean <= case.need]
    for c, speedup in good[-1:]:
        lost = [(other, s) for other, s in gone if other > c and s.high < speedup.mean]
        for other, s in lost[:1]:
            point = case.point(c)
            k = point.num_speculative_tokens if point else 0
            yield Seen(
                numbers=f"{speedup.show()} at concurrency {c}, {s.show()} at {other}"
                f"{_checking(case, other, k)}",
                concurrency=other,
                promise=_switched_off(case),
                change=f"num_speculative_tokens_per_batch_size of {case.name}: K = {k} up to {c} "
                f"requests, 0 from {other} on",
            )


def _switched_off(case: Case) -> float | None:
    """The overall speedup as measured, with plain decoding wherever there is none."""
    points = [(lv.weight, case.point(lv.concurrency)) for lv in case.spec.workload.levels]
    known = [(weight, point.speedup.mean) for weight, point in points if point]
    if len(known) < len(points):
        return None
    total = sum(weight for weight, _ in known)
    return math.exp(sum(weight * math.log(max(s, 1.0)) for weight, s in known) / total)


def memory_bound(case: Case) -> Iterator[Seen]:
    """Requests are thrown out of the KV cache and computed again."""
    for c, passes in case.passes.items():
        ours, theirs = preempted(passes), preempted(case.plain.get(c, ()))
        if ours is None or ours[0] < PREEMPTED * ours[1]:
            continue
        beside = f", {theirs[0]} in {theirs[1]} of plain decoding" if theirs else ""
        yield Seen(
            numbers=f"{counted(ours[0], 'preemption')} in {counted(ours[1], 'request')}{beside}",
            concurrency=c,
            change="gpu_memory_utilization: higher, as far as the device allows",
        )


def verification_out_of_memory(case: Case) -> Iterator[Seen]:
    """Memory ran out at a K above one that was served."""
    runtime = [k for k, cause, _ in _out_of_memory(case) if cause is Cause.OUT_OF_MEMORY_RUNTIME]
    for k, _, detail in _out_of_memory(case)[:1]:
        smaller = [other for other in case.counted if other < k]
        if not (smaller or (runtime and case.plain)):
            return
        overall = case.search.get(None)
        wanted = overall is not None and overall.knee.at_edge
        beside = f"K = {smaller[-1]} was served" if smaller else "plain decoding was served"
        lower = "target.engine_args.max_num_batched_tokens: lower" if wanted else ""
        yield Seen(
            numbers=f"out of memory at K = {k}, {beside}: {detail}",
            change=lower if smaller else f"num_speculative_tokens of {case.name}: below {k}",
        )


def _out_of_memory(case: Case) -> list[tuple[int, Cause, str]]:
    """K, cause and detail of each such failure, the smallest K first."""
    return sorted(
        (r.trial.num_speculative_tokens, f.cause, f.detail)
        for r, f in case.failures
        if f.cause in VERIFICATION and r.trial.num_speculative_tokens > 0
    )


def short_replies(study: Cases) -> Iterator[Seen]:
    """The first token takes at least as long as all others."""
    for c, passes in study.plain.items():
        share, replies = _first_token(passes), sum(p.requests for p in passes)
        gained = any(case.gains(c) for case in study.cases)
        if share is None or share < FIRST_TOKEN or replies < MIN_REPLIES or gained:
            continue
        tokens = sum(p.output_tokens for p in passes) / replies
        yield Seen(
            numbers=f"replies have {tokens:.0f} tokens, and the first takes {share:.0%} of their "
            f"time: if all others cost nothing, {1 / share:.1f} times the speed",
            concurrency=c,
        )


def _first_token(passes: Sequence[Pass]) -> float | None:
    """The share of all replies' time that went by before their first token.

    None in an open loop, where waiting for a slot is part of it, and where it was not measured.
    """
    if any(p.request_rate is not None for p in passes):
        return None
    times = [p.times for p in passes if p.times]
    if times:
        return sum(sum(t.ttft_ms) for t in times) / sum(sum(t.e2e_ms) for t in times)
    known = [(p.steps, p.output_tokens / p.requests) for p in passes if p.steps]
    if not known:
        return None
    first = sum(steps.first_token_s for steps, _ in known)
    return first / sum(steps.seconds_of(tokens) for steps, tokens in known)


def preempted(passes: Sequence[Pass]) -> tuple[int, int] | None:
    """Preemptions and requests of the passes that count them; None without any."""
    known = [p for p in passes if p.preemptions is not None]
    if not known:
        return None
    return sum(p.preemptions or 0 for p in known), sum(p.requests for p in known)


def _checking(case: Case, concurrency: int, k: int) -> str:
    cost = case.costs.get(concurrency)
    if cost is None or k not in cost.ks:
        return ""
    checking = cost.split(k).checking_s
    if checking is None:
        return ""
    share = checking / cost.plain.seconds
    return f"; there checking K = {k} takes {share:.0%} of a plain step"


LOAD = (
    Diagnosis(
        id="batch_too_large",
        sign="a gain at one concurrency, and none left at a higher one",
        remedy="with so many requests in a step checking is no longer free: switch speculation off "
        "from there on by a schedule (num_speculative_tokens_per_batch_size), which a study "
        "confirms and exports where it pays",
        check=batch_too_large,
    ),
    Diagnosis(
        id="memory_bound",
        sign=f"at least {PREEMPTED:.0%} of the requests are preempted",
        remedy="the KV cache is too small for this load, and a draft takes its share of it: a "
        "higher gpu_memory_utilization, a smaller max_num_seqs, or a smaller K",
        check=memory_bound,
    ),
    Diagnosis(
        id="verification_out_of_memory",
        sign="memory runs out at a K, and a smaller one, or plain decoding, is served",
        remedy="a smaller K or a lower max_num_batched_tokens: what a step computes at once grows "
        "with K + 1 tokens for each request",
        check=verification_out_of_memory,
    ),
)
STUDY_LOAD = (
    Diagnosis(
        id="short_replies",
        sign=f"no gain, and the first token takes {FIRST_TOKEN:.0%} of a reply's time or more",
        remedy="time to the first token dominates, which speculation does not shorten: do not "
        "speculate for replies of some tens of tokens",
        study_check=short_replies,
    ),
)
