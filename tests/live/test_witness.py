"""The witness: autotune's load generator and vLLM's own benchmark client measure the same.

Laws: the same prompts, in the same order, to the same server, turn by turn; each client tells its
own figures, and both must have got the same tokens. Only ratios within a round are judged, where
both met the same machine, and who is first changes from round to round (A B, B A, ...), so that a
machine that gets slower or faster favours neither. How many rounds there are depends on the clock
alone, never on what they gave. Run with -s to see the figures.
"""

import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from bench_child import Task
from child_autotune import PaceServer
from pace_server import MODEL

from autotune.core.jsontype import JSON
from autotune.core.latency import pooled_latencies, request_times
from autotune.core.statistics import mean_of
from autotune.core.workload import Prompt
from autotune.ports import LoadGenerator, Request, Server, find
from tests.live.real import MODELS, NEEDS, ROOT, demo, serving

pytestmark = [*NEEDS, pytest.mark.witness]

BENCHMARKS = ROOT / "studies" / "benchmarks"
THROUGHPUT, TTFT = "output throughput", "median TTFT"
FIGURES = (THROUGHPUT, TTFT)

TOLERANCE = {THROUGHPUT: 0.03, TTFT: 0.05}
"""On a real engine, on whose cores the clients run: a client that costs less is served faster."""
TELLING = 0.15
"""An interval of which half is wider than this, a fraction, says nothing of the clients."""
REQUESTS = {1: 4, 4: 12}
"""Of one pass, by concurrency."""
LENGTHS = (12, 8, 16, 10, 14)
"""Output tokens of the prompts, in turn. With one length the streams go in lockstep, and then TTFT
is a matter of which request of a wave the engine sees first: of the server, not of the client."""

PACE_TOLERANCE = 0.03
PACE_TTFT_MS = 300.0
PACE_RATE = 50.0
PACE_TOKENS = 16
PACE_STREAMS, PACE_REQUESTS = 4, 20


class Rounds(NamedTuple):
    """How many rounds: at least, and at most as far as the time goes."""

    least: int
    most: int
    within_s: float


ROUNDS, PACE_ROUNDS, WARM_UP = Rounds(4, 10, 25.0), Rounds(5, 5, 0.0), Rounds(1, 1, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What both clients do."""

    server: Server
    prompts: Sequence[Prompt]
    """Each with the tokens of its reply."""
    concurrency: int

    @property
    def tokens(self) -> list[int]:
        """Output tokens, prompt by prompt."""
        return [prompt.max_tokens or 0 for prompt in self.prompts]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a client says of one pass."""

    prompt_tokens: int
    output_tokens: int
    figures: dict[str, float]
    """Tokens per second and milliseconds."""


Client = Callable[[Job], Told]
Pair = tuple[Told, Told]
"""Autotune's and vLLM's."""


def autotune(job: Job) -> Told:
    """A pass of the tuner's closed loop, with the figures that a study would have."""
    generator: LoadGenerator = find("loadgens", "closed_loop")
    workload = replace(demo().workload, max_tokens=max(job.tokens), ignore_eos=True)
    requests = [Request(prompt=prompt, cache_salt="") for prompt in job.prompts]
    result = generator.run(job.server, workload, requests, job.concurrency)
    assert [s.error for s in result.samples if s.error] == []
    latencies = pooled_latencies([request_times(result.samples)])
    assert latencies is not None
    tokens = sum(s.output_tokens for s in result.samples)
    return Told(
        prompt_tokens=sum(s.prompt_tokens for s in result.samples),
        output_tokens=tokens,
        figures={THROUGHPUT: tokens / result.duration_s, TTFT: latencies.median_ttft_ms},
    )


@dataclass(frozen=True, slots=True)
class VllmBench:
    """vLLM's client, in a process of its own that has done its imports."""

    process: "subprocess.Popen[str]"
    folder: Path

    def __call__(self, job: Job) -> Told:
        """`vllm bench serve` with the job's prompts as a custom dataset."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(self._argv(job)), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        assert answer, (self.folder / "bench.log").read_text()[-3000:]
        told: dict[str, Any] = json.loads(answer)
        assert (told["completed"], told["failed"]) == (len(job.prompts), 0)
        return Told(
            prompt_tokens=told["total_input_tokens"],
            output_tokens=told["total_output_tokens"],
            figures={THROUGHPUT: told["output_throughput"], TTFT: told["median_ttft_ms"]},
        )

    def _argv(self, job: Job) -> list[str]:
        dataset = self.folder / "prompts.jsonl"
        rows = [
            json.dumps({"prompt": prompt.messages[0]["content"], "output_tokens": tokens})
            for prompt, tokens in zip(job.prompts, job.tokens, strict=True)
        ]
        dataset.write_text("\n".join(rows) + "\n", encoding="utf-8")
        return [
            "--backend=openai-chat",
            "--endpoint=/v1/chat/completions",
            f"--base-url={job.server.base_url}",
            f"--model={job.server.model}",
            f"--tokenizer={MODELS / 'target'}",
            "--dataset-name=custom",
            f"--dataset-path={dataset}",
            "--skip-chat-template",  # the server applies it
            "--disable-shuffle",
            f"--num-prompts={len(job.prompts)}",
            "--custom-output-len=-1",  # as the dataset has it
            f"--max-concurrency={job.concurrency}",
            "--ignore-eos",
            "--temperature=0",
            "--disable-tqdm",
        ]


@pytest.fixture(scope="module")
def vllm_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """vLLM's client; it imports while the server starts."""
    folder = tmp_path_factory.mktemp("bench")
    command = [sys.executable, str(BENCHMARKS / "child_witness.py")]
    with (
        (folder / "bench.log").open("w") as log,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=os.environ | {"NO_PROXY": "*"},
        ) as process,
    ):
        yield VllmBench(process, folder)


@pytest.fixture(scope="module")
def measured(vllm_bench: Client, tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Pair]]:
    """By concurrency, the rounds on a real vLLM: plain decoding, no prefix cache.

    In float32, because a CPU without bfloat16 needs a minute for what else is a second.
    """
    folder = tmp_path_factory.mktemp("witness")
    plainly: dict[str, JSON] = {"enable_prefix_caching": False, "dtype": "float32"}
    with serving(folder, None, 0, live=False, **plainly) as server:
        jobs = [
            Job(server=server, prompts=short(count), concurrency=concurrency)
            for concurrency, count in REQUESTS.items()
        ]
        for job in jobs:
            in_turn(replace(job, prompts=short(job.concurrency)), vllm_bench, WARM_UP)
        pairs = {job.concurrency: in_turn(job, vllm_bench, ROUNDS) for job in jobs}
        assert not server.counters().prefix_hits
    return pairs


def short(count: int) -> list[Prompt]:
    """Short prompts of the demo that vLLM's custom dataset can say: one message of the user."""
    said = [p for p in demo().workload.search if len(p.messages) == 1 and not p.later_turns]
    shortest = sorted(said, key=lambda p: len(str(p.messages)))[:count]
    lengths = itertools.cycle(LENGTHS)
    return [replace(p, max_tokens=n) for p, n in zip(shortest, lengths, strict=False)]


def in_turn(job: Job, other: Client, rounds: Rounds) -> list[Pair]:
    """Both clients' figures, round by round, shown as they come."""
    pairs: list[Pair] = []
    began = time.monotonic()
    while len(pairs) < rounds.least or (
        len(pairs) < rounds.most and time.monotonic() - began < rounds.within_s
    ):
        pair = one_round(job, other, swapped=len(pairs) % 2 == 1)
        pairs.append(pair)
        assert [told.output_tokens for told in pair] == [sum(job.tokens)] * 2
        assert pair[0].prompt_tokens == pair[1].prompt_tokens
        for figure in FIGURES:
            one, two = (told.figures[figure] for told in pair)
            show(f"{job.concurrency} streams, {figure}: autotune {one:.2f}, vLLM {two:.2f}")
    return pairs


def one_round(job: Job, other: Client, *, swapped: bool) -> Pair:
    """What autotune says and what the other says, asked in the other order if swapped."""
    if swapped:
        theirs = other(job)
        return autotune(job), theirs
    return autotune(job), other(job)


def log_ratios(pairs: Sequence[Pair], figure: str) -> list[float]:
    """The logarithm of autotune's figure over vLLM's, round by round."""
    return [math.log(ours.figures[figure] / theirs.figures[figure]) for ours, theirs in pairs]


def show(line: str) -> None:
    """For whoever runs this with -s, or after a failure."""
    sys.stdout.write(f"\n{line}")
    sys.stdout.flush()


@pytest.mark.parametrize("concurrency", REQUESTS)
@pytest.mark.parametrize("figure", FIGURES)
def test_both_clients_measure_the_same_on_a_real_engine(
    measured: dict[int, list[Pair]], concurrency: int, figure: str
) -> None:
    """No interval shows a difference above the tolerance, and none is too wide to show one."""
    ratio = mean_of(log_ratios(measured[concurrency], figure)).interval()
    show(f"{concurrency} streams, {figure}: autotune / vLLM {ratio}")
    tolerance = TOLERANCE[figure]
    assert ratio.low <= 1 + tolerance
    assert ratio.high >= 1 - tolerance
    if ratio.half_width > TELLING and abs(ratio.mean - 1) > tolerance:
        pytest.skip(f"the machine is too restless to tell: {ratio}")


def test_both_clients_measure_the_same_at_a_fixed_pace(vllm_bench: Client) -> None:
    """Of a server that keeps a known TTFT and rate, both say within 3 % the same, and that."""
    said = [
        Prompt(
            id=f"{n}",
            messages=({"role": "user", "content": f"Say {n}"},),
            max_tokens=PACE_TOKENS,
        )
        for n in range(PACE_REQUESTS)
    ]
    reply_s = PACE_TTFT_MS / 1e3 + (PACE_TOKENS - 1) / PACE_RATE
    known = {THROUGHPUT: PACE_STREAMS * PACE_TOKENS / reply_s, TTFT: PACE_TTFT_MS}
    with pace() as server:
        job = Job(server=server, prompts=said, concurrency=PACE_STREAMS)
        vllm_bench(replace(job, prompts=said[:PACE_STREAMS]))
        pairs = in_turn(job, vllm_bench, PACE_ROUNDS)
    for figure in FIGURES:
        ratio = math.exp(statistics.median(log_ratios(pairs, figure)))
        ours = statistics.median(told.figures[figure] for told, _ in pairs) / known[figure]
        show(f"fixed pace, {figure}: autotune / vLLM {ratio:.4f}, autotune / known {ours:.4f}")
        assert ratio == pytest.approx(1, abs=PACE_TOLERANCE), figure
        assert ours == pytest.approx(1, abs=PACE_TOLERANCE), figure


@contextmanager
def pace() -> Iterator[Server]:
    """The server of the client benchmark, with a TTFT of which 3 % are longer than any client's."""
    command = [
        sys.executable,
        str(BENCHMARKS / "pace_server.py"),
        f"--rate={PACE_RATE}",
        f"--ttft-ms={PACE_TTFT_MS}",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            port = process.stdout.readline().strip() if process.stdout else ""
            yield PaceServer(
                Task(
                    base_url=f"http://127.0.0.1:{port}",
                    model=MODEL,
                    server_pid=process.pid,
                    cpu=0,
                    streams=PACE_STREAMS,
                    requests=0,
                    warmup=0,
                    tokens=PACE_TOKENS,
                )
            )
        finally:
            process.kill()
