"""What a workload may ask for, on a real vLLM: turns, JSON, an adapter, arrivals at a rate.

One server with n-gram drafts answers all of it: what the simulated engine only acts, a real
grammar, a real adapter and a real queue must do.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from autotune.core.jsontype import JSON
from autotune.core.workload import Prompt, Workload
from autotune.ports import Arrivals, LoadGenerator, LoadResult, Request, Server, find
from tests.live.real import NEEDS, demo, draft, serving

pytestmark = NEEDS
NGRAM = draft("ngram", "ngram", None, prompt_lookup_min=1, prompt_lookup_max=3)
RANK, HIDDEN = 8, 576
PROJECTION = "base_model.model.model.layers.0.self_attn.q_proj"
SCHEMA: dict[str, JSON] = {
    "type": "json_schema",
    "json_schema": {
        "name": "answer",
        "schema": {
            "type": "object",
            "properties": {"yes": {"type": "boolean"}},
            "required": ["yes"],
            "additionalProperties": False,
        },
    },
}


def make_adapter(folder: Path) -> Path:
    """A LoRA adapter of one projection, random and large: what it says is not what others say."""
    folder.mkdir()
    dice = np.random.default_rng(0)
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": 64, "target_modules": ["q_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    shapes = {"lora_A": (RANK, HIDDEN), "lora_B": (HIDDEN, RANK)}
    tensors = {
        f"{PROJECTION}.{name}.weight": dice.normal(0, 1, shape).astype(np.float32)
        for name, shape in shapes.items()
    }
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The demo's target with n-gram drafts and an adapter."""
    folder = tmp_path_factory.mktemp("workloads")
    adapter = make_adapter(folder / "adapter")
    modules: list[JSON] = [f"loud={adapter}"]
    with serving(
        folder / "launch", NGRAM, 2, live=True, enable_lora=True, lora_modules=modules
    ) as found:
        yield found


def send(
    server: Server, workload: Workload, *prompts: Prompt, rate: float | None = None
) -> LoadResult:
    """One pass at K = 2; every reply must have come."""
    generator: LoadGenerator = find("loadgens", "closed_loop" if rate is None else "open_loop")
    xargs = {"num_speculative_tokens": 2}
    requests = [Request(prompt=p, cache_salt=p.id, xargs=xargs) for p in prompts]
    arrivals = None if rate is None else Arrivals(request_rate=rate, seed="live")
    result = generator.run(server, workload, requests, 4, arrivals)
    server.wait_drained()
    assert [s.error for s in result.samples] == [None] * len(result.samples)
    return result


def some_prompts(count: int) -> list[Prompt]:
    """Short prompts of the demo."""
    return [p for p in demo().workload.search if len(str(p.messages)) < 400][:count]


def test_a_conversation_is_sent_turn_by_turn(server: Server) -> None:
    """The second request carries the first question, the reply to it, and the next question."""
    turns = replace(some_prompts(1)[0], later_turns=("And in one word?",))
    first, second = send(server, replace(demo().workload, max_tokens=12), turns).samples
    assert second.sent_s >= first.end_s
    assert second.prompt_tokens > first.prompt_tokens + first.output_tokens


def test_replies_are_json_where_the_workload_wants_it(server: Server) -> None:
    """The engine's grammar holds under speculation, too."""
    asked = replace(demo().workload, max_tokens=32, response_format=SCHEMA)
    for sample in send(server, asked, *some_prompts(2)).samples:
        assert set(json.loads(sample.json_text or "")) == {"yes"}


def test_the_adapter_answers_and_not_the_target(server: Server) -> None:
    """Requests that name the adapter get other replies than those that name the target."""
    short = replace(demo().workload, max_tokens=12)
    prompts = some_prompts(2)
    target, adapted = (
        [s.text for s in send(server, workload, *prompts).samples]
        for workload in (short, replace(short, lora="loud"))
    )
    assert all(one != other for one, other in zip(target, adapted, strict=True))


def test_requests_come_at_their_rate(server: Server) -> None:
    """Arrivals do not wait for replies: requests overlap, and each says when it was to arrive."""
    result = send(server, replace(demo().workload, max_tokens=16), *some_prompts(6), rate=4.0)
    sent = [s.sent_s for s in result.samples]
    assert sent == sorted(sent)
    overlap = [
        later.sent_s < earlier.end_s
        for earlier, later in zip(result.samples, result.samples[1:], strict=False)
    ]
    assert any(overlap)
    assert all(s.output_tokens > 0 for s in result.samples)
