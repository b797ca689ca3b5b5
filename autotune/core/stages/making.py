"""How a stage writes a launch down.

Rule: what no stage decides is the same in all of them: blocks, and the memory of the search.
"""

from collections.abc import Iterable, Sequence

from autotune.core.memory_bounds import search_utilization
from autotune.core.study import Candidate, StudySpec
from autotune.core.trial import BASELINE, Launch, Record, Stage


def make_launch(
    spec: StudySpec,
    records: Sequence[Record],
    stage: Stage,
    candidate: Candidate | None,
    ks: Iterable[int],
    *,
    why: str,
    live: bool = False,
) -> Launch:
    """A launch of this stage; its K in order, its memory as far as launches have told."""
    numbers = tuple(sorted(set(ks)))
    name = candidate.name if candidate else BASELINE
    return Launch(
        stage=stage,
        candidate=candidate,
        num_speculative_tokens=numbers,
        gpu_memory_utilization=search_utilization(spec, records, name, max(numbers)),
        live=live,
        max_blocks=spec.search.max_blocks,
        why=why,
    )


def listed(ks: Iterable[int]) -> str:
    """`1, 2, 4`."""
    return ", ".join(str(k) for k in ks)
