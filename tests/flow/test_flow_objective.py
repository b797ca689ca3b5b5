"""Another objective over the real command line: every text says what the speedup is in."""

from pathlib import Path

import pytest
import yaml

from tests.flow.study import candidates, desk

pytestmark = pytest.mark.timeout(300)  # the first start compiles what it imports


def test_a_study_of_tpot(tmp_path: Path) -> None:
    """The draft that pays in time per reply pays in TPOT; a bound that nothing breaks is kept."""
    file = candidates(
        search={"num_speculative_tokens": 4, "max_blocks": 2},
        objective={"metric": "tpot"},
        constraints={"p99_ttft": "60 s"},
    )
    study = desk(tmp_path, file)
    done = study.run()
    assert done.code == 0, done.text
    assert "the speed of plain decoding, in mean TPOT at concurrency 1" in done.text
    (level,) = yaml.safe_load(study.report("best-config.yaml"))["evidence"]["levels"]
    assert level["speedup_in"] == "mean TPOT"
    ratio = level["baseline"]["mean_tpot_ms"] / level["candidate"]["mean_tpot_ms"]
    assert ratio == pytest.approx(level["speedup"]["mean"], rel=1e-3)
    assert "Speedups are in mean TPOT" in study.report("report.md")
