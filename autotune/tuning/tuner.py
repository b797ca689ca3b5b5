"""The loop: ask the plan, run the launch, tell the ledger; yields the records of each launch.

Rule: nothing is decided here; the plan decides from the records, and the records are all there is.
"""

import hashlib
import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from autotune.core.causes import broken_launcher, stops_study
from autotune.core.plan import next_launch
from autotune.core.space import meant_by, with_variants
from autotune.core.stages.ranges import universe
from autotune.core.stages.search import Propose, no_more
from autotune.core.study import StudySpec
from autotune.core.trial import BASELINE, Failure, Launch, Record, Stage, Trial
from autotune.core.workload import Prompt
from autotune.errors import StudyStoppedError
from autotune.tuning.attributes import record_id
from autotune.tuning.disk import stops_when_full
from autotune.tuning.identity import identity, served_with
from autotune.tuning.journal import mark_told, salvage
from autotune.tuning.ledger import Ledger
from autotune.tuning.paths import StudyPaths
from autotune.tuning.runner import Rig, run_launch
from autotune.tuning.values import at_rates, value_of

WriteConfig = Callable[[Launch, Path], Path]
"""Writes the `--config` file of a launch; gives its path."""


def tune(
    rig: Rig,
    ledger: Ledger,
    write_config: WriteConfig,
    *,
    budget_s: float | None,
    forgotten: Collection[str] = (),
    propose: Propose = no_more,
) -> Iterator[list[Record]]:
    """Launch what the plan asks for until it asks for nothing more; drain it to the end.

    `forgotten` are the ids of records that the plan must not see, such as failures to try again.
    Raises StudyStoppedError, after the records, when no other launch would escape a failure.
    """
    started = time.monotonic()
    starts: list[tuple[str, Failure | None]] = []
    while True:
        stored = ledger.records()
        records = usable(stored, rig.fingerprint, rig.spec, forgotten)
        left = None if budget_s is None else budget_s - (time.monotonic() - started)
        launch = next_launch(rig.spec, records, left, propose)
        if launch is None:
            return
        spec = with_variants(rig.spec, records, launch.candidate)
        with stops_when_full():
            folder = rig.paths.next_launch(r.launch_id for r in stored)
            config = write_config(launch, folder)
        new, stopped = _run(launch, replace(rig, spec=spec), config, folder, records)
        with stops_when_full():
            for record in new:
                ledger.tell(record, value_of(spec, [*records, *new], record))
            mark_told(folder)
        yield new
        starts.append((launch.name, _failed(new)))
        stopped = stopped or broken_launcher(starts)
        if stopped:
            raise StudyStoppedError(stopped)


def _run(
    launch: Launch, rig: Rig, config: Path, folder: Path, known: Sequence[Record]
) -> tuple[list[Record], Failure | None]:
    """The records of a launch, and the failure that stops the study if there is one."""
    new: list[Record] = []
    try:
        for record in run_launch(launch, rig, config, folder, known):
            new.append(record)  # noqa: PERF402 - those before the error count
    except StudyStoppedError as error:
        return new, error.failure
    return new, None


def _failed(new: Sequence[Record]) -> Failure | None:
    """The failure that a launch ended with, if it gave nothing else."""
    outcomes = [r.outcome for r in new]
    last = outcomes[-1] if outcomes else None
    return last if isinstance(last, Failure) and not any(r.measurement for r in new) else None


def recover(paths: StudyPaths, ledger: Ledger, spec: StudySpec) -> list[Record]:
    """Tell the ledger what interrupted launches had measured; gives those records."""
    found = []
    for folder in sorted(paths.launches.glob("*/")):
        for record in salvage(folder):
            known = [*ledger.records(), record]
            ledger.tell(record, value_of(with_variants(spec, known), known, record))
            found.append(record)
        mark_told(folder)
    return found


def usable(
    records: Sequence[Record], fingerprint: str, spec: StudySpec, forgotten: Collection[str] = ()
) -> list[Record]:
    """The records that may be compared with what this study would measure now.

    Passes at another request rate are left out of them: they are of another load. Each bears the
    name that the present file has for its candidate, or for the variant of one.
    """
    return [
        at_rates(named, spec)
        for r in records
        if r.fingerprint == fingerprint
        and r.trial.gpu_memory_utilization in spec.search.gpu_memory_utilization
        and record_id(r) not in forgotten
        if (named := _named(spec, r)) is not None and _asked_for(spec, named.trial)
    ]


def to_retry(records: Sequence[Record], *, everything: bool) -> frozenset[str]:
    """Failures that a new run tries again: those of the baseline and of the machine, or all.

    Without its baseline a study is nothing, and whoever runs it again has mended something.
    """
    return frozenset(
        record_id(r)
        for r in records
        if isinstance(r.outcome, Failure)
        and (everything or r.trial.stage is Stage.BASELINE or stops_study(r.outcome))
    )


def _named(spec: StudySpec, record: Record) -> Record | None:
    """The record under the name that the file has for what it measured; None if it has none."""
    if record.trial.candidate == BASELINE:
        return record
    candidate = meant_by(spec, record.trial)
    if candidate is None:
        return None
    trial = replace(record.trial, candidate=candidate.name, variant_of=candidate.variant_of)
    return replace(record, trial=trial)


def _asked_for(spec: StudySpec, trial: Trial) -> bool:
    """Whether the file still asks for this K, or the search may come to it by itself."""
    candidate = next((c for c in spec.candidates if c.name == trial.family), None)
    k = trial.num_speculative_tokens
    return candidate is None or k == 0 or k in universe(candidate, spec.ks(candidate))


def fingerprint(spec: StudySpec, probe: Mapping[str, str]) -> str:
    """Hash of all that must be equal for two measurements to be compared.

    Levels are not in it: each pass says its concurrency and request rate. Nor are service level
    objectives: the times of each request are kept, and any objective can be asked of them.
    """
    workload = spec.workload
    parts = {
        "target": asdict(spec.target),
        "weights": identity(spec.target.model),
        # In order and by split: a block is what its place in the list makes it.
        "prompts": [[_sent(p) for p in side] for side in (workload.search, workload.confirmation)],
        "sampling": asdict(workload.sampling),
        "max_tokens": workload.max_tokens,
        "ignore_eos": workload.ignore_eos,
        "requests_per_stream": workload.requests_per_stream,
        "chat_template_kwargs": dict(workload.chat_template_kwargs),
        "probe": dict(probe),
        **_given({"lora": workload.lora, "response_format": workload.response_format}),
        **_given({"served_with": served_with(spec.target) or None}),
    }
    text = json.dumps(parts, sort_keys=True, default=list)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _sent(prompt: Prompt) -> dict[str, object]:
    """What a prompt makes the client send; its length follows from that, and is no part of it."""
    return _given({name: value for name, value in asdict(prompt).items() if name != "tokens"})


def _given(values: Mapping[str, object]) -> dict[str, object]:
    """What is set: a field that is added later changes no fingerprint until it is used."""
    return {name: value for name, value in values.items() if value not in (None, ())}
