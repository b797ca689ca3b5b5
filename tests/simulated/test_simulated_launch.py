"""The life of a simulated launch: flags, log, memory, clients that come and go, its end."""

import contextlib
import http.client
import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from tests.simulated.child import (
    EAGLE,
    NGRAM,
    Json,
    launched,
    serving,
    world,
)


def test_kv_cache_grows_with_memory_and_shrinks_with_a_draft(tmp_path: Path) -> None:
    """Capacity is linear in gpu_memory_utilization; a draft takes its part."""
    sizes = []
    for utilization, spec in ((0.5, None), (0.7, None), (0.9, None), (0.9, EAGLE)):
        flags = ("--gpu-memory-utilization", str(utilization))
        with serving(tmp_path, *flags, spec=spec) as child:
            line = next(row for row in child.log.splitlines() if "KV cache size:" in row)
            sizes.append(int(line.split("size: ")[1].split(" tokens")[0].replace(",", "")))
    assert sizes[2] - sizes[1] == pytest.approx(sizes[1] - sizes[0], abs=32)
    assert sizes[2] > sizes[1]
    assert sizes[3] < sizes[2]


@pytest.mark.parametrize(
    ("flags", "sign"),
    [
        (("--gpu-memory-utilization", "0.1"), "No available memory for the cache blocks."),
        (("--gpu-memory-utilization", "0.99"), "is less than desired GPU memory utilization"),
        (("--max-model-len", "500000"), "estimated maximum model length is"),
    ],
)
def test_memory_that_does_not_suffice_ends_a_start(
    tmp_path: Path, flags: Sequence[str], sign: str
) -> None:
    """Too little and too much memory fail without any fault, in vLLM's words."""
    with launched(tmp_path, *flags) as child:
        assert child.process.wait(10) == 1
    assert sign in child.log


def test_preempts_when_the_cache_is_full_and_queues_beyond_max_num_seqs(tmp_path: Path) -> None:
    """Too many long replies are preempted and finish all the same; the rest waits."""
    memory = {"total_gib": 4.0, "free_gib": 4.0, "target_gib": 3.0, "overhead_gib": 0.5}
    small = world(time_scale=0.05, memory={**memory, "kv_gib_per_1k_tokens": 0.1})
    flags = ("--max-model-len", "600", "--max-num-seqs", "3")
    with serving(tmp_path, *flags, settings=small) as child, ThreadPoolExecutor(1) as pool:
        load = pool.submit(child.many, 8, at_once=8, ignore_eos=True, max_tokens=400)
        running, waiting, usage = 0.0, 0.0, 0.0
        while not load.done():
            found = child.metrics()
            running = max(running, found["num_requests_running"])
            waiting = max(waiting, found["num_requests_waiting"])
            usage = max(usage, found["kv_cache_usage_perc"])
        answers = load.result()
        preemptions = child.metrics()["num_preemptions_total"]
    assert {answer["usage"]["completion_tokens"] for answer in answers} == {400}
    assert preemptions > 0
    assert running == 3
    assert waiting >= 5
    assert 0.8 < usage <= 1.0


def test_equal_launches_differ_and_are_numbered(tmp_path: Path) -> None:
    """A launch's speed has a factor of its own, drawn anew for each launch of a world."""
    rates = []
    noisy = world(time_scale=0.02, noise={"launch_sigma": 0.5, "step_sigma": 0.0})
    for _ in range(3):
        with serving(tmp_path, settings=noisy) as child:
            before = time.monotonic()
            child.complete(ignore_eos=True, max_tokens=200)
            rates.append(200 / (time.monotonic() - before))
    assert max(rates) / min(rates) > 1.1
    assert (tmp_path / "world.yaml.launches").read_bytes() == b"..."


def test_reads_vllm_flags_in_every_spelling(tmp_path: Path) -> None:
    """--config YAML with dashes, underscores and nested values is the same as flags."""
    config = {
        "max_model_len": 512,
        "gpu-memory-utilization": 0.5,
        "enforce_eager": True,
        "enable_prefix_caching": False,
        "speculative_config": EAGLE,
        "dtype": "bfloat16",
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    flags = ("--config", str(tmp_path / "config.yaml"), "--max_num_seqs=2", "--seed", "0")
    with serving(tmp_path, *flags) as child:
        child.complete()
        assert child.spec()[0] > 0
    for line in ("'max_model_len': 512", "'max_num_seqs': 2", "num_spec_tokens=4"):
        assert line in child.log


@pytest.mark.parametrize(
    ("flags", "settings", "code", "sign"),
    [
        (("--no-such-flag",), world(), 2, "unrecognized arguments: --no-such-flag"),
        (("--speculative-config", "{"), world(), 2, "cannot be converted to <function loads>"),
        (("--speculative-config", '{"k": 1}'), world(), 1, "Unexpected keyword argument"),
        ((), world(speed=3), 2, "unknown speed"),
        ((), world(step={"t_base": "fast"}), 2, "step.t_base: expected a number"),
        ((), world(faults=[{"what": "flood"}]), 2, "unknown fault 'flood'"),
        ((), world(drafts={"d": {"acceptance": [0.2, 0.4]}}), 2, "acceptance must fall"),
    ],
)
def test_refuses_what_it_does_not_know(
    tmp_path: Path, flags: Sequence[str], settings: Json, code: int, sign: str
) -> None:
    """Unknown flags and world keys end it with 2, a wrong speculative config with 1."""
    with launched(tmp_path, *flags, settings=settings) as child:
        assert child.process.wait(10) == code
    assert sign in child.log


def test_ends_quickly_in_the_middle_of_a_reply(tmp_path: Path) -> None:
    """SIGTERM under load is answered within a second or two, with 0."""
    settings = world(time_scale=1.0, startup_s=0.0)
    with serving(tmp_path, settings=settings) as child, ThreadPoolExecutor(1) as pool:
        reply = pool.submit(child.stream, ignore_eos=True, max_tokens=3000)
        while not child.metrics()["num_requests_running"]:
            time.sleep(0.02)
        before = time.monotonic()
        assert child.end() == 0
        assert time.monotonic() - before < 3
        assert reply.result()[-1]["error"]["code"] == 500


def test_a_client_that_leaves_is_forgotten(tmp_path: Path) -> None:
    """An abandoned stream is aborted, and the server drains."""
    with serving(tmp_path, settings=world(time_scale=1.0, startup_s=0.0)) as child:
        connection = http.client.HTTPConnection("127.0.0.1", child.port, timeout=5)
        body = {"prompt": "a", "stream": True, "ignore_eos": True, "max_tokens": 3000}
        with contextlib.closing(connection):
            connection.request("POST", "/v1/completions", body=json.dumps(body).encode())
            connection.getresponse().close()
        deadline = time.monotonic() + 5
        while child.metrics()["num_requests_running"] and time.monotonic() < deadline:
            time.sleep(0.02)
        found = child.metrics()
    assert found["num_requests_running"] == 0
    assert found["request_success_total:abort"] == 1


def test_says_what_vllm_says_at_start_and_at_the_end(tmp_path: Path) -> None:
    """The lines that the tuner reads stand in the log, and SIGTERM ends it with 0."""
    with serving(tmp_path, "--max-model-len", "2048", spec=NGRAM) as child:
        assert json.loads(child.request("/version")[1]) == {"version": "0.32.0+simulated"}
        (card,) = json.loads(child.request("/v1/models")[1])["data"]
        assert (card["id"], card["root"], card["max_model_len"]) == ("m", "/models/t", 2048)
        assert child.end() == 0
    for line in (
        "non-default args: {'model': '/models/t', 'served_model_name': ['m'], ",
        "Initializing a V1 LLM engine (v0.32.0) with config: model='/models/t', ",
        "speculative_config=SpeculativeConfig(method='ngram', model=None, num_spec_tokens=4), ",
        "GPU KV cache size: ",
        "INFO:     Application startup complete.",
        "[shutdown] EngineCore: trigger received signal=SIGTERM",
    ):
        assert line in child.log
