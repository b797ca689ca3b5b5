"""How a stage writes a launch down.

Rule: what a stage does not decide is the same in all of them: memory, blocks.
"""

from collections.abc import Iterable

from autotune.core.study import Candidate, StudySpec
from autotune.core.trial import Launch, Stage


def make_launch(
    spec: StudySpec,
    stage: Stage,
    candidate: Candidate | None,
    ks: Iterable[int],
    *,
    why: str,
    live: bool = False,
    repeat: int = 0,
    gpu_memory_utilization: float | None = None,
) -> Launch:
    """A launch of this stage; its K in order."""
    return Launch(
        stage=stage,
        candidate=candidate,
        num_speculative_tokens=tuple(sorted(set(ks))),
        gpu_memory_utilization=gpu_memory_utilization or spec.search.gpu_memory_utilization[0],
        live=live,
        repeat=repeat,
        max_blocks=spec.search.max_blocks,
        why=why,
    )


def listed(ks: Iterable[int]) -> str:
    """`1, 2, 4`."""
    return ", ".join(str(k) for k in ks)
