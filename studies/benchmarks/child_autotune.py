"""The measured client: autotune's own load generator."""

from importlib.metadata import version

from bench_child import Meter, Outcome, Task

from autotune.core.trial import EngineFacts
from autotune.core.workload import Level, Prompt, Sampling, Workload
from autotune.loadgens.closed_loop import ClosedLoop
from autotune.ports import Counters, LoadResult, Request, Watch


class PaceServer:
    """The part of a server that a load generator needs."""

    def __init__(self, task: Task) -> None:
        self.base_url = task.base_url
        self.model = task.model
        self.facts = EngineFacts(version="", device="", kv_cache_tokens=None, boot_s=0.0)

    def counters(self) -> Counters:
        raise NotImplementedError

    def wait_drained(self) -> None: ...

    def steps_by_k(self) -> dict[int, int]:
        return {}

    def watch(self) -> Watch:
        raise NotImplementedError

    def check_alive(self) -> None: ...


def load(task: Task, texts: list[str]) -> LoadResult:
    """One pass over these texts."""
    prompts = tuple(Prompt(id=t, messages=({"role": "user", "content": t},)) for t in texts)
    workload = Workload(
        search=prompts,
        confirmation=prompts,
        levels=(Level(concurrency=1),),
        max_tokens=task.tokens,
        sampling=Sampling(temperature=0.0),
    )
    requests = [Request(prompt=prompt, cache_salt="bench") for prompt in prompts]
    return ClosedLoop().run(PaceServer(task), workload, requests, task.streams)


def main() -> None:
    """Warm up, then measure one pass."""
    task = Task.take()
    texts = task.prompts()
    load(task, texts[: task.warmup])
    meter = Meter(task)
    result = load(task, texts)
    Outcome(
        reading=meter.read(),
        version=version("autotune"),
        tokens=sum(s.output_tokens for s in result.samples),
        chunks=sum(len(s.chunk_s) for s in result.samples),
        faults=[s.error for s in result.samples if s.error],
        ttft_s={
            s.prompt_id: s.first_token_s - s.sent_s
            for s in result.samples
            if s.first_token_s is not None
        },
    ).give()


if __name__ == "__main__":
    main()
