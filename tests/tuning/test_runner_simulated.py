"""One launch on the simulated engine, with the real load generator: what a fake would believe."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.core.jsontype import JSON
from autotune.core.workload import Level
from autotune.tuning import samples
from autotune.tuning.paths import StudyPaths
from tests.tuning.simulated import SYSTEM, conversations, live_passes, study


def test_prompts_that_begin_alike_do_not_help_each_other(tmp_path: Path) -> None:
    """A system prompt of whole cache blocks is computed anew for every request."""
    measured = live_passes(study(tmp_path), tmp_path)
    assert [p.invalid for p in measured] == [None] * 6
    assert {p.prefix_hit_rate for p in measured} == {0.0}
    assert all(p.prompt_tokens > 8 * len(SYSTEM.split()) for p in measured)
    assert all(0 <= p.client_lag_ms < 200 for p in measured)
    assert all(p.host is not None and p.host.load_1m is not None for p in measured)
    assert all(p.client_cpu > 0 for p in measured)
    assert {(p.looping, p.preemptions, len(p.warnings)) for p in measured} == {(0, 0, 0)}


def arrivals(folder: Path) -> dict[tuple[int, int], list[tuple[str, float, float, float]]]:
    """(block, K) to prompt, scheduled arrival, wait and end of each request."""
    frame = samples.read(folder / "studies" / "s" / "launches" / "001")
    found: dict[tuple[int, int], list[tuple[str, float, float, float]]] = {}
    for row in frame.to_dict("records"):
        key = (row["block"], row["num_speculative_tokens"])
        request = (row["prompt_id"], row["sent_s"], row["waited_s"], row["end_s"])
        found.setdefault(key, []).append(request)
    return found


def test_requests_come_at_the_rate_at_every_k(tmp_path: Path) -> None:
    """The same arrivals for the same prompts of a block, at the rate asked for, in another block
    others; the pass keeps rate, latency and lag."""
    rate = 40.0
    measured = live_passes(study(tmp_path, Level(concurrency=2, request_rate=rate)), tmp_path)
    assert [p.invalid for p in measured] == [None] * 6
    found = arrivals(tmp_path)
    plans = {key: [(name, due) for name, due, _, _ in rows] for key, rows in found.items()}
    for (block, _), plan in plans.items():
        assert plan == plans[block, 0]
        assert len(plan) == 8
        assert plan[-1][1] == pytest.approx(8 / rate, abs=1e-5)
    assert [due for _, due in plans[0, 0]] != [due for _, due in plans[1, 0]]
    for p in measured:
        assert p.request_rate == rate
        assert p.mean_e2e_ms
        assert p.log_speed == -math.log(p.mean_e2e_ms)
        assert 0 <= p.client_lag_ms < 200


def test_a_queue_at_the_slots_is_latency_and_not_lag(tmp_path: Path) -> None:
    """Far more requests than the server can take: two under way, the others wait their time."""
    measured = live_passes(study(tmp_path, Level(concurrency=2, request_rate=2000.0)), tmp_path)
    assert [p.invalid for p in measured] == [None] * 6
    for rows in arrivals(tmp_path).values():
        starts = sorted(due + waited for _, due, waited, _ in rows)
        ends = sorted(end for _, _, _, end in rows)
        assert all(start >= end for start, end in zip(starts[2:], ends, strict=False))
        assert rows[-1][2] > max(end - due - waited for _, due, waited, end in rows)
    waits = [1e3 * max(waited for _, _, waited, _ in rows) for rows in arrivals(tmp_path).values()]
    assert max(p.client_lag_ms for p in measured) < max(waits)


@pytest.mark.parametrize("rate", [None, 40.0])
def test_every_turn_of_a_conversation_is_a_request(tmp_path: Path, rate: float | None) -> None:
    """Client and server agree about them, no turn finds the one before in the prefix cache; in the
    open loop, too, where the first turn alone has an arrival."""
    spec = study(tmp_path, Level(concurrency=2, request_rate=rate), conversations)
    measured = live_passes(spec, tmp_path)
    assert [p.invalid for p in measured] == [None] * 6
    blocks = {p.block: spec.workload.block("search", 2, p.block) for p in measured}
    assert all(p.requests == sum(x.requests for x in blocks[p.block]) for p in measured)
    assert {p.requests for p in measured} != {8}
    assert {p.prefix_hit_rate for p in measured} == {0.0}
    found = samples.read(next(StudyPaths(root=tmp_path, name="s").launches.glob("*/")))
    assert len(found) == sum(p.requests for p in measured)
    assert set(found["prompt_id"].str.contains("#")) == {True, False}


def test_an_adapter_is_served_by_its_name(tmp_path: Path) -> None:
    """Requests that name it are answered, all others are not at stake."""
    spec = study(tmp_path)
    args: dict[str, JSON] = {"enable-lora": True, "lora-modules": ["sql=/adapters/sql"]}
    spec = replace(
        spec,
        workload=replace(spec.workload, lora="sql"),
        target=replace(spec.target, engine_args=args),
    )
    assert {p.invalid for p in live_passes(spec, tmp_path)} == {None}
