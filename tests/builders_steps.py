"""Records whose steps follow the cost model exactly: what it is to find is given here.

A step takes plain + overhead + m * (check + draft) seconds, m the tokens drafted per step, and
gives 1 + coverage * (acceptance at the first K positions) tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autotune.core.acceptance import SpecCounters
from autotune.core.latency import RequestTimes
from autotune.core.steps import StepStats
from autotune.core.study import Candidate, StudySpec
from autotune.core.trial import BASELINE, Measurement, Pass, Record, Stage
from tests.builders import make_facts, make_spec, make_trial, make_workload

REPLY_TOKENS = 65
FIRST_TOKEN_S = 0.03

DRAFT = Candidate(name="draft", method="draft_model", model="/models/draft")
SMALLER = Candidate(name="smaller", method="draft_model", model="/models/smaller")
NGRAM = Candidate(name="ngram", method="ngram", settings={"prompt_lookup_min": 2})
MTP = Candidate(name="mtp", method="mtp")
DFLASH = Candidate(name="dflash", method="dflash", model="/models/dflash")


def steps_spec(*candidates: Candidate, levels: Mapping[int, float] | None = None) -> StudySpec:
    """A study of these candidates, at concurrency 1 unless told otherwise."""
    workload = make_workload(concurrencies=levels or {1: 1.0}, prompts=160)
    return make_spec(candidates=candidates, workload=workload)


@dataclass(frozen=True, kw_only=True)
class World:
    """What a step costs, in seconds."""

    plain: Mapping[int, float] = field(default_factory=lambda: {1: 0.010})
    """By concurrency."""
    overhead: float = 0.0
    check: float = 0.0
    """Of one token; a drafted token of each request makes as many as there are requests."""
    draft: float = 0.0
    profile: Sequence[float] = (0.8, 0.65, 0.5)
    """Unconditional acceptance by position."""
    coverage: float = 1.0
    reply_tokens: int = REPLY_TOKENS
    first_token_s: float = FIRST_TOKEN_S

    def step_s(self, k: int, concurrency: int) -> float:
        """Seconds of a step."""
        drafted = k * self.coverage
        added = self.overhead + drafted * (self.check * concurrency + self.draft)
        return self.plain[concurrency] + (added if k else 0.0)

    def tokens(self, k: int) -> float:
        """Tokens per step."""
        return 1 + self.coverage * sum(self.profile[:k])

    def speedup(self, k: int, concurrency: int) -> float:
        """Of decoding."""
        return self.tokens(k) * self.plain[concurrency] / self.step_s(k, concurrency)


def of_reply(speedup: float) -> float:
    """The speedup of a whole reply of the default world, decoding being so much faster."""
    decoding = (REPLY_TOKENS - 1) * World().plain[1]
    return (FIRST_TOKEN_S + decoding) / (FIRST_TOKEN_S + decoding / speedup)


def steps_pass(world: World, k: int, concurrency: int, block: int, scale: float = 1.0) -> Pass:
    """One pass, with steps, counters and times that agree."""
    requests, after = 8 * concurrency, world.reply_tokens - 1
    tokens = requests * after
    steps = round(tokens / world.tokens(k))
    step_s = world.step_s(k, concurrency) * scale
    reply_s = after / world.tokens(k) * step_s
    whole_ms = 1e3 * (world.first_token_s + reply_s)
    return Pass(
        num_speculative_tokens=k,
        concurrency=concurrency,
        block=block,
        order=block,
        started_s=0.0,
        duration_s=8 * whole_ms / 1e3,
        requests=requests,
        failed=0,
        prompt_tokens=30 * requests,
        output_tokens=requests * world.reply_tokens,
        spec=counters(world, k, round(steps * world.coverage)) if k else None,
        steps=StepStats(
            tokens=tokens,
            steps=steps,
            merged=0,
            step_s=step_s,
            first_token_s=world.first_token_s,
            decode_step_s=step_s,
            reply_tokens=(after,) * requests,
            reply_s=(reply_s,) * requests,
        ),
        times=RequestTimes(
            ttft_ms=(1e3 * world.first_token_s,) * requests,
            tpot_ms=(1e3 * reply_s / after,) * requests,
            e2e_ms=(whole_ms,) * requests,
        ),
    )


def counters(world: World, k: int, drafts: int) -> SpecCounters:
    """So many drafts of K tokens, accepted as the world's profile has it."""
    accepted = [round(drafts * share) for share in world.profile[:k]]
    accepted += [0] * (k - len(accepted))
    return SpecCounters(
        drafts=drafts,
        draft_tokens=k * drafts,
        accepted_tokens=sum(accepted),
        accepted_per_pos=tuple(accepted),
    )


def steps_record(
    world: World,
    candidate: str = BASELINE,
    k: int = 0,
    *,
    blocks: int = 4,
    launch_id: str = "",
    live: bool = True,
    stage: Stage | None = None,
    scales: Sequence[float] = (),
) -> Record:
    """A record at every level of the world; `scales` make its blocks slower or faster."""
    passes = tuple(
        steps_pass(world, k, c, block, scales[block] if scales else 1.0)
        for c in world.plain
        for block in range(blocks)
    )
    return Record(
        trial=make_trial(candidate, k, stage, live=live and candidate != BASELINE),
        outcome=Measurement(passes=passes),
        launch_id=launch_id or candidate,
        fingerprint="f0f0f0f0",
        why="a test",
        facts=make_facts(k=k),
    )


def steps_records(
    worlds: Mapping[str, World], ks: Sequence[int] = (1, 2, 3), *, blocks: int = 4
) -> list[Record]:
    """Plain decoding of the first world, and each candidate in its own, one live launch each."""
    plain = next(iter(worlds.values()))
    records = [steps_record(plain, blocks=blocks)]
    for name, world in worlds.items():
        records += [steps_record(world, name, k, blocks=blocks) for k in ks]
    return records
