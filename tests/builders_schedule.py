"""A study whose draft pays for one stream and costs at four, a schedule beside its static K."""

from collections.abc import Mapping
from dataclasses import replace

from autotune.core.acceptance import SpecCounters
from autotune.core.schedule import scheduled
from autotune.core.trial import BASELINE, Measurement, Pass, Record, Stage
from tests.builders import BASE, make_record, make_spec, make_workload

SPEEDUPS = {1: {1: 1.2, 2: 1.4, 3: 1.6, 5: 1.5}, 4: {1: 0.9, 2: 0.85, 3: 0.8, 5: 0.7}}
"""Concurrency -> K -> speedup of the one candidate: it pays for one stream and costs at four."""
SPEC = make_spec(
    candidates=make_spec().candidates[:1], workload=make_workload(concurrencies={1: 4.0, 4: 1.0})
)
RANGES = ((1, 1, 3), (2, 4, 0))
WITH = scheduled(SPEC.candidates[0], RANGES)


def searched(speedups: Mapping[int, Mapping[int, float]] = SPEEDUPS) -> list[Record]:
    """Baseline and the whole curve of one live launch."""
    curve = [
        make_record(
            "eagle",
            k,
            Stage.SCREEN,
            tput={c: BASE[c] * (speedups[c][k] if k else 1.0) for c in BASE},
            launch_id="001",
            live=True,
        )
        for k in (0, 1, 2, 3, 5)
    ]
    return [make_record(), *curve]


def cold(name: str, k: int, gains: Mapping[int, float], repeat: int, place: int) -> Record:
    """One launch of the confirmation."""
    stage = Stage.SCHEDULE if name == WITH.name else Stage.CONFIRM
    tput = {c: BASE[c] * gain for c, gain in gains.items()}
    launch_id = f"{10 + 3 * repeat + place:03d}"
    found = make_record(name, k, stage, tput=tput, launch_id=launch_id, repeat=repeat)
    trial = replace(found.trial, variant_of="eagle", settings=WITH.settings)
    return replace(found, trial=trial) if name == WITH.name else found


def counted(record: Record, drafts: Mapping[int, tuple[float, int]]) -> Record:
    """The record with, by concurrency, this share of tokens from drafts of so many tokens."""
    assert record.measurement

    def with_counters(p: Pass) -> Pass:
        share, k = drafts[p.concurrency]
        tokens = round(share * (p.output_tokens - p.requests))
        spec = SpecCounters(
            drafts=tokens // 2,
            draft_tokens=k * (tokens // 2),
            accepted_tokens=tokens - tokens // 2,
            accepted_per_pos=(tokens - tokens // 2, *[0] * max(k - 1, 0)),
        )
        return replace(p, spec=spec)

    passes = tuple(with_counters(p) for p in record.measurement.passes)
    return replace(record, outcome=Measurement(passes=passes))


IN_FORCE = {1: (1.0, 3), 4: (0.1, 3)}
IGNORED = {1: (1.0, 3), 4: (1.0, 3)}


def confirmed(
    gains: Mapping[int, float], drafts: Mapping[int, tuple[float, int]] = IN_FORCE
) -> list[Record]:
    """The study with two rounds of three arms; `gains` are those of the schedule over plain."""
    records = searched()
    for repeat in range(2):
        records.append(cold(BASELINE, 0, {1: 1.0, 4: 1.0}, repeat, 0))
        static = cold("eagle", 3, {1: 1.6, 4: 0.8}, repeat, 1)
        records.append(counted(static, {1: (1.0, 3), 4: (1.0, 3)}))
        records.append(counted(cold(WITH.name, 3, gains, repeat, 2), drafts))
    return records
