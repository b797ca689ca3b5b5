"""From /metrics text to counters: a recorded reading of vLLM 0.32.0, and what may differ."""

from pathlib import Path

import pytest

from autotune.core.acceptance import SpecCounters
from autotune.core.trial import Cause
from autotune.engines._metrics import counters, kv_cache_tokens, kv_cache_usage, scrape
from autotune.errors import LaunchError

VERSIONS = Path(__file__).parent / "fixtures" / "versions"
RECORDED = (VERSIONS / "v0.32.0-metrics.txt").read_text()
"""An EAGLE launch with K_max = 3 after some passes at K = 1 and two steps or so at K = 2."""
SPEC = SpecCounters(drafts=47, draft_tokens=64, accepted_tokens=25, accepted_per_pos=(24, 1, 0))


def test_a_recorded_reading() -> None:
    """Every counter, as it stands in the text."""
    read = counters(scrape(RECORDED))
    assert read.spec == SPEC
    assert (read.generation_tokens, read.prompt_tokens) == (74, 389)
    assert (read.prefix_queries, read.prefix_hits, read.preemptions) == (389, 0, 0)
    assert (read.running, read.waiting, read.kv_cache_usage) == (0, 0, 0.0)


def test_tokens_by_source_are_not_added_to_the_total() -> None:
    """`prompt_tokens_by_source_total` is another family, not more prompt tokens."""
    assert "vllm:prompt_tokens_by_source_total" in RECORDED
    assert counters(scrape(RECORDED)).prompt_tokens == 389


def test_timestamps_are_no_counters() -> None:
    """`..._created` holds seconds since 1970: counted, it would be billions of tokens."""
    assert "vllm:generation_tokens_created" in RECORDED
    names = scrape(RECORDED).values
    assert not [name for name in names if name.endswith("_created")]


def test_several_engines_are_summed() -> None:
    """With data parallelism every engine has samples of its own, each position, too."""
    second = "".join(
        line.replace('engine="0"', 'engine="1"') + "\n"
        for line in RECORDED.splitlines()
        if line.startswith("vllm:") and "_created" not in line
    )
    samples = scrape(_interleaved(RECORDED, second))
    assert counters(samples).spec == SPEC + SPEC
    assert counters(samples).generation_tokens == 148


def _interleaved(text: str, more: str) -> str:
    """Each added sample behind the one that it resembles, so that families stay together."""
    added = {
        line.replace('engine="1"', 'engine="0"').rpartition(" ")[0]: line
        for line in more.splitlines()
    }
    lines = []
    for line in text.splitlines():
        lines.append(line)
        twin = added.get(line.rpartition(" ")[0])
        if twin is not None and not line.startswith("#"):
            lines.append(twin)
    return "\n".join(lines) + "\n"


def test_no_speculation_is_none_and_not_zero() -> None:
    """A server that shows no such counters: not known, never 0 accepted tokens."""
    plain = "\n".join(line for line in RECORDED.splitlines() if "spec_decode" not in line) + "\n"
    assert counters(scrape(plain)).spec is None
    assert counters(scrape(plain)).generation_tokens == 74


def without(*words: str) -> str:
    """The recorded reading without the families of these names."""
    lines = RECORDED.splitlines()
    return "\n".join(x for x in lines if not any(word in x for word in words)) + "\n"


@pytest.mark.parametrize(
    "family",
    [
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:generation_tokens",
        "vllm:prompt_tokens",
    ],
)
def test_what_no_pass_can_do_without_is_an_error(family: str) -> None:
    """A gauge of 0 that nobody showed would call a busy server drained."""
    with pytest.raises(LaunchError) as told:
        counters(scrape(without(family)))
    assert told.value.cause is Cause.ENGINE_REFUSED
    assert f"/metrics shows no {family}" in told.value.detail
    assert "names of this engine's metrics are unknown" in told.value.remedy


@pytest.mark.parametrize(
    "family",
    ["spec_decode_num_drafts", "spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens_t"],
)
def test_half_the_counters_of_speculation_are_none(family: str) -> None:
    """An engine that renamed one of them shows no acceptance, not one of 0, and is measured."""
    read = counters(scrape(without(family)))
    assert read.spec is None
    assert read.generation_tokens == 74


def test_what_a_pass_can_do_without_is_none() -> None:
    """Not known, never 0: no hits would be a clean bill for the prefix cache."""
    read = counters(scrape(without("prefix_cache", "num_preemptions", "cache_usage_perc")))
    assert (read.prefix_queries, read.prefix_hits) == (None, None)
    assert (read.preemptions, read.kv_cache_usage) == (None, None)
    assert read.generation_tokens == 74


def test_speculation_that_has_not_drafted_yet_is_zero() -> None:
    """The families are there from the start: a first reading to subtract."""
    fresh = "".join(
        f"# TYPE vllm:spec_decode_num_{name}_total counter\n"
        f'vllm:spec_decode_num_{name}_total{{engine="0"}} 0.0\n'
        for name in ("drafts", "draft_tokens", "accepted_tokens")
    )
    assert counters(scrape(without("spec_decode") + fresh)).spec == SpecCounters()


def test_positions_keep_their_order_and_their_gaps() -> None:
    """The labels are texts and may come in any order; a missing one counts nothing."""
    name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    rows = {"10": 1, "2": 7, "0": 9}
    text = f"# TYPE {name} counter\n" + "".join(
        f'{name}{{engine="0",position="{p}"}} {n}.0\n' for p, n in rows.items()
    )
    assert scrape(text).by_position() == (9, 0, 7, 0, 0, 0, 0, 0, 0, 0, 1)


@pytest.mark.parametrize(
    ("old", "value"),
    [
        ("vllm:gpu_cache_usage_perc", 0.25),
        ("vllm:kv_cache_usage_perc", 0.25),
    ],
)
def test_names_of_older_engines(old: str, value: float) -> None:
    """A gauge that was renamed is found under either name."""
    text = f'# TYPE {old} gauge\n{old}{{engine="0"}} {value}\n'
    assert scrape(text).total("kv_cache_usage") == value


@pytest.mark.parametrize("name", ["vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc"])
def test_the_fill_of_the_kv_cache_is_that_of_the_fullest_engine(name: str) -> None:
    """Each engine has a cache of its own; a label may hold braces and blanks."""
    rows = {"0": 0.25, "1": 0.5, "2": 0.125}
    text = f"# HELP {name} KV-cache usage. 1 means 100 percent usage.\n# TYPE {name} gauge\n"
    text += "".join(f'{name}{{engine="{e}",model_name="a {{b}} 7"}} {x}\n' for e, x in rows.items())
    assert kv_cache_usage(text) == 0.5
    assert kv_cache_usage(RECORDED) == 0.0
    assert kv_cache_usage(without("cache_usage_perc")) is None


def test_kv_cache_capacity() -> None:
    """Blocks times block size from cache_config_info; not told, or not a number, is None."""
    info = next(x for x in RECORDED.splitlines() if x.startswith("vllm:cache_config_info{"))
    assert 'block_size="128"' in info
    tokens = kv_cache_tokens(scrape(RECORDED))
    assert tokens is not None
    assert tokens % 128 == 0
    assert f'num_gpu_blocks="{tokens // 128}"' in info
    assert kv_cache_tokens(scrape("")) is None
    unknown = RECORDED.replace(f'num_gpu_blocks="{tokens // 128}"', 'num_gpu_blocks="None"')
    assert kv_cache_tokens(scrape(unknown)) is None
