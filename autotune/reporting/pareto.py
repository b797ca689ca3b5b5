"""The picture of speed against memory: every point with its interval, and the front.

Rules: those of figures.py; nothing is drawn where the memory of fewer than two points is known.
"""

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import AutoLocator

from autotune.core.pareto import Tradeoff, tradeoffs
from autotune.core.recommendation import Recommendation
from autotune.core.study import StudySpec
from autotune.core.trial import BASELINE, Record
from autotune.core.wording import conditions
from autotune.reporting._drawing import (
    FAINT,
    INK,
    Style,
    dress,
    encode,
    frame,
    new_figure,
    styles_of,
)

LEAST = 2


def pareto_figures(
    spec: StudySpec, records: Sequence[Record], result: Recommendation
) -> dict[str, bytes]:
    """File name to content, PNG and SVG; nothing where there is nothing to weigh."""
    found = tradeoffs(records, result.search)
    if len(found) < LEAST:
        return {}
    return {f"pareto.{kind}": encode(pareto_figure(spec, found), kind) for kind in ("png", "svg")}


def pareto_figure(spec: StudySpec, found: Sequence[Tradeoff]) -> Figure:
    """Speedup over memory; a label at each point says its K."""
    figure = new_figure(3.4)
    ax = figure.subplots()
    dress(ax, xlabel="memory that it needs, GiB", ticks=[])
    ax.xaxis.set_major_locator(AutoLocator())
    ax.axhline(1.0, color=FAINT, linewidth=1.3, linestyle=(0, (4, 3)), zorder=1)
    ax.set_ylabel("speedup over plain decoding", fontsize=9, color=INK)
    _draw_front(ax, [t for t in found if t.on_front])
    _draw_points(ax, found)
    frame(
        figure,
        title="Speed against memory: what each K costs and gains",
        note=f"Overall, {conditions(spec)}; labels are K. Memory: all but the KV cache as "
        "reported, and KV cache for the measured peak with headroom.",
        handles=_legend(found),
    )
    return figure


def _legend(found: Sequence[Tradeoff]) -> list[Line2D]:
    styles = _styles(found)
    plain = Line2D([], [], color=INK, marker="*", linestyle="none", label="plain decoding")
    return [
        *(
            Line2D([], [], color=s.colour, marker=s.marker, linestyle="none", label=name)
            for name, s in styles.items()
        ),
        *([plain] if any(t.candidate == BASELINE for t in found) else []),
        Line2D([], [], color=FAINT, linewidth=1.2, label="front"),
    ]


def _styles(found: Sequence[Tradeoff]) -> Mapping[str, Style]:
    names = list(dict.fromkeys(t.candidate for t in found if t.candidate != BASELINE))
    return styles_of(names, spread=0.0)


def _below(point: Tradeoff) -> float:
    return point.speedup.mean - point.speedup.low if math.isfinite(point.speedup.high) else 0.0


def _above(point: Tradeoff) -> float:
    return point.speedup.high - point.speedup.mean if math.isfinite(point.speedup.high) else 0.0


def _draw_front(ax: Axes, front: Sequence[Tradeoff]) -> None:
    ax.plot(
        [t.memory_gib for t in front],
        [t.speedup.mean for t in front],
        color=FAINT,
        linewidth=1.2,
        drawstyle="steps-post",
        zorder=2,
    )


def _draw_points(ax: Axes, found: Sequence[Tradeoff]) -> None:
    styles = _styles(found)
    for name in (BASELINE, *styles):
        mine = [t for t in found if t.candidate == name]
        style = styles.get(name)
        if not mine:
            continue
        ax.errorbar(
            [t.memory_gib for t in mine],
            [t.speedup.mean for t in mine],
            yerr=[[_below(t) for t in mine], [_above(t) for t in mine]],
            linestyle="none",
            color=style.colour if style else INK,
            marker=style.marker if style else "*",
            markersize=6,
            elinewidth=1.0,
            capsize=2.5,
            zorder=4,
        )
        for t in mine if style else ():
            ax.annotate(
                str(t.num_speculative_tokens),
                (t.memory_gib, t.speedup.mean),
                xytext=(5, 4),
                textcoords="offset points",
                fontsize=8,
                color=INK,
            )
