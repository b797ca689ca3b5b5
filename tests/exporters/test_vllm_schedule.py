"""vllm-schedule.yaml, and what best-config.yaml says of it."""

import hashlib

import yaml

from autotune.core.recommendation import recommend
from autotune.exporters.best_config import PLUGIN as BEST_CONFIG
from autotune.exporters.vllm_schedule import PLUGIN
from autotune.exporters.vllm_yaml import PLUGIN as VLLM_YAML
from autotune.exporters.vllm_yaml import render_engine_args
from tests.builders import GMU
from tests.builders_schedule import IGNORED, SPEC, WITH, confirmed

OFFERED = recommend(SPEC, confirmed({1: 1.6, 4: 1.0}))
REFUSED = recommend(SPEC, confirmed({1: 1.6, 4: 1.0}, IGNORED))


def test_it_is_byte_for_byte_what_was_launched() -> None:
    """The static K of vllm.yaml stays what it is."""
    text = PLUGIN.render(SPEC, OFFERED, {})
    assert text == render_engine_args(SPEC, WITH, 3, GMU)
    speculation = yaml.safe_load(text)["speculative-config"]
    assert speculation["num_speculative_tokens_per_batch_size"] == [[1, 1, 3], [2, 4, 0]]
    assert speculation["num_speculative_tokens"] == 3
    static = VLLM_YAML.render(SPEC, OFFERED, {})
    assert static == render_engine_args(SPEC, SPEC.candidates[0], 3, GMU)


def test_best_config_has_its_hash_and_the_evidence_of_each_level() -> None:
    """In force, and the ratio to the static K with its interval."""
    text, document = PLUGIN.render(SPEC, OFFERED, {}), BEST_CONFIG.render(SPEC, OFFERED, {})
    found = yaml.safe_load(document)["schedule"]
    assert found["file"] == PLUGIN.filename
    assert found["sha256"] == hashlib.sha256(text.encode()).hexdigest()
    assert found["num_speculative_tokens_per_batch_size"] == [[1, 1, 3], [2, 4, 0]]
    one, four = found["levels"]
    assert (one["concurrency"], one["num_speculative_tokens"], one["draft_length"]) == (1, 3, 3.0)
    assert (four["concurrency"], four["num_speculative_tokens"]) == (4, 0)
    assert four["drafted_share"] < four["static_drafted_share"]
    ratio = four["speed_over_static"]
    assert 1.0 < ratio["low"] < ratio["mean"] < ratio["high"]


def test_one_that_is_refused_is_nowhere() -> None:
    """No file and no section; the reasons tell why."""
    assert PLUGIN.render(SPEC, REFUSED, {}) == ""
    document = BEST_CONFIG.render(SPEC, REFUSED, {})
    read = yaml.safe_load(document)
    assert "schedule" not in read
    assert any("not in force at concurrency 4" in reason for reason in read["reasons"])
