"""The figures: legible, reproducible, and free of global state."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes

from autotune.core.recommendation import Recommendation, recommend
from autotune.core.study import Constraint, Objective
from autotune.reporting._drawing import DPI, WIDTH_IN, legend_columns, styles_of
from autotune.reporting.figures import acceptance_figure, curves_figure, figures
from tests.builders import make_record, make_spec, make_workload
from tests.builders_study import make_study_records

SPEC = make_spec()
RESULT = recommend(SPEC, make_study_records())
DRAWN = figures(SPEC, RESULT)


def titles(axes: list[Axes]) -> list[str]:
    """The titles of the visible panels."""
    return [ax.get_title(loc="left") for ax in axes if ax.get_visible()]


def test_both_figures_come_as_png_and_svg() -> None:
    """One for a README, one for a printer."""
    assert set(DRAWN) == {"curves.png", "curves.svg", "acceptance.png", "acceptance.svg"}
    assert DRAWN["curves.png"].startswith(b"\x89PNG")
    assert b"<svg" in DRAWN["curves.svg"]


def test_the_same_result_gives_the_same_bytes() -> None:
    """A report that did not change does not show up in a diff."""
    assert figures(SPEC, RESULT) == DRAWN


def test_there_is_a_panel_for_the_whole_and_for_each_level() -> None:
    """In the order of the workload."""
    figure = curves_figure(SPEC, RESULT)
    assert titles(figure.axes) == ["overall (weighted)", "concurrency 1", "concurrency 4"]


def test_one_level_needs_no_second_panel() -> None:
    """The whole is that level."""
    spec = make_spec(workload=make_workload(concurrencies={4: 1.0}))
    figure = curves_figure(spec, recommend(spec, make_study_records()))
    assert titles(figure.axes) == ["concurrency 4"]


@pytest.mark.parametrize("count", [2, 3, 4, 6])
def test_any_number_of_levels_fits_the_width(count: int) -> None:
    """Panels wrap into rows; the width is that of a README."""
    levels = dict.fromkeys(range(1, count + 1), 1.0)
    spec = make_spec(workload=make_workload(concurrencies=levels, prompts=100))
    tput = {c: 30.0 * c for c in levels}
    records = [make_record(tput=tput), make_record("eagle", 2, tput=tput)]
    figure = curves_figure(spec, recommend(spec, records))
    assert len(titles(figure.axes)) == count + 1
    assert figure.get_size_inches()[0] == WIDTH_IN


def test_the_title_is_the_verdict() -> None:
    """Copied without its report, the picture still says what it found."""
    title = curves_figure(SPEC, RESULT).get_suptitle()
    assert title.startswith("Speculate: eagle at K = 2")
    assert "temperature 0" in curves_figure(SPEC, RESULT).texts[-1].get_text()


def test_the_note_says_what_the_ratio_is_of() -> None:
    """Times per reply where steps tell them, else throughputs."""
    notes = [
        curves_figure(SPEC, result).texts[-1].get_text() for result in (RESULT, with_steps(RESULT))
    ]
    assert notes[0].startswith("Ratio of output tokens/s, temperature 0")
    assert notes[1].startswith("Ratio of reply times at equal length, temperature 0")


def with_steps(result: Recommendation) -> Recommendation:
    """The result of a study whose every point goes by steps."""
    return replace(
        result,
        search=tuple(
            replace(c, points=tuple(replace(p, by_steps=p.speedup) for p in c.points))
            for c in result.search
        ),
    )


def test_the_baseline_is_always_in_sight() -> None:
    """Also where every candidate is far from it."""
    for scale in (0.5, 3.0):
        result = recommend(SPEC, make_study_records(scale=scale))
        low, high = curves_figure(SPEC, result).axes[0].get_ylim()
        assert low < 1.0 < high


def test_a_point_without_an_interval_has_no_bar() -> None:
    """One block gives a ratio; infinity cannot be drawn."""
    records = [make_record(blocks=1), make_record("eagle", 2, blocks=1)]
    low, high = curves_figure(SPEC, recommend(SPEC, records)).axes[0].get_ylim()
    assert np.isfinite([low, high]).all()


def test_without_a_curve_nothing_is_drawn() -> None:
    """An empty picture would only look like a result."""
    assert figures(SPEC, recommend(SPEC, [])) == {}


def test_acceptance_is_drawn_at_the_largest_k() -> None:
    """Smaller K see only its first positions."""
    lines = acceptance_figure(SPEC, RESULT).axes[0].get_lines()
    assert [len(np.asarray(line.get_xdata())) for line in lines] == [5, 5, 5]


def test_a_candidate_that_breaks_a_constraint_is_drawn() -> None:
    """It has no overall curve; its levels and its acceptance were measured all the same."""
    limit = Constraint(metric="median_tpot_ms", upper=31.0)
    spec = make_spec(objective=Objective(constraints=(limit,)))
    result = recommend(spec, make_study_records())
    assert ("draft-4l", None) not in {(c.candidate, c.concurrency) for c in result.search}
    assert set(figures(spec, result)) == set(DRAWN)
    lines = acceptance_figure(spec, result).axes[0].get_lines()
    assert [len(np.asarray(line.get_xdata())) for line in lines] == [5, 5, 5]


def test_a_candidate_has_one_colour_and_a_marker() -> None:
    """Neither stands alone: some readers see no colours, some prints have none."""
    styles = styles_of(["a", "b", "c"], spread=0.3)
    assert len({s.colour for s in styles.values()}) == 3
    assert len({s.marker for s in styles.values()}) == 3
    assert sum(s.shift for s in styles.values()) == pytest.approx(0)


def test_a_legend_of_long_names_gets_fewer_columns() -> None:
    """Rather than running out of the page."""
    assert legend_columns(["eagle", "ngram", "knee"]) == 3
    assert legend_columns(["x" * 50] * 4) == 2
    assert legend_columns(["x" * 300]) == 1
    assert legend_columns([]) == 1


def test_the_png_is_sharp_at_readme_width() -> None:
    """Twice the pixels of the width at which it is shown."""
    width = int.from_bytes(DRAWN["curves.png"][16:20], "big")
    assert width == WIDTH_IN * DPI


def test_pyplot_is_not_used() -> None:
    """It would keep figures alive and pick a backend for the whole process."""
    code = "import sys, autotune.reporting.report; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
