"""What a record is worth by the objective of the present file.

Rule: a value stands on the records that are given, and on those alone that may be compared.
"""

from collections.abc import Sequence
from dataclasses import replace

from autotune.core.speedup import overall_ratio
from autotune.core.study import StudySpec
from autotune.core.trial import Record


def value_of(spec: StudySpec, records: Sequence[Record], record: Record) -> float | None:
    """The overall speedup of a record's point as known now; None when it has none."""
    trial = record.trial
    same = [
        at_rates(r, spec)
        for r in records
        if r.fingerprint == record.fingerprint and r.trial.stage.prompts == trial.stage.prompts
    ]
    return overall_ratio(spec, same, trial.candidate, trial.num_speculative_tokens)


def at_rates(record: Record, spec: StudySpec) -> Record:
    """The record without passes at another request rate than its level has in this file."""
    if record.measurement is None:
        return record
    rates = {level.concurrency: level.request_rate for level in spec.workload.levels}
    return replace(record, outcome=record.measurement.at_rates(rates))
