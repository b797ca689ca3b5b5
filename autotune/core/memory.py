"""gpu_memory_utilization: it makes no step faster, it buys KV cache; how much of it is enough.

Rules: the search runs at the largest utilization that starts, so that no K is slow for want of
memory; what is deployed is the smallest one whose KV cache holds the measured peak of the load with
headroom, between the bounds that failures set (core/memory_bounds.py). On a CPU vLLM takes the
share of the RAM.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from autotune.core.capacity import Capacities, Capacity, Source, capacities
from autotune.core.counting import counted
from autotune.core.memory_bounds import at_utilization, bounds, failed_at, within
from autotune.core.study import StudySpec
from autotune.core.trial import Failure, Pass, Record, Stage

HEADROOM = 0.25
"""What the KV cache must hold beyond the measured peak, a fraction of it. The gauge is read once a
second, between two readings every stream may write another block or more; and traffic has longer
prompts than any sample of it. A convention, not a measurement."""
LEAST_HEADROOM = 0.1
"""Enough where a cold launch at that utilization has served the load without a preemption: another
launch is not worth what the plan was off by."""
FAR_TOO_LARGE = 2.0
"""A KV cache of more than this multiple of peak and headroom is called far too large."""


class Point(Protocol):
    """What says which candidate, and at which K."""

    @property
    def candidate(self) -> str: ...
    @property
    def num_speculative_tokens(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What the load took of the KV cache, measured under way."""

    tokens: int
    """The highest that was seen; at least the whole cache where requests were preempted."""
    preemptions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One utilization that was asked for, and what speaks for or against it."""

    utilization: float
    capacity: Capacity | None
    headroom: float | None
    """What it holds beyond the peak need, a fraction of that; None where one is not known."""
    verdict: str
    open: bool
    """Whether nothing is known against it but its size."""
    enough: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The utilization to deploy, and why."""

    utilization: float
    why: str
    need_tokens: int | None
    headroom: float | None
    bounded_below: float | None
    """The largest utilization that is known to be too small."""
    bounded_above: float | None
    """The smallest utilization that is known to be too large."""
    options: tuple[Option, ...]
    remark: str = ""
    """What is wrong with it, if something is."""
    confirmed_peak: float | None = None
    """Highest share of the KV cache in use in cold launches at this utilization."""

    @property
    def capacity(self) -> Capacity | None:
        """What its KV cache holds."""
        return next(o.capacity for o in self.options if o.utilization == self.utilization)


def utilization_for(spec: StudySpec, records: Sequence[Record], finalist: Point) -> Choice:
    """The smallest allowed utilization that is enough for this point at every level."""
    case = _case(records, finalist.candidate, finalist.num_speculative_tokens)
    options = tuple(case.option(u) for u in spec.search.gpu_memory_utilization)
    chosen = _pick(options, case)
    return Choice(
        utilization=chosen.utilization,
        why=_why(options, chosen, case),
        need_tokens=case.need.tokens if case.need else None,
        headroom=chosen.headroom,
        bounded_below=case.below,
        bounded_above=case.above,
        options=options,
        remark=_remark(options, chosen, case),
        confirmed_peak=case.cold_peaks.get(chosen.utilization),
    )


def peak_need(records: Sequence[Record], name: str, k: int) -> Need | None:
    """What the load took at this point, the worst of all levels; None where nobody looked.

    It is what the search saw: prompts of the confirmation would move the choice that they are to
    confirm. Only a confirmation that preempted shows that the search had missed something.
    """
    found, preemptions = [], 0
    for record in _of(records, name, k):
        capacity = record.facts.kv_cache_tokens if record.facts else None
        lost, peak = _preemptions(record), _peak([record])
        if capacity is None or (record.trial.stage is Stage.CONFIRM and not lost):
            continue
        preemptions += lost
        if lost or peak:
            found.append(capacity * (1.0 if lost or peak is None else peak))
    return Need(tokens=math.ceil(max(found)), preemptions=preemptions) if found else None


def device_words(records: Sequence[Record]) -> str:
    """Of which memory a utilization is a share."""
    facts = next((r.facts for r in records if r.facts), None)
    if facts is None:
        return "the device's memory"
    on_cpu = facts.device.startswith("cpu") or facts.resolved.get("device_config") == "cpu"
    return "the RAM" if on_cpu else "the GPU's memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """What the records say of one point's memory."""

    need: Need | None
    known: Capacities
    below: float | None
    above: float | None
    failed: Mapping[float, Sequence[Failure]]
    cold_peaks: Mapping[float, float | None]
    """By utilization at which a cold launch has served the load."""
    longest: int
    """The context that the engine resolved, in tokens; 0 where it did not tell."""
    place: str

    @property
    def wanted(self) -> float:
        """Tokens that a KV cache is to hold: the engine asks for one whole context as well."""
        return max(self.need.tokens * (1 + HEADROOM) if self.need else 0.0, self.longest)

    def option(self, utilization: float) -> Option:
        """One utilization, judged."""
        capacity, need = self.known.at(utilization), self.need
        headroom = capacity.tokens / need.tokens - 1 if capacity and need else None
        is_open = within(utilization, self.below, self.above)
        enough = is_open and headroom is not None and self._enough(utilization, headroom)
        return Option(
            utilization=utilization,
            capacity=capacity,
            headroom=headroom,
            verdict=self._verdict(utilization, headroom, enough=enough, is_open=is_open),
            open=is_open,
            enough=enough,
        )

    def _enough(self, utilization: float, headroom: float) -> bool:
        capacity = self.known.at(utilization)
        if utilization in self.cold_peaks:
            return headroom >= LEAST_HEADROOM
        # A launch that told its capacity has started, whatever the context.
        starts = capacity is not None and (
            capacity.source is Source.LAUNCH or capacity.tokens >= self.longest
        )
        return starts and headroom >= HEADROOM

    def _verdict(
        self, utilization: float, headroom: float | None, *, enough: bool, is_open: bool
    ) -> str:
        if utilization in self.failed:
            return self.failed[utilization][-1].cause.value
        if not is_open:
            small = self.below is not None and utilization <= self.below
            return "too small" if small else "too large"
        if headroom is None:
            return ""
        return "enough" if enough else "too small"


def _case(records: Sequence[Record], name: str, k: int) -> _Case:
    mine = list(_of(records, name, k))
    cold = [r for r in mine if r.trial.stage is Stage.CONFIRM]
    below, above = bounds(records, name, k)
    preempted = [r.trial.gpu_memory_utilization for r in mine if _preemptions(r)]
    return _Case(
        need=peak_need(records, name, k),
        known=capacities(records, name, k),
        below=max([*preempted, *([] if below is None else [below])], default=None),
        above=above,
        failed=failed_at(records, name, k),
        cold_peaks={
            utilization: _peak(at_utilization(cold, utilization))
            for utilization in {r.trial.gpu_memory_utilization for r in cold}
        },
        longest=_longest(records, name),
        place=device_words(records),
    )


def _pick(options: Sequence[Option], case: _Case) -> Option:
    enough = [o for o in options if o.enough]
    if enough:
        return enough[0]
    # Nothing known is enough: the most that there is, preemptions and all, if anything starts.
    starts = [o for o in options if o.open] or [
        o for o in options if within(o.utilization, None, case.above)
    ]
    return starts[-1] if starts else options[0]


def _why(options: Sequence[Option], chosen: Option, case: _Case) -> str:
    value = f"gpu_memory_utilization {chosen.utilization:g}"
    if len(options) == 1:
        return f"{value} (a share of {case.place}), the only one asked for"
    among = f"of {_listed([f'{o.utilization:g}' for o in options])} (shares of {case.place})"
    refused = [
        f"{o.utilization:g} is out: {o.verdict}" for o in options if not o.open and o is not chosen
    ]
    if case.need is None or chosen.capacity is None:
        text = f"{value}, the largest {among} that starts: the need of KV cache was not measured"
        return "; ".join([text, *refused])
    cache = f"whose KV cache, {chosen.capacity.words},"
    need = f"the measured peak of {case.need.tokens:,} tokens"
    if chosen.enough and chosen.headroom is not None:
        spare = f"with {chosen.headroom:.0%} to spare"
        text = f"{value} is the smallest {among} {cache} holds {need} {spare}"
    else:
        spare = f"with {HEADROOM:.0%} to spare"
        text = f"{value} is the largest {among} that starts, {cache} does not hold {need} {spare}"
    return "; ".join([text, *refused])


def _remark(options: Sequence[Option], chosen: Option, case: _Case) -> str:
    if case.need is None or chosen.capacity is None:
        return ""
    held = f"the KV cache at gpu_memory_utilization {chosen.utilization:g}, {chosen.capacity.words}"
    if case.need.preemptions and not chosen.enough:
        return (
            f"{held}, is too small for this load: "
            f"{counted(case.need.preemptions, 'preemption')}; raise "
            "search.gpu_memory_utilization, or lower max_num_seqs or the concurrency"
        )
    if chosen is not options[0] or chosen.capacity.tokens <= FAR_TOO_LARGE * case.wanted:
        return ""
    text = f"{held}, is far larger than this load's peak of {case.need.tokens:,} tokens"
    if case.known.line is None:
        return f"{text}: a smaller share of {case.place} would do"
    # Up, to two figures.
    share = math.ceil(case.known.line.utilization(case.wanted) * 100) / 100
    if not 0 < share < chosen.utilization:
        return text
    return f"{text}: about {share:g} of {case.place} would do (not launched)"


def _of(records: Sequence[Record], name: str, k: int) -> Iterator[Record]:
    for r in records:
        if (r.trial.candidate, r.trial.num_speculative_tokens) == (name, k) and r.measurement:
            yield r


def _valid(record: Record) -> list[Pass]:
    return [p for p in record.measurement.passes if not p.invalid] if record.measurement else []


def _preemptions(record: Record) -> int:
    return sum(p.preemptions or 0 for p in _valid(record))


def _peak(records: Sequence[Record]) -> float | None:
    """The highest share of the KV cache that was seen in use; None where nobody saw any."""
    passes = [p for r in records for p in _valid(r)]
    return max((p.kv_cache_peak for p in passes if p.kv_cache_peak), default=None)


def _longest(records: Sequence[Record], name: str) -> int:
    told = [
        str(r.facts.resolved.get("max_seq_len", ""))
        for r in records
        if r.facts and r.trial.candidate == name
    ]
    return max((int(text) for text in told if text.isdigit()), default=0)


def _listed(words: Sequence[str]) -> str:
    *head, last = words
    return f"{', '.join(head)} and {last}" if head else last
