"""Two arms side by side: one point of a candidate and the baseline, at one level or over all.

Rule: only valid passes are looked at, and where figures of both sides are compared, only blocks
that both ran; what is not known on either side is None.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from autotune.core.acceptance import SpecCounters
from autotune.core.host import shortfalls
from autotune.core.study import StudySpec
from autotune.core.trial import BASELINE, Pass, Record

PassId = tuple[str, int]
"""Launch, and the position in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The launches of one arm, at one concurrency or (None) at all."""

    records: Sequence[Record]
    concurrency: int | None

    @property
    def passes(self) -> list[Pass]:
        """The valid passes, launch by launch."""
        return [p for record in self.records for p in self.of(record)]

    def of(self, record: Record) -> list[Pass]:
        """The valid passes of one launch, in the order of their blocks."""
        if record.measurement is None:
            return []
        levels = {p.concurrency for p in record.measurement.passes}
        wanted = sorted(levels) if self.concurrency is None else [self.concurrency]
        return [p for level in wanted for p in record.measurement.at(level)]

    def on(self, blocks: Collection[tuple[int, int]]) -> list[Pass]:
        """The valid passes of these blocks."""
        return [p for p in self.passes if block_of(p) in blocks]

    @property
    def spec(self) -> SpecCounters | None:
        """The pooled counters; None when none were shown."""
        known = [p.spec for p in self.passes if p.spec is not None]
        return sum(known[1:], known[0]) if known else None

    def resolved(self, name: str) -> set[str]:
        """What the engine of each launch resolved a setting to; empty when none of them said."""
        facts = [r.facts.resolved for r in self.records if r.facts]
        return {str(known[name]) for known in facts if name in known}

    @property
    def capacity(self) -> int | None:
        """Tokens that the KV cache of its smallest launch holds."""
        known = [r.facts.kv_cache_tokens for r in self.records if r.facts]
        return min((tokens for tokens in known if tokens is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """An arm and the baseline."""

    spec: StudySpec
    candidate: str
    num_speculative_tokens: int
    concurrency: int | None
    arm: Side
    baseline: Side
    short: Mapping[PassId, str] = field(default_factory=dict)
    """Passes on which the host gave less, and how."""

    @property
    def shared(self) -> set[tuple[int, int]]:
        """The blocks that both sides ran, each with its concurrency."""
        return {block_of(p) for p in self.arm.passes} & {block_of(p) for p in self.baseline.passes}

    @property
    def speedups(self) -> Iterator[list[float]]:
        """For each launch of the arm, its speedup block by block in the order they were run."""
        theirs = self.baseline.on(self.shared)
        for record in self.arm.records:
            mine = sorted(self.arm.of(record), key=lambda p: p.order)
            ratios = [(p, [q for q in theirs if block_of(q) == block_of(p)]) for p in mine]
            yield [p.output_throughput / _throughput(qs) for p, qs in ratios if qs]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A check of a pair, and what to do about what it finds."""

    what: str
    check: Callable[[Pair], str | None]
    remedy: str = ""
    invalid: bool = False
    per_level: bool = False


def block_of(measured: Pass) -> tuple[int, int]:
    """What two passes must have in common to be compared."""
    return measured.concurrency, measured.block


def pairs(spec: StudySpec, records: Sequence[Record]) -> Iterator[Pair]:
    """Every point with the baseline of the same prompts: over all levels first, then at each."""
    short = _short(records)
    names = {candidate.name for candidate in spec.candidates}
    levels = (None, *(level.concurrency for level in spec.workload.levels))
    for split in ("search", "confirmation"):
        mine = [r for r in records if r.measurement and r.trial.stage.prompts == split]
        plain = [r for r in mine if r.trial.candidate == BASELINE]
        keys = {(r.trial.candidate, r.trial.num_speculative_tokens) for r in mine}
        for name, k in sorted(key for key in keys if plain and key[0] in names and key[1] > 0):
            ours = [
                r for r in mine if (r.trial.candidate, r.trial.num_speculative_tokens) == (name, k)
            ]
            for level in levels:
                pair = Pair(
                    spec=spec,
                    candidate=name,
                    num_speculative_tokens=k,
                    concurrency=level,
                    arm=Side(records=ours, concurrency=level),
                    baseline=Side(records=plain, concurrency=level),
                    short=short,
                )
                if pair.arm.passes and pair.baseline.passes:
                    yield pair


def _short(records: Iterable[Record]) -> dict[PassId, str]:
    launches: dict[str, list[Pass]] = {}
    for r in records:
        launches.setdefault(r.launch_id, []).extend(r.measurement.passes if r.measurement else ())
    return {
        (launch_id, p.order): why
        for launch_id, passes in launches.items()
        for p, why in zip(passes, shortfalls([p.host for p in passes]), strict=True)
        if why
    }


def _throughput(passes: Sequence[Pass]) -> float:
    return sum(p.output_tokens for p in passes) / sum(p.duration_s for p in passes)
