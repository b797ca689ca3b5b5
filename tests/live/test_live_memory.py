"""The KV cache of a real vLLM: its fill under load, and its capacity at another utilization."""

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.core.capacity import Source, capacities
from autotune.core.jsontype import JSON
from autotune.core.trial import BASELINE, EngineFacts
from tests.builders import make_record
from tests.live.real import MEMORY, NEEDS, one_pass, serving_at

pytestmark = NEEDS
LESS = 0.2


def facts_at(folder: Path, share: float) -> tuple[EngineFacts, float | None]:
    """What a plain launch tells of itself, and the peak of a pass at concurrency 4."""
    eager: dict[str, JSON] = {"enforce_eager": True}
    with serving_at(folder, None, 0, live=False, share=share, engine_args=eager) as server:
        watch = server.watch()
        one_pass(server, k=None, prompts=8, max_tokens=48, concurrency=4)
        return server.facts, watch.end().kv_cache_peak


def no_kv_cache(facts: EngineFacts, share: float) -> float:
    """Bytes of what was reserved that are no KV cache."""
    assert facts.memory_bytes
    assert facts.kv_cache_bytes
    return share * facts.memory_bytes - facts.kv_cache_bytes


def test_the_peak_is_seen_and_the_capacity_is_linear(tmp_path: Path) -> None:
    """One launch's log gives the capacity of another, but for what else the engine holds, which on
    a CPU is its resident memory of that moment; the load's tokens are what the gauge says."""
    facts, peak = facts_at(tmp_path / "more", MEMORY)
    assert peak is not None
    assert facts.kv_cache_tokens is not None
    # Four requests of at most 200 tokens, in whole blocks; one block each at the least.
    assert 0 < peak * facts.kv_cache_tokens < 4 * (200 + 128)
    record = make_record(BASELINE, 0)
    trial = replace(record.trial, gpu_memory_utilization=MEMORY)
    told = capacities([replace(record, trial=trial, facts=facts)], BASELINE, 0)
    less, _ = facts_at(tmp_path / "less", LESS)
    assert facts.memory_bytes
    assert less.memory_bytes
    # A virtual machine may have been given more memory, or less, in between.
    there = told.at(LESS * less.memory_bytes / facts.memory_bytes)
    assert there is not None
    assert there.source is Source.LINE
    assert facts.kv_cache_bytes
    assert less.kv_cache_tokens
    assert less.kv_cache_bytes
    per_token = less.kv_cache_bytes / less.kv_cache_tokens
    assert per_token == pytest.approx(facts.kv_cache_bytes / facts.kv_cache_tokens, rel=0.005)
    moved = no_kv_cache(less, LESS) - no_kv_cache(facts, MEMORY)
    assert (there.tokens - less.kv_cache_tokens) * per_token == pytest.approx(moved, abs=16 << 20)
    assert abs(moved) < 0.2 * no_kv_cache(facts, MEMORY)
