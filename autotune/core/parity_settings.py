"""What the engine resolved in two arms: the checks of a comparison that look at settings.

Rules: what is not known gives no doubt. A setting that must be equal for two numbers to be of the
same thing makes the comparison invalid; one that the engine changes because it speculates, with the
same arguments, or that the file gives to the candidate alone, is part of what is deployed, and a
remark.
"""

from collections.abc import Collection, Sequence

from autotune.core.pairs import Pair, Row

MUST_BE_EQUAL = (
    "dtype",
    "max_seq_len",
    "max_num_seqs",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "quantization",
    "kv_cache_dtype",
    "enforce_eager",
    "device_config",
    "seed",
)
AS_DEPLOYED = (
    "enable_prefix_caching",
    "enable_chunked_prefill",
    "attention_backend",
    "cudagraph_mode",
    "compilation_mode",
)
"""Settings that vLLM may resolve otherwise because it speculates, with the same arguments."""
BATCH_INVARIANT = "VLLM_BATCH_INVARIANT"


def _other_study(pair: Pair) -> str | None:
    ours = {r.fingerprint for r in pair.arm.records}
    if ours == {r.fingerprint for r in pair.baseline.records}:
        return None
    return "measured with other prompts, sampling parameters, engine or device than the baseline"


def _differ(pair: Pair, names: Sequence[str]) -> str | None:
    found = []
    for name in names:
        ours, theirs = pair.arm.resolved(name), pair.baseline.resolved(name)
        if ours and theirs and ours != theirs:
            found.append(f"{name} is {_all(ours)}, the baseline's {_all(theirs)}")
    return "; ".join(found) or None


def _flags(pair: Pair) -> str | None:
    asked = _own_arguments(pair)
    return _differ(pair, [name for name in MUST_BE_EQUAL if name not in asked])


def _own_flags(pair: Pair) -> str | None:
    return _differ(pair, [name for name in MUST_BE_EQUAL if name in _own_arguments(pair)])


def _own_arguments(pair: Pair) -> Collection[str]:
    """Engine arguments that the file gives this candidate and not the baseline."""
    return pair.spec.candidate(pair.candidate).engine_args


def _resolved_flags(pair: Pair) -> str | None:
    return _differ(pair, AS_DEPLOYED)


def _scheduling(pair: Pair) -> str | None:
    ours, theirs = pair.arm.resolved("async_scheduling"), pair.baseline.resolved("async_scheduling")
    if ours != {"False"} or theirs != {"True"}:
        return None
    return (
        "the engine schedules asynchronously in the baseline and not with this method: part of "
        "the gap is scheduling, not drafting"
    )


def _batch_invariant(pair: Pair) -> tuple[set[str], set[str]]:
    return (
        pair.arm.resolved(BATCH_INVARIANT) or {"0"},
        pair.baseline.resolved(BATCH_INVARIANT) or {"0"},
    )


def _batch_invariant_once(pair: Pair) -> str | None:
    ours, theirs = _batch_invariant(pair)
    if ours == theirs:
        return None
    return f"{BATCH_INVARIANT} is {_all(ours)}, in the baseline {_all(theirs)}"


def _batch_invariant_everywhere(pair: Pair) -> str | None:
    ours, theirs = _batch_invariant(pair)
    if ours != theirs or ours == {"0"}:
        return None
    return f"{BATCH_INVARIANT} = {_all(ours)} in both arms: speeds hold for that mode only"


def _baseline_speculates(pair: Pair) -> str | None:
    found = pair.baseline.resolved("speculative_config") - {"None"}
    return f"the baseline was started with {_all(found)}" if found else None


def _does_not_speculate(pair: Pair) -> str | None:
    if "None" not in pair.arm.resolved("speculative_config"):
        return None
    k = pair.num_speculative_tokens
    return f"K = {k} was asked for, the engine resolved speculative_config to None"


def _partly_eager(pair: Pair) -> str | None:
    if pair.arm.resolved("cudagraph_mode") <= {"NONE"} or pair.concurrency is None:
        return None
    sizes = pair.arm.resolved("cudagraph_truncated_to") or pair.arm.resolved(
        "max_cudagraph_capture_size"
    )
    captured = min((int(size) for size in sizes), default=None)
    need = pair.concurrency * (pair.num_speculative_tokens + 1)
    if captured is None or need <= captured:
        return None
    return (
        f"ran partly eager: {pair.concurrency} x (K + 1) = {need} tokens in a step, CUDA graphs "
        f"were captured up to {captured}, so the curve may fall here for no fault of the draft; "
        f"target.engine_args.max_cudagraph_capture_size: {need} would cover it"
    )


def _all(values: set[str]) -> str:
    return " and ".join(sorted(values))


_SAME_ARMS = "start both arms alike: see target.launcher, the environment and both engine logs"
_TOLD = "both run as they would be deployed"
_OWN = "the candidate's own engine_args: the speedup is that of both changes together"

SETTINGS = (
    Row(what="study", check=_other_study, remedy="measure it again", invalid=True),
    Row(what="flags", check=_flags, remedy=_SAME_ARMS, invalid=True),
    Row(what="batch invariance", check=_batch_invariant_once, remedy=_SAME_ARMS, invalid=True),
    Row(what="baseline", check=_baseline_speculates, remedy=_SAME_ARMS, invalid=True),
    Row(what="speculation", check=_does_not_speculate, remedy=_SAME_ARMS, invalid=True),
    Row(what="own flags", check=_own_flags, remedy=_OWN),
    Row(what="resolved flags", check=_resolved_flags, remedy=_TOLD),
    Row(what="scheduling", check=_scheduling, remedy=_TOLD),
    Row(what="batch invariance everywhere", check=_batch_invariant_everywhere),
    Row(what="partly eager", check=_partly_eager, per_level=True),
)
"""The checks, those first that make a comparison invalid."""
