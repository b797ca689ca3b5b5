"""What is shown of a level at a request rate: latency, queue and goodput, never a bare speedup."""

import io
import re
from dataclasses import replace
from pathlib import Path

import yaml
from rich.console import Console

from autotune.cli.results import announce
from autotune.core.recommendation import Recommendation, recommend
from autotune.core.workload import Slo
from autotune.exporters.best_config import PLUGIN
from autotune.reporting.curves import curves_table
from autotune.reporting.figures import curves_figure
from autotune.reporting.report import render_report
from autotune.tuning.paths import StudyPaths
from tests.builders_study import make_open_records, make_open_spec
from tests.goldens import check_golden

SPEC = make_open_spec(slo=Slo(ttft_ms=100.0, e2e_ms=2500.0))
RECORDS = make_open_records()
RESULT = recommend(SPEC, RECORDS)


def report(result: Recommendation = RESULT) -> str:
    """The report of this study."""
    return render_report(SPEC, RECORDS, result, {})


def test_golden() -> None:
    """The report of a study with a closed and an open loop and objectives of service, whole."""
    check_golden("report-open-loop.md", report())


def test_the_units_stand_in_the_cells() -> None:
    """Tokens per second and milliseconds share a column only with their units."""
    rows = [line for line in report().splitlines() if line.startswith("| ")]
    assert "| concurrency | weight | baseline | candidate | speedup |" in rows[0]
    assert rows[2].count(" tok/s ") == 2
    assert rows[3].count(" ms E2E ") == 2


def test_a_queue_is_told() -> None:
    """Many requests without a slot make the speedup one of queues, and the report says so."""
    assert "0% of the requests to the baseline" in report()
    assert "beyond what can be served" not in report()
    closed, level = RESULT.levels
    crowded = replace(RESULT, levels=(closed, replace(level, baseline_queued=0.8, queued=0.1)))
    assert "80% of the requests to the baseline and 10% of those" in report(crowded)
    assert "beyond what can be served" in report(crowded)


def test_best_config_has_rate_latency_and_goodput() -> None:
    """Deploy tooling can tell what the speedup is of."""
    found = yaml.safe_load(PLUGIN.render(SPEC, RESULT, {}))["evidence"]
    closed, level = found["levels"]
    assert "request_rate" not in closed
    assert level["request_rate"] == 2.5
    assert "by_throughput" in closed
    assert not {"by_steps", "by_throughput"} & level.keys()
    assert level["speedup_in"] == "mean E2E latency"
    ratio = level["baseline"]["mean_e2e_ms"] / level["candidate"]["mean_e2e_ms"]
    assert abs(ratio / level["speedup"]["mean"] - 1) < 1e-4
    assert {"goodput", "good_share", "requests"} <= closed["baseline"].keys()
    assert found["workload"]["slo"] == {"ttft_ms": 100.0, "e2e_ms": 2500.0}


def test_curves_say_the_rate() -> None:
    """A row of the table is known for one of E2E latency."""
    table = curves_table(RESULT)
    at_rate = table["concurrency"] == "4"
    assert (table.loc[at_rate, "request_rate"] == 2.5).all()
    assert table.loc[~at_rate, "request_rate"].isna().all()
    assert table.loc[at_rate, "output_throughput"].notna().all()


def test_each_panel_says_what_it_shows() -> None:
    """The figure's panel of a rate is one of E2E latency."""
    titles = [ax.get_title(loc="left") for ax in curves_figure(SPEC, RESULT).axes]
    where = "mean E2E latency at 2.5 req/s, at most 4"
    assert titles == ["overall (weighted)", "concurrency 1", where]


def test_the_last_words_have_latency_and_goodput() -> None:
    """Baseline to candidate, with the share's interval."""
    out = io.StringIO()
    console = Console(file=out, width=300)
    announce(console, SPEC, RESULT, StudyPaths(root=Path("/r"), name="s"), [])
    text = out.getvalue()
    assert re.search(r"2\.5 requests/s \(at most 4 under way\): 1\.\d\dx .* ms E2E", text)
    assert len(re.findall(r"goodput \d\.\d\d req/s, \d+% \[\d+%, \d+%\] -> \d", text)) == 2
