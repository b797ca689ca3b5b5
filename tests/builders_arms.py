"""Two arms for tests of comparisons: the baseline and one point, each with what a test changes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from autotune.core.jsontype import JSON
from autotune.core.parity import Doubt, doubts
from autotune.core.study import Candidate, StudySpec
from autotune.core.trial import Measurement, Pass, Record
from tests.builders import BASE, make_candidates, make_facts, make_record, make_spec

SUFFIX = Candidate(name="suffix", method="suffix")
SPEC = make_spec(candidates=(*make_candidates(), SUFFIX))


def changed(record: Record, **change: object) -> Record:
    """The record with every pass changed in the same way."""
    return replace(record, outcome=Measurement(passes=_passes(record, change)))


def _passes(record: Record, change: Mapping[str, object]) -> tuple[Pass, ...]:
    assert record.measurement
    return tuple(replace(p, **change) for p in record.measurement.passes)  # type: ignore[arg-type]


def resolved(record: Record, **settings: JSON) -> Record:
    """The record of a launch whose engine resolved these settings."""
    facts = record.facts or make_facts()
    return replace(record, facts=replace(facts, resolved={**facts.resolved, **settings}))


def baseline(blocks: int = 3) -> Record:
    """Plain decoding."""
    return make_record(launch_id="000", blocks=blocks)


def arm(candidate: str = "eagle", k: int = 2, *, gain: float = 1.2, blocks: int = 3) -> Record:
    """A point at so many times the baseline's speed."""
    tput = {c: gain * value for c, value in BASE.items()}
    return make_record(candidate, k, tput=tput, launch_id="001", blocks=blocks)


def paced(record: Record, gains: Sequence[float], over: Record) -> Record:
    """The record with these speedups over another one, block by block, at every level."""
    assert record.measurement
    assert over.measurement
    theirs = {(p.concurrency, p.block): p.output_throughput for p in over.measurement.passes}
    passes = tuple(
        replace(
            p,
            duration_s=p.output_tokens / (theirs[p.concurrency, p.block] * gains[p.block]),
        )
        for p in record.measurement.passes
    )
    return replace(record, outcome=Measurement(passes=passes))


def found(*records: Record, spec: StudySpec = SPEC) -> dict[str, Doubt]:
    """The doubts about these records by what they are about, the first of each kind."""
    kinds: dict[str, Doubt] = {}
    for doubt in doubts(spec, records):
        kinds.setdefault(doubt.what, doubt)
    return kinds


def only(*records: Record, spec: StudySpec = SPEC) -> Doubt:
    """The one kind of doubt about these records."""
    kinds = found(*records, spec=spec)
    assert len(kinds) == 1, kinds
    return next(iter(kinds.values()))
