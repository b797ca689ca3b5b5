"""curves.csv: every point, and empty cells for what nobody measured."""

import io

import pandas as pd

from autotune.core.recommendation import recommend
from autotune.reporting.curves import curves_csv, curves_table
from tests.builders import make_spec
from tests.builders_study import make_study_records

SPEC = make_spec()
RESULT = recommend(SPEC, make_study_records())


def row(table: pd.DataFrame, **where: object) -> pd.Series:
    """The one row with these values."""
    for name, value in where.items():
        table = table[table[name] == value]
    assert len(table) == 1
    return table.iloc[0]


def test_there_is_a_row_for_each_split_candidate_level_and_k() -> None:
    """Three candidates, two levels and the whole, four K; and the confirmed point."""
    table = curves_table(RESULT)
    assert len(table) == 3 * 3 * 4 + 3
    assert set(table["split"]) == {"search", "confirmation"}
    assert set(table["concurrency"]) == {"1", "4", "overall"}


def test_each_search_curve_has_one_knee() -> None:
    """The flag marks the K that the report names."""
    table = curves_table(RESULT)
    search = table[table["split"] == "search"]
    assert (search.groupby(["candidate", "concurrency"])["knee"].sum() == 1).all()
    point = row(search, candidate="eagle", concurrency="overall", num_speculative_tokens=2)
    assert point["knee"]


def test_a_single_confirmed_point_is_no_knee() -> None:
    """One point has a best and no knee."""
    table = curves_table(RESULT)
    assert not table[table["split"] == "confirmation"]["knee"].any()


def test_positions_beyond_k_are_empty() -> None:
    """A draft of two tokens has no third position; zero would be a claim."""
    point = row(
        curves_table(RESULT),
        split="search",
        candidate="eagle",
        concurrency="1",
        num_speculative_tokens=2,
    )
    assert point["acceptance_pos_2"] > 0
    assert pd.isna(point["acceptance_pos_3"])


def test_the_overall_rows_carry_no_throughput_of_one_level() -> None:
    """A throughput without a concurrency means nothing."""
    table = curves_table(RESULT)
    overall = table[table["concurrency"] == "overall"]
    assert overall["output_throughput"].isna().all()
    assert overall["median_ttft_ms"].isna().all()
    assert overall["speedup"].notna().all()


def test_the_csv_reads_back() -> None:
    """What a notebook loads is the table."""
    read = pd.read_csv(io.StringIO(curves_csv(RESULT)), dtype={"concurrency": str})
    assert list(read.columns) == list(curves_table(RESULT).columns)
    assert len(read) == len(curves_table(RESULT))


def test_a_study_without_curves_has_an_empty_table() -> None:
    """No rows, no error."""
    assert curves_table(recommend(SPEC, [])).empty
