"""Fake studies for tests: plausible values, no engine, the same on every machine.

Throughputs follow from a table plus a small seeded scatter that all arms of a block share, so the
block ratios are tight and the levels are not.
"""

import math
import random
from collections.abc import Mapping, Sequence

from autotune.core.acceptance import SpecCounters
from autotune.core.latency import RequestTimes
from autotune.core.study import Candidate, Objective, Search, StudySpec, Target
from autotune.core.trial import (
    BASELINE,
    Cause,
    EngineFacts,
    Failure,
    Measurement,
    Outcome,
    Pass,
    Record,
    Stage,
    Trial,
)
from autotune.core.workload import Level, Prompt, Sampling, Workload

GMU = 0.4
OUTPUT_TOKENS = 64

PROFILES: dict[str, tuple[float, ...]] = {
    "eagle": (0.70, 0.48, 0.33, 0.22, 0.15),
    "draft-4l": (0.62, 0.41, 0.26, 0.16, 0.10),
    "ngram": (0.31, 0.22, 0.16, 0.11, 0.08),
}
"""Unconditional acceptance by position."""

BASE = {1: 33.0, 4: 124.0}
"""Baseline output tokens per second by concurrency."""


def make_prompts(split: str, count: int) -> tuple[Prompt, ...]:
    """Short prompts with stable ids."""
    return tuple(
        Prompt(
            id=f"{split}-{i:03d}",
            messages=({"role": "user", "content": f"Question {i} of the {split} split?"},),
            task=("chat", "code", "summary")[i % 3],
        )
        for i in range(count)
    )


def make_workload(
    *,
    concurrencies: Mapping[int, float] | None = None,
    prompts: int = 48,
    max_tokens: int = OUTPUT_TOKENS,
    temperature: float = 0.0,
) -> Workload:
    """A workload at concurrency 1 (weight 2) and 4 (weight 1) unless told otherwise."""
    levels = concurrencies or {1: 2.0, 4: 1.0}
    return Workload(
        search=make_prompts("search", prompts),
        confirmation=make_prompts("confirmation", prompts),
        levels=tuple(Level(concurrency=c, weight=w) for c, w in levels.items()),
        max_tokens=max_tokens,
        sampling=Sampling(temperature=temperature, params={"seed": 0}),
    )


def make_candidates() -> tuple[Candidate, ...]:
    """One candidate of each way to draft: a head, a model, a lookup."""
    return (
        Candidate(name="eagle", method="eagle", model="/models/smollm2-eagle"),
        Candidate(name="draft-4l", method="draft_model", model="/models/smollm2-4-layers"),
        Candidate(
            name="ngram",
            method="ngram",
            settings={"prompt_lookup_min": 1, "prompt_lookup_max": 3},
        ),
    )


def make_spec(
    *,
    name: str = "demo",
    workload: Workload | None = None,
    candidates: Sequence[Candidate] | None = None,
    search: Search | None = None,
    objective: Objective | None = None,
    target: Target | None = None,
) -> StudySpec:
    """A whole study specification; every part can be replaced."""
    return StudySpec(
        name=name,
        target=target
        or Target(
            model="/models/smollm2-135m",
            engine_args={"dtype": "bfloat16", "max_model_len": 1024, "max_num_seqs": 8},
            env={"VLLM_USE_AOT_COMPILE": "0"},
        ),
        workload=workload or make_workload(),
        candidates=tuple(candidates) if candidates is not None else make_candidates(),
        search=search or Search(num_speculative_tokens=(1, 2, 3, 5), gpu_memory_utilization=(GMU,)),
        objective=objective or Objective(),
    )


def make_facts(*, k: int = 0, boot_s: float = 35.0) -> EngineFacts:
    """What a vLLM on two CPU cores says of itself; the KV cache shrinks with K."""
    return EngineFacts(
        version="0.32.0",
        device="Intel Xeon, 2 cores",
        kv_cache_tokens=180_224 - 2_048 * k,
        boot_s=boot_s,
        resolved={"max_model_len": 1024, "dtype": "bfloat16"},
    )


def make_times(tput: float, concurrency: int, requests: int) -> RequestTimes:
    """Times that agree with the throughput of one stream; the last request is the slowest."""
    tpot = 1000.0 * concurrency / tput
    ttft = 40.0 + 12.0 * concurrency
    slow = [(i / max(requests - 1, 1)) ** 8 for i in range(requests)]
    first = [ttft * (1 + 0.8 * s) for s in slow]
    per_token = [tpot * (1 + 0.3 * s) for s in slow]
    whole = [a + b * (OUTPUT_TOKENS - 1) for a, b in zip(first, per_token, strict=True)]
    return RequestTimes(
        ttft_ms=tuple(round(x, 1) for x in first),
        tpot_ms=tuple(round(x, 1) for x in per_token),
        e2e_ms=tuple(round(x, 1) for x in whole),
    )


def make_counters(k: int, profile: Sequence[float], drafts: int) -> SpecCounters | None:
    """The counters of `drafts` drafts of K tokens; None for K = 0."""
    if k == 0:
        return None
    rates = [*profile, *(profile[-1] * 0.7**i for i in range(1, k + 1))][:k]
    per_pos = tuple(round(rate * drafts) for rate in rates)
    return SpecCounters(
        drafts=drafts,
        draft_tokens=k * drafts,
        accepted_tokens=sum(per_pos),
        accepted_per_pos=per_pos,
    )


def make_pass(
    *,
    k: int,
    concurrency: int,
    block: int = 0,
    tput: float = 30.0,
    order: int = 0,
    spec_profile: Sequence[float] = (0.6, 0.4, 0.25),
    invalid: str | None = None,
    seed: str = "",
) -> Pass:
    """One pass; its block makes it faster or slower whatever the arm, its seed a little more."""
    shared = random.Random(f"block {block} {concurrency}").gauss(0, 0.05)
    own = random.Random(f"{seed} {k} {block} {concurrency}").gauss(0, 0.006)
    measured = tput * math.exp(shared + own)
    requests = 4 * concurrency
    tokens = requests * OUTPUT_TOKENS
    length = 1 + sum(spec_profile[:k])
    return Pass(
        num_speculative_tokens=k,
        concurrency=concurrency,
        block=block,
        order=order,
        started_s=20.0 * order,
        duration_s=tokens / measured,
        requests=requests,
        failed=0,
        prompt_tokens=30 * requests,
        output_tokens=tokens,
        times=make_times(measured, concurrency, requests),
        spec=make_counters(k, spec_profile, round(tokens / length)),
        invalid=invalid,
    )


def make_trial(
    candidate: str = BASELINE,
    k: int = 0,
    stage: Stage | None = None,
    *,
    live: bool = False,
    repeat: int = 0,
) -> Trial:
    """The trial of a record; the baseline's stage is its own, of all others the screen."""
    return Trial(
        candidate=candidate,
        num_speculative_tokens=k,
        gpu_memory_utilization=GMU,
        stage=stage or (Stage.BASELINE if candidate == BASELINE else Stage.SCREEN),
        live=live,
        repeat=repeat,
    )


def make_record(
    candidate: str = BASELINE,
    k: int = 0,
    stage: Stage | None = None,
    *,
    tput: Mapping[int, float] | None = None,
    blocks: int = 3,
    spec_profile: Sequence[float] | None = None,
    launch_id: str = "000",
    why: str = "a test",
    live: bool = False,
    repeat: int = 0,
    invalid: Mapping[int, str] | None = None,
    outcome: Outcome | None = None,
) -> Record:
    """A record; `tput` maps concurrency to tokens/s, `invalid` maps a block to its cause."""
    profile = spec_profile or PROFILES.get(candidate, (0.6, 0.4, 0.25))
    trial = make_trial(candidate, k, stage, live=live, repeat=repeat)
    passes = [
        make_pass(
            k=k,
            concurrency=c,
            block=block,
            tput=value,
            order=index * blocks + block,
            spec_profile=profile,
            invalid=(invalid or {}).get(block),
            seed=f"{candidate} {trial.stage} {repeat}",
        )
        for index, (c, value) in enumerate((tput or BASE).items())
        for block in range(blocks)
    ]
    return Record(
        trial=trial,
        outcome=outcome or Measurement(passes=tuple(passes)),
        launch_id=launch_id,
        fingerprint="f0f0f0f0",
        why=why,
        facts=None if isinstance(outcome, Failure) else make_facts(k=k),
    )


def make_failure(cause: Cause = Cause.OUT_OF_MEMORY_START) -> Failure:
    """A failure as an engine reports it."""
    return Failure(
        cause=cause,
        detail="Available memory on node 0 (2.1/15.6 GiB) is less than desired",
        remedy="lower gpu_memory_utilization, or stop what else uses the memory",
    )
