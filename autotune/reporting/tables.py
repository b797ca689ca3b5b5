"""The tables of the report: rows of words from records and recommendation.

Rules: the first row is the head; a speedup always carries its interval; what is unknown is an
empty cell; nothing is computed here that the core does not know.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from autotune.core.acceptance import AcceptanceProfile
from autotune.core.counting import counted
from autotune.core.evidence import LevelEvidence
from autotune.core.goodput import Goodput
from autotune.core.jsontype import JSON
from autotune.core.latency import ENOUGH_FOR_P99, FIGURES, Latencies
from autotune.core.memory import Choice
from autotune.core.objective import FIGURES as FIGURES_COMPARED
from autotune.core.pareto import Tradeoff
from autotune.core.recommendation import Recommendation
from autotune.core.trial import Failure, Record
from autotune.core.wording import level_words

Table = list[list[str]]


def markdown(table: Table) -> str:
    """A GitHub table; bars and line ends inside a cell are made harmless."""
    head, *rows = [[_cell(text) for text in row] for row in table]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def levels_table(result: Recommendation) -> Table:
    """Winner against baseline at each concurrency, and overall.

    The columns of both have what is compared at each level.
    """
    mixed = any(level.compared != "output_throughput" for level in result.levels)
    arms = ["baseline", "candidate"] if mixed else ["baseline tok/s", "candidate tok/s"]
    head = ["concurrency", "weight", *arms, "speedup", "blocks"]
    head += ["by throughput", "acceptance rate", "acceptance length"]
    rows = [
        [
            _level(level),
            f"{level.weight:g}",
            *_compared(level, unit=" tok/s" if mixed else ""),
            level.speedup.show(),
            str(level.blocks),
            level.by_throughput.show() if level.by_steps else "",
            *_acceptance(level.acceptance),
        ]
        for level in result.levels
    ]
    if len(rows) > 1 and result.speedup:
        rows.append(["overall", "", "", "", result.speedup.show(), "", "", "", ""])
    return [head, *rows]


def latencies_table(levels: Sequence[LevelEvidence]) -> Table:
    """Every latency that is measured, baseline to candidate, and over how many requests."""
    head = ["concurrency", *(_title(name) for name in FIGURES), "requests"]
    rows = [
        [
            _level(level),
            *(f"{_ms(level.baseline_latencies, n)} → {_ms(level.latencies, n)}" for n in FIGURES),
            f"{_requests(level.baseline_latencies)} → {_requests(level.latencies)}",
        ]
        for level in levels
    ]
    return [head, *rows]


def few_for_p99(levels: Sequence[LevelEvidence]) -> int | None:
    """The smallest number of requests that a p99 was taken over, if it is too small for one."""
    found = [x.requests for lv in levels for x in (lv.baseline_latencies, lv.latencies) if x]
    return min((n for n in found if n < ENOUGH_FOR_P99), default=None)


def goodput_table(levels: Sequence[LevelEvidence]) -> Table:
    """Good requests of both arms at each concurrency; empty without objectives."""
    head = ["concurrency", "baseline goodput", "baseline good", "candidate goodput"]
    head += ["candidate good"]
    rows = [
        [_level(level), *_good(level.baseline_goodput), *_good(level.goodput)]
        for level in levels
        if level.baseline_goodput or level.goodput
    ]
    return [head, *rows] if rows else []


def knees_table(result: Recommendation) -> Table:
    """Each candidate at the knee of its overall curve, the best first."""
    found = [
        (curve, curve.at(curve.knee.num_speculative_tokens))
        for curve in result.search
        if curve.concurrency is None
    ]
    found.sort(key=lambda pair: -pair[1].speedup.mean)
    head = ["candidate", "knee K", "speedup", "best K", "acceptance rate", "acceptance length"]
    rows = [
        [
            curve.candidate,
            str(curve.knee.num_speculative_tokens),
            point.speedup.show(),
            f"{curve.knee.best}{_remark(at_edge=curve.knee.at_edge, single=curve.knee.single)}",
            *_acceptance(point.acceptance),
        ]
        for curve, point in found
    ]
    return [head, *rows]


def memory_table(choice: Choice) -> Table:
    """Every utilization that was asked for: its KV cache, and what that leaves over the peak."""
    rows = [
        [
            f"**{o.utilization:g}**"
            if o.utilization == choice.utilization
            else f"{o.utilization:g}",
            o.capacity.words if o.capacity else "",
            f"{o.headroom:.0%}" if o.headroom is not None else "",
            o.verdict,
        ]
        for o in choice.options
    ]
    return [["gpu_memory_utilization", "KV cache", "headroom over the peak", ""], *rows]


def pareto_table(found: Sequence[Tradeoff]) -> Table:
    """Speed against memory, the least memory first; empty where no memory is known."""
    if len(found) < 2:  # noqa: PLR2004 - one point has nothing to be weighed against
        return []
    rows = [
        [
            t.candidate,
            str(t.num_speculative_tokens),
            f"{t.memory_gib:.2f}",
            t.speedup.show() if t.num_speculative_tokens else "1",
            "yes" if t.on_front else "",
        ]
        for t in found
    ]
    return [["candidate", "K", "memory GiB", "speedup", "on the front"], *rows]


def launches_table(records: Sequence[Record]) -> Table:
    """Every launch with its reason, K, start-up time and outcome."""
    head = ["launch", "stage", "candidate", "K", "live", "start s", "KV tokens", "outcome", "why"]
    return [head, *(_launch(launch, group) for launch, group in _by_launch(records).items())]


def failures_table(records: Iterable[Record]) -> Table:
    """Every failure with its cause and remedy, once for all K that it took along."""
    ks: dict[tuple[str, str, Failure], list[int]] = {}
    for r in records:
        if isinstance(r.outcome, Failure):
            mine = ks.setdefault((r.launch_id, r.trial.candidate, r.outcome), [])
            mine.append(r.trial.num_speculative_tokens)
    rows = [
        [
            launch,
            name,
            ", ".join(map(str, mine)),
            failure.cause.value,
            failure.detail,
            failure.remedy,
        ]
        for (launch, name, failure), mine in ks.items()
    ]
    return [["launch", "candidate", "K", "cause", "detail", "remedy"], *rows] if rows else []


def invalid_table(records: Iterable[Record]) -> Table:
    """The causes of invalid passes, the most frequent first."""
    causes = Counter(
        p.invalid for r in records if r.measurement for p in r.measurement.passes if p.invalid
    )
    rows = [[cause, str(count)] for cause, count in causes.most_common()]
    return [["invalid because", "passes"], *rows] if rows else []


def facts_table(provenance: Mapping[str, JSON]) -> Table:
    """Provenance as it is; scalars that are known."""
    rows = [
        [key.replace("_", " "), str(value)]
        for key, value in provenance.items()
        if not isinstance(value, dict | list) and value not in (None, "")
    ]
    return [["fact", "value"], *rows]


def count_passes(records: Iterable[Record]) -> tuple[int, int]:
    """All passes, and the invalid ones among them."""
    passes = [p for r in records if r.measurement for p in r.measurement.passes]
    return len(passes), sum(1 for p in passes if p.invalid)


def _launch(launch: str, group: Sequence[Record]) -> list[str]:
    first = group[0]
    facts = next((r.facts for r in group if r.facts), None)
    ks = sorted({r.trial.num_speculative_tokens for r in group})
    return [
        launch,
        first.trial.stage.value,
        first.trial.candidate,
        ", ".join(str(k) for k in ks),
        "yes" if first.trial.live else "",
        f"{facts.boot_s:.0f}" if facts else "",
        f"{facts.kv_cache_tokens:,}" if facts and facts.kv_cache_tokens else "",
        _outcome(group),
        first.why,
    ]


def _outcome(group: Sequence[Record]) -> str:
    total, invalid = count_passes(group)
    causes = sorted({r.outcome.cause.value for r in group if isinstance(r.outcome, Failure)})
    words = [counted(total - invalid, "valid pass", "valid passes")] if total else []
    words += [f"{invalid} invalid"] if invalid else []
    pruned = [r for r in group if r.measurement and r.measurement.pruned]
    ks = ", ".join(str(r.trial.num_speculative_tokens) for r in pruned)
    words += [f"stopped early at K = {ks}"] if ks else []
    return ", ".join([*words, *causes])


def _by_launch(records: Iterable[Record]) -> dict[str, list[Record]]:
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.launch_id, []).append(record)
    return groups


def _level(level: LevelEvidence) -> str:
    if level.request_rate is None:
        return str(level.concurrency)
    return level_words(level)


def _compared(level: LevelEvidence, unit: str) -> list[str]:
    if level.compared == "output_throughput":
        return [f"{x:.1f}{unit}" for x in (level.baseline_throughput, level.throughput)]
    figure = FIGURES_COMPARED[level.compared]
    return ["?" if x is None else figure.shown(x) for x in (level.baseline_value, level.value)]


def _good(found: Goodput | None) -> list[str]:
    if found is None:
        return ["", ""]
    share = found.share
    counted = f"{found.good} of {found.requests}"
    ends = f"[{share.low:.0%}, {share.high:.0%}]"
    return [f"{found.rate:.2f} req/s", f"{counted}, {share.mean:.0%} {ends}"]


def _requests(latencies: Latencies | None) -> str:
    return str(latencies.requests) if latencies else "?"


def _acceptance(profile: AcceptanceProfile | None) -> list[str]:
    if profile is None:
        return ["", ""]
    rate = f"{profile.rate:.0%}" if profile.rate is not None else ""
    interval = profile.rate_interval
    if interval and not profile.sufficient:
        rate += f" [{interval[0]:.0%}, {interval[1]:.0%}], insufficient"
    return [rate, f"{profile.length:.2f}"]


def _ms(latencies: Latencies | None, name: str) -> str:
    return f"{getattr(latencies, name):.1f}" if latencies else "?"


def _title(name: str) -> str:
    statistic, metric, unit = name.split("_")
    return f"{statistic} {metric.upper()} {unit}"


def _remark(*, at_edge: bool, single: bool) -> str:
    if single:
        return " (the only one measured)"
    return " (the largest tried)" if at_edge else ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
