"""The simulated engine answers, drafts and counts as vLLM does, and as its world says.

Rule: expectations come from vLLM's behaviour or from the world file, with sampling error where
draws are compared; nothing looks inside the child.
"""

import json
import math
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path

import pytest

from tests.simulated.child import EAGLE, LIVE, NGRAM, PROFILE, Child, Json, serving, world


def test_has_the_counters_of_speculation_only_with_speculation(tmp_path: Path) -> None:
    """The metrics parse as Prometheus text, and a baseline has no spec_decode family."""
    with serving(tmp_path) as child:
        child.complete(max_tokens=10, ignore_eos=True)
        found = child.metrics()
    assert not [name for name in found if "spec_decode" in name]
    assert found["generation_tokens_total"] == 10
    assert found["prompt_tokens_total"] == 3
    assert found["request_success_total:length"] == 1
    assert found["num_requests_running"] == found["num_requests_waiting"] == 0
    assert found["time_to_first_token_seconds_count"] == 1
    assert found["generation_tokens_created"] > time.time() - 60


def test_counters_agree_with_the_profile(tmp_path: Path) -> None:
    """Per-position acceptance is the world's, within sampling error; every draft has K tokens."""
    with serving(tmp_path, spec=EAGLE) as child:
        child.many(32, ignore_eos=True, max_tokens=300)
        found = child.metrics()
        drafts, drafted, accepted = child.spec()
    assert drafted == 4 * drafts
    positions = [found[f"spec_decode_num_accepted_tokens_per_pos_total:{i}"] for i in range(4)]
    assert sum(positions) == accepted
    for count, rate in zip(positions, PROFILE, strict=True):
        error = 4 * math.sqrt(rate * (1 - rate) / drafts)
        assert count / drafts == pytest.approx(rate, abs=error)


def test_takes_another_k_for_each_request_and_writes_it_down(tmp_path: Path) -> None:
    """With a scheduler class, drafted / drafts and the file show the K that requests asked for."""
    with serving(tmp_path, *LIVE, spec=EAGLE) as child:
        for k in (2, 0, 4, None):
            before, lines = child.spec(), len(child.live_k)
            extra = {} if k is None else {"vllm_xargs": {"num_speculative_tokens": k}}
            child.complete(f"prompt {k}", **extra)
            drafts, drafted, _ = (b - a for a, b in zip(before, child.spec(), strict=True))
            wanted = 4 if k is None else k
            assert set(child.live_k[lines:]) == {wanted}
            assert drafted == wanted * drafts
            assert (drafts == 0) == (wanted == 0)


def test_takes_the_smallest_k_of_those_that_run(tmp_path: Path) -> None:
    """A request with a smaller K slows its neighbour down while they share steps, no longer."""
    slow = world(time_scale=0.1)
    with serving(tmp_path, *LIVE, settings=slow, spec=EAGLE) as child:
        with ThreadPoolExecutor(1) as pool:
            extra = {"num_speculative_tokens": 3}
            pool.submit(child.complete, ignore_eos=True, max_tokens=1500, vllm_xargs=extra)
            while len(child.live_k) < 10:
                time.sleep(0.01)
            child.complete(ignore_eos=True, max_tokens=50, vllm_xargs={"num_speculative_tokens": 1})
        assert [k for k, _ in groupby(child.live_k)] == [3, 1, 3]


def test_ignores_k_in_requests_without_a_scheduler_class(tmp_path: Path) -> None:
    """The stock scheduler drafts K_max whatever the request carries."""
    with serving(tmp_path, spec=EAGLE) as child:
        child.complete(vllm_xargs={"num_speculative_tokens": 1})
        drafts, drafted, _ = child.spec()
    assert drafted == 4 * drafts
    assert child.live_k == []


def test_follows_a_schedule_of_k_per_batch_size(tmp_path: Path) -> None:
    """num_speculative_tokens_per_batch_size decides K by the number of running requests."""
    schedule = [[1, 1, 3], [2, 64, 0]]
    spec = {**EAGLE, "num_speculative_tokens_per_batch_size": schedule}
    with serving(tmp_path, settings=world(time_scale=0.1), spec=spec) as child:
        child.complete(ignore_eos=True, max_tokens=300)
        alone = child.spec()
        child.many(2, at_once=2, ignore_eos=True, max_tokens=300)
        together = child.spec()
    assert alone[1] == 3 * alone[0] > 0
    assert together[0] - alone[0] < alone[0]


def test_lookups_draft_when_they_find_something(tmp_path: Path) -> None:
    """n-gram drafts in a share of the steps, and sometimes fewer than K tokens."""
    drafts = {"ngram": {"acceptance": [0.5, 0.3], "coverage": 0.4, "short": 0.5}}
    with serving(tmp_path, *LIVE, settings=world(drafts=drafts), spec=NGRAM) as child:
        child.many(8, at_once=1, ignore_eos=True, max_tokens=300)
        found, steps = child.spec(), len(child.live_k) - 8
    assert found[0] / steps == pytest.approx(0.4, abs=4 * math.sqrt(0.24 / steps))
    assert 2.0 < found[1] / found[0] < 4.0


def test_the_target_as_its_own_draft_is_nearly_always_right(tmp_path: Path) -> None:
    """The oracle of live tests holds here, too."""
    spec = {"method": "draft_model", "model": "/models/t", "num_speculative_tokens": 3}
    with serving(tmp_path, spec=spec) as child:
        child.many(8, ignore_eos=True)
        _, drafted, accepted = child.spec()
    assert accepted / drafted > 0.97


def _tokens_per_second(child: Child, k: int) -> float:
    before = time.monotonic()
    child.complete(ignore_eos=True, max_tokens=400, vllm_xargs={"num_speculative_tokens": k})
    return 400 / (time.monotonic() - before)


def test_is_as_fast_as_the_model_says(tmp_path: Path) -> None:
    """Tokens per second at each K follow the step times and the profile, so they rank alike."""
    measured, expected = {}, {}
    with serving(tmp_path, *LIVE, settings=world(time_scale=0.05), spec=EAGLE) as child:
        for k in (0, 1, 2, 4):
            step_s = 0.02 + 0.0003 + 0.0002 * k + 0.002 * max(k, 1)
            expected[k] = (1 + sum(PROFILE[:k])) / (step_s * 0.05)
            rates: list[float] = []
            # As often as it takes: another process may have the CPU meanwhile.
            while len(rates) < 2 or (max(rates) < 0.9 * expected[k] and len(rates) < 12):
                rates.append(_tokens_per_second(child, k))
            measured[k] = max(rates)
    assert measured[0] < measured[1] < measured[2]
    for k, rate in measured.items():
        assert rate == pytest.approx(expected[k], rel=0.2)


def test_greedy_text_depends_on_the_prompt_alone_but_for_speculation(tmp_path: Path) -> None:
    """K = 1 and K = 4 agree; without speculation some replies part ways after a while."""
    texts = {}
    with serving(tmp_path, *LIVE, spec=EAGLE) as child:
        for k in (0, 1, 4):
            answers = child.many(12, vllm_xargs={"num_speculative_tokens": k})
            texts[k] = [answer["choices"][0]["text"] for answer in answers]
        sampled = {child.complete(temperature=0.7)["choices"][0]["text"] for _ in range(3)}
    assert texts[1] == texts[4]
    same = sum(a == b for a, b in zip(texts[0], texts[4], strict=True))
    assert 0 < same < 12
    assert all(a.split()[:10] == b.split()[:10] for a, b in zip(texts[0], texts[4], strict=True))
    assert len(sampled) == 3


def test_usage_tells_the_tokens_of_every_chunk(tmp_path: Path) -> None:
    """Usage rises with each step's words; the end-of-sequence token counts and has no text."""
    with serving(tmp_path, spec=EAGLE) as child:
        role, *pieces, last = child.stream()
        whole = child.complete()
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    so_far = 0
    for piece in pieces:
        so_far += len(piece["choices"][0]["delta"]["content"].split())
        stopped = piece["choices"][0]["finish_reason"] == "stop"
        assert piece["usage"]["completion_tokens"] == so_far + stopped
    assert pieces[-1]["choices"][0]["finish_reason"] == "stop"
    assert len(pieces) < so_far
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], so_far + 1)
    words = len(whole["choices"][0]["text"].split())
    assert 40 <= words <= 160
    assert whole["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": words + 1,
        "total_tokens": words + 4,
    }


def test_ends_at_the_limit_that_comes_first(tmp_path: Path) -> None:
    """max_tokens, and the context, end a reply with `length`, trimmed drafts and no token more."""
    with serving(tmp_path, "--max-model-len", "64", spec=EAGLE) as child:
        for limit, tokens in ((20, 20), (64, 61)):
            answer = child.complete(ignore_eos=True, max_tokens=limit)
            assert answer["choices"][0]["finish_reason"] == "length"
            assert answer["usage"]["completion_tokens"] == tokens
        drafts, drafted, _ = child.spec()
    assert drafted < 4 * drafts


def test_refuses_in_the_words_of_vllm(tmp_path: Path) -> None:
    """A wrong request gets vLLM's status, error type and message, and costs nothing."""
    wrong: list[tuple[Json | bytes, int, str, str]] = [
        ({"model": "x", "prompt": "a"}, 404, "NotFoundError", "The model `x` does not exist."),
        ({"prompt": "a " * 200}, 400, "BadRequestError", "maximum context length is 128 tokens"),
        ({"prompt": "a", "max_tokens": 999}, 400, "BadRequestError", "max_tokens=999"),
        ({"model": "m"}, 400, "BadRequestError", "prompt"),
        (b"{", 400, "BadRequestError", "JSON decode error"),
    ]
    with serving(tmp_path, "--max-model-len", "128") as child:
        for body, status, kind, words in wrong:
            got, answer = child.request("/v1/completions", body)
            error = json.loads(answer)["error"]
            assert (got, error["code"], error["type"]) == (status, status, kind)
            assert words in error["message"]
        assert child.metrics()["prompt_tokens_total"] == 0


def test_remembers_prefixes_by_salt(tmp_path: Path) -> None:
    """A repeated prompt hits the prefix cache, one with another cache_salt does not."""
    prompt = " ".join(f"w{i}" for i in range(100))
    hits = []
    with serving(tmp_path) as child:
        for salt in ("a", "a", "b"):
            child.complete(prompt, cache_salt=salt, max_tokens=1)
            hits.append(child.metrics()["prefix_cache_hits_total"])
        queries = child.metrics()["prefix_cache_queries_total"]
    assert hits == [0, 96, 96]
    assert queries == 300
