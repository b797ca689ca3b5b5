"""best-config.yaml: the contract with deploy tooling."""

import hashlib
import math
from dataclasses import replace
from typing import Any

import pytest
import yaml

from autotune.core.jsontype import JSON
from autotune.core.recommendation import Recommendation, recommend
from autotune.core.statistics import Interval
from autotune.core.study import Target
from autotune.exporters.best_config import PLUGIN, prompts_sha256, unverified
from autotune.exporters.vllm_yaml import PLUGIN as VLLM_YAML
from tests.builders import make_prompts, make_record, make_spec
from tests.builders_study import make_study_records
from tests.goldens import check_golden

SPEC = make_spec()
PROVENANCE: dict[str, JSON] = {
    "autotune_version": "0.1.0",
    "study": "demo",
    "created": "2026-11-30T12:00:00+00:00",
    "host": "bench-1",
    "engine_version": "0.32.0",
    "device": "Intel Xeon, 2 cores",
    "engine_env": {"LD_PRELOAD": "/lib/libiomp5.so", "HF_TOKEN": "s3cret"},
}


def read(result: Recommendation) -> dict[str, object]:
    """The document, as deploy tooling reads it."""
    document = yaml.safe_load(PLUGIN.render(SPEC, result, PROVENANCE))
    assert isinstance(document, dict)
    return document


def dig(values: object, path: str) -> object:
    """The value at a dotted path."""
    for part in path.split("."):
        assert isinstance(values, dict), path
        values = values[part]
    return values


def test_golden() -> None:
    """The exported file, whole."""
    result = recommend(SPEC, make_study_records())
    check_golden("best-config.yaml", PLUGIN.render(SPEC, result, PROVENANCE))


def test_golden_without_speculation() -> None:
    """The file of a study that found that speculation does not pay."""
    result = recommend(SPEC, make_study_records(scale=0.6))
    check_golden("best-config-do-not.yaml", PLUGIN.render(SPEC, result, PROVENANCE))


@pytest.mark.parametrize("scale", [1.0, 0.6])
def test_the_hash_is_that_of_the_exported_vllm_yaml(scale: float) -> None:
    """Deploy tooling can tell that the two files belong together."""
    result = recommend(SPEC, make_study_records(scale=scale))
    text = VLLM_YAML.render(SPEC, result, PROVENANCE)
    assert read(result)["vllm_yaml_sha256"] == hashlib.sha256(text.encode()).hexdigest()


def test_every_path_that_can_go_stale_is_there() -> None:
    """A checker can look up each of them."""
    document = read(recommend(SPEC, make_study_records()))
    paths = document["goes_stale_when_changed"]
    assert isinstance(paths, list)
    assert "engine.version" in paths
    for path in paths:
        assert dig(document, path) is not None


def test_unverified_is_there_only_while_the_winner_was_not_launched_as_exported() -> None:
    """A speculative configuration from the search alone says so; a confirmed one does not."""
    searched = recommend(SPEC, make_study_records(confirmed=False))
    assert read(searched)["unverified"] is True
    assert "unverified" not in read(recommend(SPEC, make_study_records()))


def test_a_baseline_that_the_search_measured_is_verified() -> None:
    """Its launch was started from the very file that is exported."""
    hopeless = recommend(SPEC, make_study_records(confirmed=False, scale=0.6))
    assert not hopeless.speculates
    assert not unverified(hopeless)
    assert unverified(recommend(SPEC, []))


def test_without_speculation_there_is_no_speculative_config() -> None:
    """Absent, not null: a reader may hand the mapping on as it is."""
    document = read(recommend(SPEC, make_study_records(scale=0.6)))
    assert document["verdict"] == "do_not_speculate"
    engine = document["engine"]
    assert isinstance(engine, dict)
    assert "speculative_config" not in engine


def test_no_secret_is_written() -> None:
    """The name of a credential is told, its value is not."""
    text = PLUGIN.render(SPEC, recommend(SPEC, make_study_records()), PROVENANCE)
    assert "s3cret" not in text
    assert dig(yaml.safe_load(text), "engine.env_withheld") == ["HF_TOKEN"]


def test_the_targets_environment_wins_over_the_engines() -> None:
    """What the user sets is what the launch had."""
    spec = make_spec(target=Target(model="m", env={"LD_PRELOAD": "mine"}))
    document = yaml.safe_load(PLUGIN.render(spec, recommend(spec, []), PROVENANCE))
    assert dig(document, "engine.env") == {"LD_PRELOAD": "mine"}


def test_an_interval_without_bounds_has_no_high_end() -> None:
    """One block tells a ratio and no interval; infinity is not a number to deploy on."""
    records = [make_record(blocks=1), make_record("eagle", 2, blocks=1, tput={1: 50, 4: 150})]
    result = recommend(SPEC, records)
    assert result.speedup is not None
    assert math.isinf(result.speedup.high)
    speedup = dig(read(result), "evidence.speedup")
    assert isinstance(speedup, dict)
    assert set(speedup) == {"mean", "low"}


def test_both_estimates_stand_beside_the_speedup() -> None:
    """By steps where that is known, and the plain ratio of throughputs always."""
    result = recommend(SPEC, make_study_records())
    bare, level = result.levels
    assert bare.by_steps is None
    steps = Interval(mean=1.25, low=1.2, high=1.3)
    stepped = replace(result, levels=(bare, replace(level, speedup=steps, by_steps=steps)))
    document = yaml.safe_load(PLUGIN.render(SPEC, stepped, PROVENANCE))
    first, second = document["evidence"]["levels"]
    assert "by_steps" not in first
    assert first["by_throughput"] == first["speedup"]
    assert second["by_steps"] == second["speedup"] == {"mean": 1.25, "low": 1.2, "high": 1.3}
    assert second["by_throughput"]["mean"] == pytest.approx(level.by_throughput.mean, rel=1e-5)


def test_an_adapter_and_a_response_format_are_part_of_the_evidence() -> None:
    """They stand in the document where they are used, and it goes stale with them."""
    form: dict[str, JSON] = {"type": "json_object"}
    workload = replace(SPEC.workload, lora="sql", response_format=form)
    spec = replace(SPEC, workload=workload)
    result = recommend(spec, make_study_records())
    document = yaml.safe_load(PLUGIN.render(spec, result, PROVENANCE))
    assert document["evidence"]["workload"]["lora"] == "sql"
    assert document["evidence"]["workload"]["response_format"] == form
    assert "evidence.workload.lora" in document["goes_stale_when_changed"]


def test_the_hash_of_the_prompts_is_of_what_is_sent() -> None:
    """Other messages or another order is another workload."""
    prompts = make_prompts("search", 3)
    assert prompts_sha256(prompts) == prompts_sha256(list(prompts))
    assert prompts_sha256(prompts) != prompts_sha256(prompts[::-1])
    first, *others = prompts
    for change in ({"later_turns": ("more",)}, {"max_tokens": 3}, {"response_format": {"a": 1}}):
        changed: Any = change
        assert prompts_sha256(prompts) != prompts_sha256([replace(first, **changed), *others])
    assert prompts_sha256(prompts) == prompts_sha256([replace(first, tokens=3), *others])
