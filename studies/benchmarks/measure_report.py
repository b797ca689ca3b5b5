"""The measurement benchmark in words: from results/measure.json to its section of the document.

Rule: every figure comes from the result; what misses its goal is said to miss it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

BEGIN = "<!-- measure: begin, by `make bench-measure` -->"
END = "<!-- measure: end -->"
COVERS = (0.93, 0.97)
FALSE_STOPS = 0.05
ENOUGH = 2.0
RECORDINGS = {
    "quiet machine": "the launches of a demo study, results/quiet",
    "restless machine": "the launches recorded here",
}
USED = ("c1", "c4", "overall")


def render(result: Mapping[str, Any]) -> str:
    """The section's text, without its markers."""
    return "\n\n".join(
        [
            _recorded(result),
            "### What a narrow interval costs",
            _widths(result["widths"]),
            _widths_verdict(result["widths"]),
            _variance_ratios(result["variance_ratios"]),
            "### Whether intervals cover",
            _coverage(result["coverage"]),
            _coverage_verdict(result),
        ]
    )


def _recorded(result: Mapping[str, Any]) -> str:
    seen = result["recorded"]
    told = (
        f"Widths are from {seen['launches']} launches of vLLM {seen['engine']} on "
        f"{seen['device']}, {seen['passes']} passes, {seen['invalid']} of them invalid; the draft "
        f"is {seen['candidate']} at K = {seen['num_speculative_tokens']}. Standard deviations of "
        "speed, as fitted:"
    )
    return "\n".join([told, "", *(_noise(name, noise) for name, noise in result["noise"].items())])


def _noise(name: str, noise: Mapping[str, Any]) -> str:
    by_level, beside = (
        ", ".join(f"{sd:.1%} at concurrency {c}" for c, sd in noise[kind].items())
        for kind in ("pass_sd", "beside_sd")
    )
    which = RECORDINGS[name]
    return (
        f"- {name} ({which}): {noise['launch_sd']:.1%} between equal launches "
        f"({noise['launch_dof']:g} degrees of freedom), {by_level} between equal passes, {beside} "
        f"between those of one block in one launch, {noise['drift_sd']:.1%} of drift in a launch."
    )


def _widths(rows: Sequence[Mapping[str, Any]]) -> str:
    head = (
        "| ratio | concurrency | blocks each | seconds | paired, by steps | unpaired | unpaired, "
        "twice the blocks | variance ratio |\n|---|---|---|---|---|---|---|---|"
    )
    return "\n".join([head, *map(_width, rows)])


def _width(row: Mapping[str, Any]) -> str:
    twice, ratio = row["unpaired_twice"], row["variance_ratio"]
    cells = [
        row["comparison"],
        str(row["concurrency"]),
        str(row["blocks"]),
        f"{row['seconds']:.0f}",
        f"± {row['ours']:.1%}",
        f"± {row['unpaired']:.1%}",
        "" if twice is None else f"± {twice:.1%}",
        "" if math.isnan(ratio) else f"{ratio:.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def _widths_verdict(rows: Sequence[Mapping[str, Any]]) -> str:
    """Whether half of the tokens give the unpaired width, comparison by comparison."""
    lines = []
    for name in dict.fromkeys(row["comparison"] for row in rows):
        known = [r for r in rows if r["comparison"] == name and r["unpaired_twice"] is not None]
        met = [r for r in known if r["ours"] <= r["unpaired_twice"]]
        shares = [r["ours"] / r["unpaired_twice"] for r in known]
        lines.append(
            f"- {name}: {len(met)} of {len(known)} times as narrow as the unpaired interval of "
            f"twice the tokens, or narrower (width over width {min(shares):.2f} to "
            f"{max(shares):.2f})."
        )
    return "\n".join(["Goal: the unpaired width with at most half the tokens.", "", *lines])


def _variance_ratios(machines: Mapping[str, Mapping[str, float]]) -> str:
    """How many blocks the unpaired way needs where K are compared side by side."""
    lines = [
        f"- {name}: "
        + ", ".join(f"{ratio:.1f} times at concurrency {c}" for c, ratio in ratios.items())
        + f" ({'met' if min(ratios.values()) >= ENOUGH else 'NOT met'})."
        for name, ratios in machines.items()
    ]
    told = (
        "Estimates of K over the next K of one launch, without any model of their noise: as many "
        "blocks as this takes the unpaired way for the same width (2 is half of the tokens)."
    )
    return "\n".join([told, "", *lines])


def _coverage(designs: Mapping[str, Any]) -> str:
    head = (
        "| design | pairs | interval | covers at 1 | at 4 | overall | half width, overall |\n"
        "|---|---|---|---|---|---|---|"
    )
    rows = []
    for name, found in designs.items():
        for way in ("", ", by steps", ", by throughput"):
            shares = [found["covered"][f"{level}{way}"] for level in USED]
            width = found["half_width"][f"overall{way}"]
            cells = [name, str(found["pairs"]), way.removeprefix(", ") or "as used"]
            cells += [f"{share:.1%}" for share in shares]
            rows.append(f"| {' | '.join([*cells, f'± {width:.1%}'])} |")
    return "\n".join([head, *rows])


def _coverage_verdict(result: Mapping[str, Any]) -> str:
    def shares(kind: str, machine: str) -> list[float]:
        found = [
            d["covered"]
            for n, d in result["coverage"].items()
            if n.startswith(kind) and n.endswith(machine)
        ]
        return [covered[level] for covered in found for level in USED]

    equal, worst = shares("A/A", "quiet machine"), shares("A/A", "restless machine")
    beside = shares("two K", "quiet machine"), shares("two K", "restless machine")
    met = "met" if all(COVERS[0] <= share <= COVERS[1] for share in equal) else "NOT met"
    stops, smoke = result["false_stops"], result["smoke"]
    stopped = "met" if stops["share"] <= FALSE_STOPS else "NOT met"
    return "\n".join(
        [
            (
                f"- Goal: the 95 % intervals of A/A pairs cover 1 in {COVERS[0]:.0%} to "
                f"{COVERS[1]:.0%}; {met} with the noise of the quiet machine: {min(equal):.1%} to "
                f"{max(equal):.1%}."
            ),
            (
                f"- On the restless one, whose launches differ far more than the prior says, they "
                f"cover it in {min(worst):.1%} to {max(worst):.1%}: there only more launches help."
            ),
            (
                f"- Two equal K of one launch are covered in {min(beside[0]):.1%} to "
                f"{max(beside[0]):.1%} on the quiet machine, in {min(beside[1]):.1%} to "
                f"{max(beside[1]):.1%} on the restless one."
            ),
            (
                f"- Goal: a K within the tolerance of the best is stopped in at most "
                f"{FALSE_STOPS:.0%} of launches; {stopped}: {stops['share']:.1%} of "
                f"{stops['launches']} launches of four K, all but the best exactly at its edge."
            ),
            (
                f"- Through HTTP, on the simulated engine: {smoke['covered']:.0%} of "
                f"{smoke['pairs']:g} equal pairs covered, mean ratio {smoke['mean']:.3f}."
            ),
        ]
    )
