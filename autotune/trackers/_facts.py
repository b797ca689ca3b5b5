"""What a tracker shows of a record: names and values, no tracker in sight.

Rules: names have only characters that every MLflow takes; a value that is not finite is left out,
it is never replaced; a text that is cut says how long it was.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from autotune.core.acceptance import SpecCounters
from autotune.core.buckets import EDGES
from autotune.core.diagnosis import Explanation
from autotune.core.goodput import goodput
from autotune.core.latency import FIGURES, pooled_latencies
from autotune.core.memory import Choice
from autotune.core.noise import noise_of
from autotune.core.objective import compared_at, typical
from autotune.core.parity import fair
from autotune.core.recommendation import Recommendation
from autotune.core.replychecks import ReplyChecks
from autotune.core.speedup import SpeedupCurve, level_points
from autotune.core.statistics import Interval, mean_of
from autotune.core.study import StudySpec
from autotune.core.trial import BASELINE, Failure, Measurement, Record, Trial
from autotune.core.workload import Level

LONGEST = 500
"""Older servers refuse longer values; newer ones cut them without a word."""
NAME_LENGTH = 250
_ILLEGAL = re.compile(r"[^A-Za-z0-9_.\-]")


@dataclass(frozen=True, slots=True)
class Value:
    """One number of a stepped or plain metric."""

    name: str
    value: float
    step: int = 0


def run_key(record: Record) -> str:
    """The same for the same attempt, however often it is shown; readable in a list of runs."""
    trial = record.trial
    k = f"k{trial.num_speculative_tokens}"
    return f"{record.launch_id}/{trial.candidate}/{k}/{record.outcome.kind}"


def run_name(record: Record) -> str:
    """`007 eagle K=2 confirm`."""
    trial = record.trial
    return (
        f"{record.launch_id} {trial.candidate} K={trial.num_speculative_tokens} {trial.stage.value}"
    )


def params(spec: StudySpec, record: Record) -> dict[str, str]:
    """What was tried."""
    trial = record.trial
    known: dict[str, object] = {
        "candidate": trial.candidate,
        "method": "none" if trial.candidate == BASELINE else _method(spec, trial),
        "num_speculative_tokens": trial.num_speculative_tokens,
        "gpu_memory_utilization": trial.gpu_memory_utilization,
        "stage": trial.stage.value,
        "live_k": trial.live,
        "repeat": trial.repeat,
        "launch": record.launch_id,
        "target": spec.target.model,
        "temperature": spec.workload.sampling.temperature,
        "max_tokens": spec.workload.max_tokens,
    }
    rates = {lv.concurrency: lv.request_rate for lv in spec.workload.levels}
    known |= {f"request_rate.c{c}": rate for c, rate in rates.items() if rate is not None}
    known |= {"candidate_family": trial.family} if trial.variant_of else {}
    known |= {f"settings.{name}": value for name, value in trial.settings.items()}
    known |= {f"engine_args.{name}": value for name, value in trial.engine_args.items()}
    return {safe_name(name): cut(_text(value)) for name, value in known.items()}


def tags(record: Record, host: str) -> dict[str, str]:
    """What is true of the attempt beside what was tried."""
    facts = record.facts
    known = {
        "autotune.record_id": run_key(record),
        "autotune.why": record.why,
        "autotune.fingerprint": record.fingerprint,
        "host": host,
        "engine_version": facts.version if facts else "",
        "device": facts.device if facts else "",
    }
    if isinstance(record.outcome, Failure):
        known |= {"cause": record.outcome.cause.value, "remedy": record.outcome.remedy}
        known |= {"detail": record.outcome.detail}
    elif record.outcome.pruned:
        known |= {"pruned": record.outcome.pruned}
    return {name: cut(text) for name, text in known.items() if text}


def metrics(spec: StudySpec, record: Record, known: Sequence[Record]) -> list[Value]:
    """What was measured; `known` are the study's other records, whose baselines are the ratios'."""
    values: list[Value] = []
    if record.facts:
        values.append(Value("boot_s", record.facts.boot_s))
        values.append(Value("kv_cache_tokens", float(record.facts.kv_cache_tokens or math.nan)))
    if record.measurement is None:
        return finite(values)
    for level in spec.workload.levels:
        values += _level(spec, record.measurement, level)
        values += _speedups(spec, record, known, level)
    values += _acceptance(record.measurement.spec)
    invalid = sum(1 for p in record.measurement.passes if p.invalid)
    values.append(Value("invalid_passes", float(invalid)))
    return finite(values)


def result_metrics(result: Recommendation) -> list[Value]:
    """The curves, with K as the step, and the answer."""
    values: list[Value] = []
    for prefix, found in (("", result.search), ("confirmed_", result.confirmation)):
        for curve in found:
            name = f"{prefix}{_speedup_name(curve.compared)}"
            values += _curve(f"{name}.{_place(curve)}", curve)
    if result.speedup:
        values += _interval("best.speedup", result.speedup)
    if result.finalist:
        k = result.finalist.num_speculative_tokens
        values.append(Value("best.num_speculative_tokens", float(k)))
    if result.memory:
        values += _memory(result.memory)
    return finite(values)


def _memory(choice: Choice) -> list[Value]:
    known = {
        "gpu_memory_utilization": choice.utilization,
        "kv_cache_tokens": choice.capacity.tokens if choice.capacity else None,
        "kv_cache_need_tokens": choice.need_tokens,
        "kv_cache_headroom": choice.headroom,
    }
    return [Value(f"best.{name}", float(x)) for name, x in known.items() if x is not None]


def reply_metrics(checks: ReplyChecks) -> list[Value]:
    """What the replies tell, with K as the step; rates and ratios, never a word of them."""
    values: list[Value] = []
    for m in checks.matches:
        at = "overall" if m.concurrency is None else f"c{m.concurrency}"
        place, k = f"{m.split}.{m.candidate}.{at}", m.num_speculative_tokens
        values.append(Value(f"match_rate.{place}", m.rate, k))
        if m.words_before is not None:
            values.append(Value(f"words_before_difference.{place}", m.words_before, k))
    for s in checks.shifts:
        place, k = f"{s.split}.{s.candidate}", s.num_speculative_tokens
        values += _interval(f"reply_length_ratio.{place}", s.tokens, k)
        if s.variety is not None:
            values += _interval(f"distinct_2_ratio.{place}", s.variety, k)
    for b in checks.buckets:
        place = f"{b.split}.{b.candidate}.c{b.concurrency}.from_{EDGES[b.bucket]}_tokens"
        values += _interval(f"speedup_by_length.{place}", b.speedup, b.num_speculative_tokens)
    return finite(values)


def diagnosis_tags(found: Explanation) -> dict[str, str]:
    """What holds of each candidate, by name, and what to change next.

    `none` where nothing holds: a tag of an earlier end of the study would stay else.
    """
    known = {}
    for name in (*(case.name for case in found.study.cases), None):
        ids = [f"{finding.diagnosis.id}{finding.where}" for finding in found.of(name)]
        known[f"diagnosis.{name or 'study'}"] = ", ".join(ids) or "none"
    known |= {"next_change": found.next_change}
    return {safe_name(name): cut(text) for name, text in known.items()}


def schedule_tag(result: Recommendation) -> str:
    """The ranges of K per batch size that are offered; `none` without."""
    found = result.schedule
    return json.dumps(found.ranges) if found and found.offered else "none"


def finite(values: Iterable[Value]) -> list[Value]:
    """The values that are numbers, under legal names."""
    return [Value(safe_name(v.name), v.value, v.step) for v in values if math.isfinite(v.value)]


def safe_name(name: str) -> str:
    """The name with every other character replaced."""
    return _ILLEGAL.sub("_", name)[:NAME_LENGTH]


def cut(text: str) -> str:
    """The text, or its beginning and how long it was."""
    if len(text) <= LONGEST:
        return text
    note = f"… ({len(text)} characters)"
    return text[: LONGEST - len(note)] + note


def _level(spec: StudySpec, measurement: Measurement, level: Level) -> list[Value]:
    passes = measurement.at(level.concurrency)
    if not passes:
        return []
    at = f"c{level.concurrency}"
    throughput = mean_of([p.log_throughput for p in passes]).interval().mean
    values = [
        Value(f"output_throughput.{at}", throughput),
        Value(f"blocks.{at}", float(len(passes))),
        *(Value(f"block_output_throughput.{at}", p.output_throughput, p.block) for p in passes),
    ]
    latencies = pooled_latencies(p.times for p in passes)
    if latencies:
        values += [Value(f"{n}.{at}", getattr(latencies, n)) for n in FIGURES]
    peaks = [p.kv_cache_peak for p in passes if p.kv_cache_peak is not None]
    values += [Value(f"kv_cache_peak.{at}", max(peaks))] if peaks else []
    preempted = [p.preemptions for p in passes if p.preemptions is not None]
    values += [Value(f"preemptions.{at}", float(sum(preempted)))] if preempted else []
    figure = compared_at(spec, level)
    if figure.name in {"tpot", "e2e"}:
        value = typical(figure, spec.workload.slo, passes)
        values += [] if value is None else [Value(f"{figure.key}.{at}", value)]
    found = goodput(passes, spec.workload.slo)
    if found:
        values += [Value(f"goodput.{at}", found.rate), *_interval(f"good_share.{at}", found.share)]
    return values


def _speedup_name(compared: str) -> str:
    """The name says what the speedup is in, where that is not the time per reply."""
    return "speedup" if compared == "output_throughput" else f"{compared}_speedup"


def _speedups(
    spec: StudySpec, record: Record, known: Sequence[Record], level: Level
) -> list[Value]:
    """The record over the baselines of the same prompts, as a curve of this one launch has it."""
    trial = record.trial
    baselines = [
        r
        for r in known
        if r.trial.candidate == BASELINE and r.trial.stage.prompts == trial.stage.prompts
    ]
    noise = noise_of([*known, record], spec.workload.levels)
    name = f"{_speedup_name(compared_at(spec, level).name)}.c{level.concurrency}"
    points = level_points(spec, fair(spec, [*baselines, record]), level.concurrency, noise)
    return [
        value
        for point in points.get(trial.candidate, ())
        for value in _interval(name, point.speedup)
    ]


def _acceptance(counters: SpecCounters | None) -> list[Value]:
    profile = counters.profile if counters else None
    if profile is None:
        return []
    steps = enumerate(profile.per_position, start=1)
    return [
        Value("acceptance_rate", math.nan if profile.rate is None else profile.rate),
        Value("acceptance_length", profile.length),
        *(Value("acceptance_per_position", share, position) for position, share in steps),
    ]


def _curve(name: str, curve: SpeedupCurve) -> list[Value]:
    values = [Value(f"knee.{name}", float(curve.knee.num_speculative_tokens))]
    for point in curve.points:
        values += _interval(name, point.speedup, point.num_speculative_tokens)
    return values


def _place(curve: SpeedupCurve) -> str:
    at = "overall" if curve.concurrency is None else f"c{curve.concurrency}"
    return f"{curve.candidate}.{at}"


def _interval(name: str, interval: Interval, step: int = 0) -> list[Value]:
    return [
        Value(name, interval.mean, step),
        Value(f"{name}.low", interval.low, step),
        Value(f"{name}.high", interval.high, step),
    ]


def _method(spec: StudySpec, trial: Trial) -> str:
    methods: Mapping[str, str] = {c.name: c.method for c in spec.candidates}
    # A record may be older than the candidates file.
    return trial.method or methods.get(trial.family, "unknown")


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
