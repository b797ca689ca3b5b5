"""What is sent to a server: the requests of a pass, and the probe of a draft that seems useless.

Rule: no two requests of a launch share a cache salt, so none finds another one's prompt in the
prefix cache.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from autotune.core.acceptance import SpecCounters
from autotune.core.counting import counted
from autotune.core.methods import Method
from autotune.core.stopping import useless
from autotune.core.study import StudySpec
from autotune.core.trial import Cause, Launch, Pass
from autotune.core.workload import Prompt
from autotune.errors import LaunchError
from autotune.ports import LoadGenerator, Request, Server

DRAWN = (
    "in order of likelihood: a draft of another tokenizer, an untrained or pruned draft, a head of "
    "another target, other quantisation than the target's, a fault of the engine"
)
LOOKED_UP = (
    "these replies do not repeat what stands in prompt or reply: a draft with weights, or another "
    "lookup window"
)


def requests_of(launch: Launch, prompts: Sequence[Prompt], k: int, salt: str) -> list[Request]:
    """One request for each prompt, at this K."""
    # Prompts of one pass may begin alike (a system prompt, the chat template): one salt each.
    # vLLM refuses salts with a slash, an @ or a backslash, and long ones.
    xargs = {"num_speculative_tokens": k} if launch.live else {}
    return [
        Request(prompt=prompt, cache_salt=f"{salt}.{i}", xargs=xargs)
        for i, prompt in enumerate(prompts)
    ]


def check_useful(
    passes: Iterable[Pass],
    method: Method,
    accepted_greedily: Callable[[], int],
    temperature: float,
) -> None:
    """Raise LaunchError when nothing that is drafted is accepted, and say whose fault that is."""
    counters = sum((p.spec for p in passes if p.spec and not p.invalid), SpecCounters())
    if not useless(counters):
        return
    drafts = counted(counters.drafts, "draft")
    said = f"0 of {counters.draft_tokens} drafted tokens were accepted in {drafts}"
    greedy = accepted_greedily() if temperature > 0 else 0
    if greedy:
        raise LaunchError(
            Cause.SAMPLING_BROKEN,
            f"{said} at temperature {temperature:g}, but {greedy} at temperature 0",
            "the engine's sampler is at fault, not the draft: use another build of the engine",
        )
    raise LaunchError(Cause.DRAFT_USELESS, said, DRAWN if method.has_weights else LOOKED_UP)


def accepted_greedily(
    launch: Launch, spec: StudySpec, generator: LoadGenerator, server: Server
) -> int:
    """How many drafted tokens are accepted when a block is sent at temperature 0, at K_max."""
    level = spec.workload.primary.concurrency
    greedy = replace(spec.workload, sampling=replace(spec.workload.sampling, temperature=0.0))
    prompts = spec.workload.block(launch.stage.prompts, level, 0)
    server.wait_drained()
    before = server.counters()
    salt = f"probe.0.{level}.{launch.k_max}"
    requests = requests_of(launch, prompts, launch.k_max, salt)
    failed = [s.error for s in generator.run(server, greedy, requests, level).samples if s.error]
    server.check_alive()
    if failed:
        raise LaunchError(
            Cause.LOAD_FAILED, f"the probe at temperature 0: {failed[0]}", "see the engine's log"
        )
    server.wait_drained()
    after = server.counters()
    if after.spec is None or before.spec is None:
        return 0
    return max(after.spec.accepted_tokens - before.spec.accepted_tokens, 0)
