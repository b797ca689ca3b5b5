"""The client benchmark in words: from results/client.json to the section of docs/benchmarks.md.

Rule: every figure of the section comes from the result; ratios are taken within a repeat, where
both clients met the same machine.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

BEGIN = "<!-- client: begin, by `make bench-client` -->"
END = "<!-- client: end -->"
OURS = "autotune"
LABELS = {
    OURS: "autotune",
    "vllm": "`vllm bench serve`",
    "guidellm": "guidellm",
    "vllm_uvloop": "`vllm bench serve`, put on uvloop",
}
GOAL = 2.0
GOAL_TTFT_MS = 2.0


def render(result: Mapping[str, Any]) -> str:
    """The section's text, without its markers."""
    clients = result["clients"]
    ours = clients[OURS]["tokens_per_cpu_s"]
    rows = [_row(name, one, ours) for name, one in clients.items()]
    head = [
        "| client | version | tokens per CPU second | autotune / it | server's core | disturbed |",
        "|---|---|---|---|---|---|",
    ]
    added = clients[OURS]["added_ttft_ms"]
    verdicts = [
        _ratio_verdict(clients, ours),
        _ttft_verdict(added, result["settings"]["streams"]),
    ]
    return "\n".join([_load(result), "", *head, *rows, "", *verdicts])


def insert(document: str, section: str) -> str:
    """The document with this text between its markers."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"need {BEGIN} and {END} in the document")
    return f"{before}{BEGIN}\n\n{section}\n\n{END}{after}"


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest rank: a value that was measured."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _load(result: Mapping[str, Any]) -> str:
    machine, load = result["machine"], result["settings"]
    return (
        f"{load['streams']} streams of {load['tokens_per_s']:g} tokens/s, one token a chunk, "
        f"{load['requests']} requests of {load['tokens']} tokens after a warm-up, "
        f"{load['repeats']} repeats, clients in turn; mean ± standard deviation [least, most]. "
        f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}, "
        f"Python {machine['python']}, {machine['date']}. The last two columns: the most "
        "that the server used of its core, and that other processes used of the client's."
    )


def _row(name: str, one: Mapping[str, Any], ours: Sequence[float]) -> str:
    cells = [
        LABELS[name],
        one["version"],
        _spread(one["tokens_per_cpu_s"], ",.0f"),
        "" if name == OURS else _spread(_ratios(ours, one), ".2f"),
        f"{max(one['server_share']):.0%}",
        f"{max(one['others_share']):.0%}",
    ]
    return f"| {' | '.join(cells)} |"


def _ratios(ours: Sequence[float], one: Mapping[str, Any]) -> list[float]:
    return [a / b for a, b in zip(ours, one["tokens_per_cpu_s"], strict=True)]


def _spread(values: Sequence[float], form: str) -> str:
    deviation = f" ± {statistics.stdev(values):{form}}" if len(values) > 1 else ""
    return (
        f"{statistics.mean(values):{form}}{deviation} [{min(values):{form}}, {max(values):{form}}]"
    )


def _ratio_verdict(clients: Mapping[str, Any], ours: Sequence[float]) -> str:
    worst = min(
        statistics.mean(_ratios(ours, one))
        for name, one in clients.items()
        if name not in (OURS, "vllm_uvloop")
    )
    met = "met" if worst >= GOAL else "NOT met"
    return (
        f"Goal: at least {GOAL:g} times the tokens per CPU second of either client as it comes; "
        f"{met}, the smaller mean ratio is {worst:.2f}."
    )


def _ttft_verdict(repeats: Sequence[Sequence[float]], streams: int) -> str:
    values = [ms for repeat in repeats for ms in repeat]
    p50, p99 = percentile(values, 0.5), percentile(values, 0.99)
    each = [percentile(repeat, 0.99) for repeat in repeats]
    met = "met" if p99 < GOAL_TTFT_MS else "NOT met"
    return (
        f"Goal: less than {GOAL_TTFT_MS:g} ms at p99 between autotune's TTFT and the server's own; "
        f"{met}: p50 {p50:.2f} ms, p99 {p99:.2f} ms, most {max(values):.2f} ms over "
        f"{len(values)} requests; p99 of a repeat from {min(each):.2f} to {max(each):.2f} ms. "
        f"By when they are sent: {_by_start(repeats, streams)}."
    )


def _by_start(repeats: Sequence[Sequence[float]], streams: int) -> str:
    """The first request of each stream, which all come at once, apart from those that follow."""
    parts = {
        "all at once, as the pass begins": [ms for r in repeats for ms in r[:streams]],
        "one by one, as replies end": [ms for r in repeats for ms in r[streams:]],
    }
    return "; ".join(
        f"{when}, p50 {percentile(values, 0.5):.2f} ms, p99 {percentile(values, 0.99):.2f} ms"
        for when, values in parts.items()
        if values
    )
