"""A schedule of K per batch size, as vLLM takes it, and the candidate that is launched with one.

Rule: a candidate with a schedule is a candidate of its own, by its settings and by its name, so
that whatever is grouped by candidate and K never mixes its launches with those of a static K.
"""

from collections.abc import Mapping
from dataclasses import replace

from autotune.core.jsontype import JSON
from autotune.core.study import Candidate

FIELD = "num_speculative_tokens_per_batch_size"
"""vLLM's name of it in SpeculativeConfig."""
SCHEDULE_DISABLED = "schedule_disabled"
"""Among the resolved settings of a launch: what the engine fell back to instead of its schedule."""
Range = tuple[int, int, int]
"""First and last batch size, and the K in force between them."""


def ranges_for(ks: Mapping[int, int]) -> tuple[Range, ...]:
    """The ranges for the K of each measured concurrency, equal neighbours merged.

    Between two measured levels the K of the higher one is taken: a batch that is smaller than the
    one a K was measured at has more room for drafts, a larger one less. Beyond the last range vLLM
    goes on with its K (vllm/v1/spec_decode/dynamic/utils.py).
    """
    levels = sorted(ks)
    starts = [1, *(c + 1 for c in levels[:-1])]
    found: list[Range] = []
    for start, c in zip(starts, levels, strict=True):
        same = bool(found) and found[-1][2] == ks[c]
        found.append((found.pop()[0] if same else start, c, ks[c]))
    return tuple(found)


def k_at(ranges: tuple[Range, ...], batch_size: int) -> int:
    """The K in force for a batch size of at least 1."""
    return next(k for start, _, k in reversed(ranges) if start <= batch_size)


def k_max(ranges: tuple[Range, ...]) -> int:
    """The largest K, which the server is started with."""
    return max(k for _, _, k in ranges)


def scheduled(candidate: Candidate, ranges: tuple[Range, ...]) -> Candidate:
    """The candidate with a schedule: `eagle(K=3, 0 from 5)`."""
    return replace(
        candidate,
        name=f"{candidate.name}(K={_listed(ranges)})",
        variant_of=candidate.family,
        settings={**candidate.settings, FIELD: [list(one) for one in ranges]},
        space={},
    )


def ranges_of(settings: Mapping[str, JSON]) -> tuple[Range, ...]:
    """The schedule in a candidate's settings, or a trial's; empty without one."""
    given = settings.get(FIELD)
    found: list[Range] = []
    for entry in given if isinstance(given, list) else ():
        match entry:
            case [int(first), int(last), int(k)]:
                found.append((first, last, k))
            case _:
                raise ValueError(f"{FIELD}: need [first, last, K], got {entry!r}")
    return tuple(found)


def without_schedule(settings: Mapping[str, JSON]) -> dict[str, JSON]:
    """The settings of the candidate that was given the schedule."""
    return {name: value for name, value in settings.items() if name != FIELD}


def schedule_words(ranges: tuple[Range, ...]) -> str:
    """`K = 3 up to a batch of 4, 0 beyond`."""
    *head, last = ranges
    parts = [f"{k} up to a batch of {end}" for _, end, k in head]
    return f"K = {', '.join([*parts, f'{last[2]} beyond'])}"


def _listed(ranges: tuple[Range, ...]) -> str:
    (_, _, first), *more = ranges
    return ", ".join([str(first), *(f"{k} from {start}" for start, _, k in more)])
