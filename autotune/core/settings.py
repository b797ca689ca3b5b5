"""What vLLM makes of a candidate's settings together: what it fills in, and what it refuses.

Rule: a combination that is refused here is refused by vLLM at its start, so no launch is spent on
it. Sources: SpeculativeConfig.__post_init__ (vllm/config/speculative.py), SchedulerConfig
(vllm/config/scheduler.py), both 0.32.
"""

from collections.abc import Collection, Iterator, Mapping

from autotune.core.jsontype import JSON
from autotune.core.methods import Method

NO_WINDOW = 5
"""Both bounds where neither is given."""


def resolved(
    method: Method, settings: Mapping[str, JSON], searched: Collection[str] = ()
) -> dict[str, JSON]:
    """The settings as vLLM resolves them: of the n-gram window each bound fills the other.

    A window of which a bound is `searched` is filled when its value is known.
    """
    given: dict[str, JSON] = {name: value for name, value in settings.items() if value is not None}
    names = method.lookup_window
    if names is None or any(name in searched for name in names):
        return given
    bounds: list[JSON] = [given[name] for name in names if name in given] or [NO_WINDOW]
    window: dict[str, JSON] = {names[0]: bounds[0], names[1]: bounds[-1]}
    return window | {name: value for name, value in given.items() if name not in window}


def contradictions(
    method: Method, settings: Mapping[str, JSON], engine_args: Mapping[str, JSON]
) -> Iterator[tuple[str, str]]:
    """Each combination that the engine refuses: the key at fault and the rule with its values."""
    ordered = [("max_num_seqs", "max_num_batched_tokens", engine_args)]
    ordered += [(*method.lookup_window, settings)] if method.lookup_window else []
    for low, high, given in ordered:
        least, most = given.get(low), given.get(high)
        if isinstance(least, int) and isinstance(most, int) and least > most:
            yield low, f"need {low} <= {high}, got {least} > {most}"
    sampling, vocab = "draft_sample_method", "use_heterogeneous_vocab"
    if settings.get(vocab) and settings.get(sampling, "greedy") != "greedy":
        yield sampling, f"with {vocab} the draft must sample greedily: remove it"
    yield from _parallel(method, settings, engine_args)


def _parallel(
    method: Method, settings: Mapping[str, JSON], engine_args: Mapping[str, JSON]
) -> Iterator[tuple[str, str]]:
    key = "draft_tensor_parallel_size"
    size, whole = settings.get(key), engine_args.get("tensor_parallel_size", 1)
    if size is None or size == whole:
        return
    if size != 1:
        yield key, f"{key} is 1 or the target's tensor_parallel_size, {whole}, got {size}"
    elif method.target_tensor_parallel:
        yield key, f"{method.name} needs {key} to be the target's, {whole}, got {size}"
