"""Records of launches at several gpu_memory_utilizations, with what each had of KV cache."""

from dataclasses import replace

from autotune.core.study import Search, StudySpec
from autotune.core.trial import BASELINE, Cause, Failure, Measurement, Record, Stage
from tests.builders import make_failure, make_record, make_spec

SHARES = (0.5, 0.7, 0.9)
GIB = 1 << 30


def spec_with(*shares: float) -> StudySpec:
    """The study with these utilizations to choose from."""
    return make_spec(search=Search(gpu_memory_utilization=shares or SHARES))


def launched(
    share: float,
    capacity: int | None = 9000,
    peak: float | None = None,
    *,
    name: str = "eagle",
    k: int = 2,
    stage: Stage | None = None,
    preemptions: int = 0,
    gib: tuple[float, float] | None = None,
    repeat: int = 0,
) -> Record:
    """A measured record; `gib` is what its log told: KV cache and device."""
    record = make_record(
        name, k, stage, repeat=repeat, launch_id=f"{name}-{share}-{stage}-{repeat}"
    )
    assert isinstance(record.outcome, Measurement)
    assert record.facts
    cache, memory = (int(x * GIB) for x in gib) if gib else (None, None)
    facts = replace(
        record.facts, kv_cache_tokens=capacity, kv_cache_bytes=cache, memory_bytes=memory
    )
    passes = tuple(
        replace(p, kv_cache_peak=peak, preemptions=preemptions) for p in record.outcome.passes
    )
    return replace(
        record,
        trial=replace(record.trial, gpu_memory_utilization=share),
        outcome=replace(record.outcome, passes=passes),
        facts=facts,
    )


def failed(
    share: float,
    cause: Cause = Cause.OUT_OF_MEMORY_START,
    *,
    name: str = BASELINE,
    k: int = 0,
    stage: Stage | None = None,
) -> Record:
    """A launch that did not start for memory."""
    failure: Failure = make_failure(cause)
    record = make_record(name, k, stage, outcome=failure, launch_id=f"failed-{name}-{share}-{k}")
    return replace(record, trial=replace(record.trial, gpu_memory_utilization=share))
