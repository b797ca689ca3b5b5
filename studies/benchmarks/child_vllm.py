"""The client of `vllm bench serve`: its `benchmark()` with the `openai-chat` backend.

Its best settings for the same job: no tokenizer (tokens come from the server's usage), no progress
bar, no request rate, a frozen heap as its own main() has it, and only the final usage asked for.
"""

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Any

import uvloop
import vllm
from bench_child import Meter, Outcome, Task
from vllm.benchmarks.datasets import SampleRequest
from vllm.benchmarks.serve import TaskType, benchmark
from vllm.utils.gc_utils import freeze_gc_heap


def main() -> None:
    """Warm up, then measure one benchmark."""
    task = Task.take()
    texts = task.prompts()
    if task.uvloop:
        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        _benchmark(task, texts[: task.warmup])
        freeze_gc_heap()
        meter = Meter(task)
        result = _benchmark(task, texts)
        reading = meter.read()
    Outcome(
        reading=reading,
        version=vllm.__version__,
        tokens=result["total_output_tokens"],
        # Its TTFT is the time of the role's chunk; an interval belongs to each chunk after that.
        chunks=sum(len(intervals) for intervals in result["itls"]),
        faults=[error for error in result["errors"] if error],
    ).give()


def _benchmark(task: Task, texts: list[str]) -> dict[str, Any]:
    requests = [
        SampleRequest(prompt=text, prompt_len=1, expected_output_len=task.tokens) for text in texts
    ]
    arguments: dict[str, Any] = {
        "task_type": TaskType.GENERATION,
        "endpoint_type": "openai-chat",
        "api_url": f"{task.base_url}/v1/chat/completions",
        "base_url": task.base_url,
        "model_id": task.model,
        "model_name": task.model,
        "tokenizer": None,
        "input_requests": requests,
        "logprobs": None,
        "request_rate": float("inf"),
        "burstiness": 1.0,
        "disable_tqdm": True,
        "num_warmups": 0,
        "profile": False,
        "selected_percentile_metrics": ["ttft", "tpot", "itl"],
        "selected_percentiles": [99.0],
        "ignore_eos": True,
        "goodput_config_dict": {},
        "max_concurrency": task.streams,
        "lora_modules": None,
        "extra_headers": None,
        "extra_body": {"temperature": 0.0},
        "ready_check_timeout_sec": 0,
    }
    return dict(asyncio.run(benchmark(**arguments)))


if __name__ == "__main__":
    main()
