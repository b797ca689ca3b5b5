"""Two pictures: speedup over K with its knees, and acceptance by draft position.

Rules: Figure objects only, no pyplot and no global state; only measured points are drawn, each
with its interval; what the confirmation measured is marked apart from what the search saw.
"""

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter, StrMethodFormatter

from autotune.core.objective import FIGURES, compared_at
from autotune.core.proportion import CONFIDENCE
from autotune.core.recommendation import Recommendation
from autotune.core.speedup import Point, SpeedupCurve
from autotune.core.study import StudySpec
from autotune.core.wording import level_words, sampling_words, short_headline
from autotune.core.workload import Level
from autotune.reporting._drawing import (
    FAINT,
    INK,
    Style,
    dress,
    encode,
    frame,
    new_figure,
    ring,
    star,
    styles_of,
)

PANELS_PER_ROW = 3
SPREAD = 0.06
"""How wide the candidates stand side by side, as a share of the range of K."""


def figures(spec: StudySpec, result: Recommendation) -> dict[str, bytes]:
    """File name to content: both pictures as PNG and SVG; nothing without a curve."""
    if not result.search:
        return {}
    drawn = {"curves": curves_figure(spec, result), "acceptance": acceptance_figure(spec, result)}
    return {
        f"{name}.{kind}": encode(figure, kind)
        for name, figure in drawn.items()
        for kind in ("png", "svg")
    }


def curves_figure(spec: StudySpec, result: Recommendation) -> Figure:
    """Speedup over K: a panel for the weighted whole and one for each concurrency."""
    levels = spec.workload.levels
    panels: list[Level | None] = [*levels] if len(levels) == 1 else [None, *levels]
    columns = 2 if len(panels) == 4 else min(len(panels), PANELS_PER_ROW)  # noqa: PLR2004 - a square
    rows = math.ceil(len(panels) / columns)
    figure = new_figure(0.95 + 2.75 * rows)
    grid = figure.subplots(rows, columns, sharey=True, sharex=True, squeeze=False)
    styles = _styles(result)
    for ax, level in zip(grid.flat, panels, strict=False):
        ax.set_title(_panel(spec, level), fontsize=10, color=INK, loc="left")
        _draw_level(ax, result, level.concurrency if level else None, styles)
    for ax in list(grid.flat)[len(panels) :]:
        ax.set_visible(False)
    for ax in grid[:, 0]:
        ax.set_ylabel("speedup over plain decoding", fontsize=9, color=INK)
    _scale(grid[0, 0], result)
    frame(
        figure,
        title=short_headline(spec, result),
        note=_note(spec, result),
        handles=_legend(styles, confirmed=bool(result.confirmation)),
    )
    return figure


def acceptance_figure(spec: StudySpec, result: Recommendation) -> Figure:
    """How often the token at each draft position is accepted, at the largest K measured."""
    figure = new_figure(3.1)
    ax = figure.subplots()
    drawn = {name: _longest(result, name) for name in _styles(result)}
    depth = max((p.num_speculative_tokens for p in drawn.values() if p), default=1)
    dress(ax, xlabel="position in the draft", ticks=range(1, depth + 1))
    for name, style in _styles(result).items():
        _draw_acceptance(ax, name, drawn[name], style)
    ax.set_ylim(0, 1.02)
    ax.yaxis.set_major_formatter(PercentFormatter(xmax=1.0, decimals=0))
    ax.set_ylabel("drafts accepted up to here", fontsize=9, color=INK)
    frame(
        figure,
        title="Acceptance by position: how far the target follows each draft",
        note=f"At the largest K measured, {sampling_words(spec.workload.sampling)}; counts of all "
        "levels pooled, unconditional. Tokens per step include the target's own.",
        handles=list(ax.get_lines()),
    )
    return figure


def _styles(result: Recommendation) -> Mapping[str, Style]:
    names = list(dict.fromkeys(curve.candidate for curve in result.search))
    ks = _ks(result)
    return styles_of(names, spread=SPREAD * max(ks[-1] - ks[0], 1) if ks else 0.0)


def _ks(result: Recommendation) -> list[int]:
    curves = (*result.search, *result.confirmation)
    return sorted({p.num_speculative_tokens for curve in curves for p in curve.points})


def _panel(spec: StudySpec, level: Level | None) -> str:
    if level is None:
        return "overall (weighted)"
    figure = compared_at(spec, level)
    of = "" if figure.by_steps else f"{figure.gain} at "
    if level.request_rate is None:
        return f"{of}{level_words(level)}"
    return f"{of}{level.request_rate:g} req/s, at most {level.concurrency}"


def _draw_level(
    ax: Axes, result: Recommendation, concurrency: int | None, styles: Mapping[str, Style]
) -> None:
    dress(ax, xlabel="num_speculative_tokens (K)", ticks=_ks(result))
    ax.axhline(1.0, color=FAINT, linewidth=1.3, linestyle=(0, (4, 3)), zorder=1)
    for curve in result.search:
        if curve.concurrency == concurrency:
            _draw_curve(ax, curve, styles[curve.candidate])
    for curve in result.confirmation:
        if curve.concurrency == concurrency and curve.candidate in styles:
            _draw_confirmed(ax, curve.points, styles, curve.candidate)


def _draw_curve(ax: Axes, curve: SpeedupCurve, style: Style) -> None:
    xs = [p.num_speculative_tokens + style.shift for p in curve.points]
    ax.errorbar(
        xs,
        [p.speedup.mean for p in curve.points],
        yerr=_bars(curve.points),
        color=style.colour,
        marker=style.marker,
        markersize=5,
        linewidth=1.4,
        elinewidth=1.0,
        capsize=2.5,
        zorder=3,
    )
    if not curve.knee.single:
        knee = curve.at(curve.knee.num_speculative_tokens)
        x = knee.num_speculative_tokens + style.shift
        ax.add_line(ring([x], [knee.speedup.mean], style.colour))


def _draw_confirmed(
    ax: Axes, points: Sequence[Point], styles: Mapping[str, Style], name: str
) -> None:
    beside = max(style.shift for style in styles.values()) * 2 or 0.1
    xs = [p.num_speculative_tokens + beside for p in points]
    means = [p.speedup.mean for p in points]
    bars = _bars(points)
    ax.errorbar(xs, means, bars, fmt="none", ecolor=INK, elinewidth=1.6, capsize=3, zorder=5)
    ax.add_line(star(xs, means, styles[name].colour))


def _draw_acceptance(ax: Axes, name: str, point: Point | None, style: Style) -> None:
    if point is None or point.acceptance is None:
        return
    shares = point.acceptance.per_position
    ax.plot(
        range(1, len(shares) + 1),
        shares,
        color=style.colour,
        marker=style.marker,
        markersize=6,
        linewidth=1.6,
        label=f"{name}: {point.acceptance.length:.2f} tokens per step",
    )


def _legend(styles: Mapping[str, Style], *, confirmed: bool) -> list[Line2D]:
    handles = [
        Line2D([], [], color=s.colour, marker=s.marker, markersize=5, linewidth=1.4, label=name)
        for name, s in styles.items()
    ]
    handles.append(ring([], [], FAINT, label="knee"))
    if confirmed:
        handles.append(star([], [], "white", label="confirmed by cold launches"))
    dashes = (0, (4, 3))
    handles.append(Line2D([], [], color=FAINT, linestyle=dashes, label="plain decoding"))
    return handles


def _longest(result: Recommendation, name: str) -> Point | None:
    """The point of the largest K; of the overall curve, unless a constraint took it from there."""
    found = [
        (curve.points[-1].num_speculative_tokens, curve.concurrency is None, curve.points[-1])
        for curve in result.search
        if curve.candidate == name
    ]
    return max(found, key=lambda entry: entry[:2])[2] if found else None


def _bars(points: Sequence[Point]) -> list[list[float]]:
    """Distances from the mean; an interval without bounds has no bar."""
    below = [p.speedup.mean - _ends(p)[0] for p in points]
    above = [_ends(p)[1] - p.speedup.mean for p in points]
    return [below, above]


def _ends(point: Point) -> tuple[float, float]:
    speedup = point.speedup
    if math.isfinite(speedup.high):
        return speedup.low, speedup.high
    return speedup.mean, speedup.mean


def _scale(ax: Axes, result: Recommendation) -> None:
    """One scale for all panels: what the points need, with the line at 1 always in sight."""
    points = [p for c in (*result.search, *result.confirmation) for p in c.points]
    low = min([0.9, *(_ends(p)[0] for p in points)])
    high = max([1.1, *(_ends(p)[1] for p in points)])
    room = 0.05 * (high - low)
    ax.set_ylim(low - room, high + room)
    ax.yaxis.set_major_locator(MaxNLocator(nbins=9, steps=[1, 2, 5, 10]))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:.3g}x"))


def _note(spec: StudySpec, result: Recommendation) -> str:
    stepped = any(point.by_steps for curve in result.search for point in curve.points)
    others = {compared_at(spec, lv).gain for lv in spec.workload.levels} - {
        FIGURES["output_throughput"].gain
    }
    ratio = "Ratio of reply times at equal length" if stepped else "Ratio of output tokens/s"
    if spec.objective.metric != "output_throughput":
        ratio = f"Ratio of {' and '.join(sorted(others))}"
    elif others:
        ratio += f" (at a rate: of {' and '.join(sorted(others))})"
    return (
        f"{ratio}, {sampling_words(spec.workload.sampling)}. Bars: "
        f"{CONFIDENCE:.0%} intervals, launch-to-launch scatter included."
    )
