"""The prior of the launch effect stands on a recorded measurement."""

import json
from pathlib import Path

from autotune.core.noise import PRIOR_SD

RECORD = Path(__file__).parents[2] / "studies" / "smollm2-135m" / "results" / "equal-launches.json"


def test_the_prior_is_no_smaller_than_what_was_recorded() -> None:
    """Equal launches were measured; the prior allows for them, and for at most twice as much."""
    recorded = json.loads(RECORD.read_text(encoding="utf-8"))
    assert recorded["launches"] >= 5
    assert recorded["sd_of_launch_mean"] <= PRIOR_SD <= 2 * recorded["sd_of_launch_mean"]
