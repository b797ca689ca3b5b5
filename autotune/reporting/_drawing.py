"""What all pictures share: size, colours, markers, axes, and how a figure becomes bytes.

Rules: legible at the width of a README on a light page; a colour never stands alone, each
candidate has a marker, too; the same figure gives the same bytes.
"""

import io
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

WIDTH_IN = 9.0
"""At 100 dots per inch the width of a README; rendered at twice that for sharp screens."""
DPI = 200
TITLE_CHARACTERS = 92
"""What fits into one line of the title at its full size."""
NOTE_IN, LEGEND_ROW_IN = 0.25, 0.23
LEGEND_CHARACTERS, LEGEND_KEY = 120, 7
"""What fits into one line of the legend, and what the line before each label takes of it."""
INK, FAINT, GRID = "#222222", "#6b6b6b", "#e6e6e6"
# Okabe and Ito's palette, darker where a white page swallows it.
_STYLES = (
    ("#0072B2", "o"),
    ("#D55E00", "s"),
    ("#009E73", "^"),
    ("#B8588F", "D"),
    ("#3A9BD9", "v"),
    ("#8A6D00", "P"),
    ("#4D4D4D", "X"),
)


@dataclass(frozen=True, slots=True)
class Style:
    """How one candidate is drawn in every panel."""

    colour: str
    marker: str
    shift: float
    """Sideways, in units of K, so that intervals at one K do not hide each other."""


def styles_of(names: Sequence[str], *, spread: float) -> Mapping[str, Style]:
    """One style for each name, side by side over `spread` units of K."""
    step = spread / max(len(names), 2)
    middle = (len(names) - 1) / 2
    return {
        name: Style(*_STYLES[i % len(_STYLES)], shift=step * (i - middle))
        for i, name in enumerate(names)
    }


def new_figure(height_in: float) -> Figure:
    """An empty figure of the common width."""
    return Figure(figsize=(WIDTH_IN, height_in), facecolor="white", layout="constrained")


def dress(ax: Axes, *, xlabel: str, ticks: Sequence[int]) -> None:
    """A quiet axis with a tick at each measured value only."""
    ax.xaxis.set_major_locator(FixedLocator(list(ticks), nbins=20))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel(xlabel, fontsize=9, color=INK)
    ax.grid(axis="y", color=GRID, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=9, color=FAINT, labelcolor=INK, labelbottom=True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(FAINT)


def frame(figure: Figure, *, title: str, note: str, handles: Sequence[Line2D] = ()) -> None:
    """Title above; below, in room added for them, the legend and the conditions."""
    labels = [str(handle.get_label()) for handle in handles]
    columns = legend_columns(labels)
    room = NOTE_IN + LEGEND_ROW_IN * math.ceil(len(labels) / columns)
    height = figure.get_size_inches()[1] + room
    below = room / height
    figure.set_size_inches(WIDTH_IN, height)
    figure.set_layout_engine("constrained", w_pad=0.08, h_pad=0.06, rect=(0, below, 1, 1 - below))
    size = 11.5 * min(1.0, TITLE_CHARACTERS / len(title))
    figure.suptitle(title, x=0.008, ha="left", fontsize=size, fontweight="bold", color=INK)
    figure.text(0.008, 0.06 / height, note, fontsize=8, color=FAINT)
    if handles:
        figure.legend(
            handles=handles,
            loc="lower left",
            bbox_to_anchor=(0.0, (NOTE_IN - 0.05) / height),
            ncols=columns,
            frameon=False,
            fontsize=9,
            labelcolor=INK,
        )


def legend_columns(labels: Sequence[str]) -> int:
    """The most columns that fit into the width; a legend fills column by column."""
    for columns in range(len(labels), 1, -1):
        if _legend_width(labels, columns) <= LEGEND_CHARACTERS:
            return columns
    return 1


def _legend_width(labels: Sequence[str], columns: int) -> int:
    """Characters over all columns; as in matplotlib, the first ones take what is left over."""
    rows, larger = divmod(len(labels), columns)
    heights = [rows + 1] * larger + [rows] * (columns - larger)
    ends = list(itertools.accumulate(heights))
    parts = [labels[end - height : end] for height, end in zip(heights, ends, strict=True)]
    return sum(max(map(len, part)) + LEGEND_KEY for part in parts)


def ring(xs: Sequence[float], ys: Sequence[float], colour: str, label: str = "") -> Line2D:
    """The mark of a knee, around its point."""
    return Line2D(
        xs,
        ys,
        label=label,
        linestyle="none",
        marker="o",
        markersize=11,
        markerfacecolor="none",
        markeredgecolor=colour,
        markeredgewidth=1.4,
        zorder=4,
    )


def star(xs: Sequence[float], ys: Sequence[float], colour: str, label: str = "") -> Line2D:
    """The mark of what the confirmation measured."""
    return Line2D(
        xs,
        ys,
        label=label,
        linestyle="none",
        marker="*",
        markersize=12,
        markerfacecolor=colour,
        markeredgecolor=INK,
        markeredgewidth=0.8,
        zorder=6,
    )


def encode(figure: Figure, kind: str) -> bytes:
    """The figure as PNG or SVG."""
    buffer = io.BytesIO()
    # No date and no random ids: a report that did not change should not change.
    metadata = {"Date": None} if kind == "svg" else {"Software": None}
    with mpl.rc_context({"svg.hashsalt": "autotune"}):
        figure.savefig(buffer, format=kind, dpi=DPI, metadata=metadata)
    return buffer.getvalue()
