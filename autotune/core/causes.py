"""Why a launch gave no number: for every cause its sign, its remedy and what the study does next.

Rule: one row for each cause, and no other list of causes anywhere: who asks whether a cause is
tried again, ends its candidate or stops the study asks this table. docs/troubleshooting.md is
made from it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from autotune.core.trial import TRIES, Cause, Failure, Record

AT_ONCE_S = 5.0
"""vLLM takes longer than this to be imported."""


class Policy(StrEnum):
    """What the study does after a failure."""

    RETRY_ONCE = "retry_once"
    """It says nothing about the configuration: the same launch is made once more."""
    BACK_OFF = "back_off"
    """The point is over; what asks for less of the same may still work, and is tried."""
    SKIP_POINT = "skip_point"
    """The K is over, the candidate's other K go on."""
    SKIP_CANDIDATE = "skip_candidate"
    """No other K of the candidate would escape it."""
    STOP_STUDY = "stop_study"
    """No other launch would escape it: a person has to mend the machine first."""


class Direction(StrEnum):
    """On which side a failure bounds the range of gpu_memory_utilization."""

    FROM_ABOVE = "from_above"
    FROM_BELOW = "from_below"


class Reach(StrEnum):
    """Which K of a launch a failure belongs to."""

    ONE_K = "one_k"
    """The K in hand, K_max while the server starts: a smaller one may do without."""
    IN_HAND = "in_hand"
    """The K being measured; before any is, whatever keeps a server down does so at every K."""
    LAUNCH = "launch"
    """Every K of the launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseRow:
    """What is known of one cause."""

    sign: str
    """What is seen of it."""
    remedy: str
    policy: Policy
    reach: Reach = Reach.IN_HAND
    direction: Direction | None = None

    def __post_init__(self) -> None:
        if not self.sign or not self.remedy:
            raise ValueError("a cause needs a sign and a remedy")
        if self.direction is not None and self.policy is not Policy.BACK_OFF:
            raise ValueError(f"only what backs off has a direction, not {self.policy}")


def _less_memory(sign: str, remedy: str) -> CauseRow:
    return CauseRow(
        sign=sign,
        remedy=remedy,
        policy=Policy.BACK_OFF,
        reach=Reach.ONE_K,
        direction=Direction.FROM_ABOVE,
    )


def _of_candidate(sign: str, remedy: str) -> CauseRow:
    return CauseRow(sign=sign, remedy=remedy, policy=Policy.SKIP_CANDIDATE, reach=Reach.LAUNCH)


def _of_point(sign: str, remedy: str) -> CauseRow:
    return CauseRow(sign=sign, remedy=remedy, policy=Policy.SKIP_POINT)


def _transient(sign: str, remedy: str) -> CauseRow:
    return CauseRow(sign=sign, remedy=remedy, policy=Policy.RETRY_ONCE)


def _of_machine(sign: str, remedy: str) -> CauseRow:
    return CauseRow(sign=sign, remedy=remedy, policy=Policy.STOP_STUDY)


CAUSES: Mapping[Cause, CauseRow] = {
    # memory
    Cause.OUT_OF_MEMORY_START: _less_memory(
        "the engine ran out of memory while it loaded weights or profiled its first step",
        "lower search.gpu_memory_utilization, target.engine_args.max_num_batched_tokens, "
        "max_num_seqs or K; a smaller or quantised draft needs less",
    ),
    Cause.OUT_OF_MEMORY_CAPTURE: _less_memory(
        "the engine ran out of memory while it captured CUDA graphs, which grow with K",
        "lower search.gpu_memory_utilization, K, target.engine_args.max_num_seqs or "
        "max_cudagraph_capture_size",
    ),
    Cause.OUT_OF_MEMORY_RUNTIME: _less_memory(
        "the engine started and ran out of memory under load; its numbers are dropped",
        "lower search.gpu_memory_utilization, K or target.engine_args.max_num_batched_tokens: "
        "verification needs room for K + 1 tokens of every request",
    ),
    Cause.UTILIZATION_TOO_HIGH: _less_memory(
        "gpu_memory_utilization asks for more memory than is free, though no other process holds "
        "what is missing",
        "lower search.gpu_memory_utilization; on a CPU it is a share of all RAM of the node",
    ),
    Cause.KV_CACHE_TOO_SMALL: CauseRow(
        sign="weights and activations leave no room for the KV cache of one request",
        remedy="raise search.gpu_memory_utilization, or lower target.engine_args.max_model_len or "
        "max_num_batched_tokens",
        policy=Policy.BACK_OFF,
        reach=Reach.ONE_K,
        direction=Direction.FROM_BELOW,
    ),
    Cause.MEMORY_OCCUPIED: _transient(
        "another process holds memory that the engine asked for; autotune waits until it comes "
        "back and tries once more",
        "end what holds the memory, or lower search.gpu_memory_utilization",
    ),
    # the start
    Cause.START_TIMEOUT: _of_point(
        "the server was not ready within search.start_timeout",
        "read where the engine's log stops, in the launch folder; raise search.start_timeout if "
        "it was still compiling or loading",
    ),
    Cause.START_STALLED: _of_point(
        "the starting engine wrote no line to its log for many minutes",
        "read where the engine's log stops, in the launch folder: a download, a lock or a "
        "collective operation that hangs",
    ),
    Cause.CRASHED_START: _of_point(
        "the engine ended during its start with an error that has no row of its own",
        "read the engine's log, in the launch folder, from its first error on",
    ),
    Cause.ENGINE_REFUSED: _of_point(
        "the engine refused its arguments",
        "the engine's own message names the argument: correct it in the candidates file",
    ),
    Cause.ENGINE_TOO_OLD: _of_machine(
        "the engine does not know --speculative-config",
        "use a newer vLLM: old ones take --speculative-model and --num-speculative-tokens, which "
        "autotune does not write",
    ),
    Cause.LAUNCHER_BROKEN: _of_machine(
        "the program that starts the engine does not run, or every launch ends at once in the "
        "same way",
        "run the command of launch.argv.json by hand; see `target.launcher`; once mended, "
        "`autotune run --retry-failed`",
    ),
    Cause.MISSING_PACKAGE: _of_candidate(
        "the engine's environment lacks a package or a library that the launch needs",
        "install it where the engine runs, then `autotune run --retry-failed`",
    ),
    Cause.MISSING_WEIGHTS: _of_candidate(
        "a model is not there: wrong path or id, gated, not downloaded, or without its weights",
        "check path and files of the model (no Git LFS pointers), or your access to it on the hub",
    ),
    Cause.WEIGHTS_MISMATCH: _of_candidate(
        "shapes, dtypes or quantisation of the weights are not those that the engine expects",
        "the draft was made for another target, is of another method, or needs its own "
        "`quantization`: check it against the target's config.json",
    ),
    Cause.VOCABULARY_MISMATCH: _of_candidate(
        "draft and target have vocabularies of different size",
        "take a draft of the target's own family; greedy drafting may try "
        "`use_heterogeneous_vocab: true`",
    ),
    Cause.COMPILE_CACHE: _transient(
        "compiled code from the cache does not fit this launch: shared between K, or damaged; "
        "tried once more with a cache of its own",
        "delete vLLM's compile cache (VLLM_CACHE_ROOT, ~/.cache/vllm/torch_compile_cache)",
    ),
    # the surroundings
    Cause.PORT_TAKEN: _transient(
        "an address was in use: the server's port, or one between the engine's own processes",
        "transient, tried once more; if it stays, look for servers that were left behind",
    ),
    Cause.WRONG_SERVER: _transient(
        "another server answered at the address of this launch",
        "transient, tried once more on another port; if it stays, end the other server",
    ),
    Cause.PROXY_ANSWERED: _of_machine(
        "a proxy answered on the loopback address instead of the engine",
        "set NO_PROXY=127.0.0.1,localhost, or start autotune where nothing redirects loopback",
    ),
    Cause.DISK_FULL: _of_machine(
        "no disk space is left for the engine's caches or for results",
        "free disk space, then run again: all finished passes are kept",
    ),
    Cause.WEDGED: _of_machine(
        "a process of the engine outlived SIGKILL: it hangs in the driver or the kernel",
        "free the device by hand (a driver reset or a reboot), then run again: all finished "
        "passes are kept",
    ),
    Cause.TRANSIENT: _transient(
        "a network fault between the engine and the hub, or between its processes",
        "transient, tried once more; if it stays, see the engine's log",
    ),
    # while serving
    Cause.CRASHED_RUNTIME: _of_point(
        "the engine died while it served; its numbers are dropped",
        "read the engine's log, in the launch folder, from its first error on; a smaller K may be "
        "stable",
    ),
    Cause.ENGINE_STALLED: _of_point(
        "the server is up and generates nothing",
        "read the engine's log, in the launch folder; a smaller K may not stall",
    ),
    Cause.LOAD_FAILED: _of_point(
        "the engine answers, and not one pass of the workload was valid",
        "see the engine's message: it may refuse a sampling parameter or a prompt",
    ),
    Cause.SAMPLING_BROKEN: _of_candidate(
        "nothing drafted is accepted above temperature 0, but at 0 it is",
        "the engine's sampler is at fault, not the draft: use another build of the engine",
    ),
    Cause.DRAFT_USELESS: _of_candidate(
        "nothing that is drafted is accepted",
        "another draft: this one is untrained, pruned, or made for another target",
    ),
    Cause.LIVE_K_NOT_IN_FORCE: CauseRow(
        sign="the engine drafted with another K than the requests carried",
        remedy="none needed: autotune goes on with one launch per K",
        policy=Policy.BACK_OFF,
        reach=Reach.LAUNCH,
    ),
    Cause.NO_TIME: _transient("the budget ended during the start", "go on with a larger budget"),
    Cause.INTERRUPTED: _transient("the launch was interrupted", "run again to go on"),
}
"""Every cause, in the order in which people meet them."""


def retried(failure: Failure) -> bool:
    """Whether the same launch may well succeed when it is made again."""
    return CAUSES[failure.cause].policy is Policy.RETRY_ONCE


def ends_candidate(failure: Failure) -> bool:
    """Whether no other K of the candidate would escape it."""
    return CAUSES[failure.cause].policy is Policy.SKIP_CANDIDATE


def stops_study(failure: Failure) -> bool:
    """Whether no other launch would escape it."""
    return CAUSES[failure.cause].policy is Policy.STOP_STUDY


def broken_launcher(starts: Sequence[tuple[str, Failure | None]]) -> Failure | None:
    """What every launch so far ended of at once, in the same way, if two arms have tried.

    `starts` are the launches of one run, by name; None: the server was ready. A server that dies
    before it could even read its arguments is no fault of the candidate.
    """
    ends = {(f.cause, f.detail) if f and f.after_s is not None else None for _, f in starts}
    last = starts[-1][1] if starts else None
    if len({name for name, _ in starts}) < TRIES or len(ends) > 1 or not (last and _at_once(last)):
        return None
    return replace(last, cause=Cause.LAUNCHER_BROKEN, remedy=CAUSES[Cause.LAUNCHER_BROKEN].remedy)


def _at_once(failure: Failure) -> bool:
    soon = failure.after_s is not None and failure.after_s < AT_ONCE_S
    return failure.cause is Cause.CRASHED_START and soon


def of_one_k(cause: Cause, *, measuring: bool) -> bool:
    """Whether it belongs to the K in hand alone; else every K of its launch fails with it.

    A K that gets no record is launched again by the plan, with a smaller K_max.
    """
    row = CAUSES[cause]
    if row.policy is Policy.STOP_STUDY:
        return True  # one record tells it; of the other K nothing is known
    return row.reach is Reach.ONE_K or (row.reach is Reach.IN_HAND and measuring)


def unstable_neighbours(records: Sequence[Record], candidate: str, k: int) -> list[str]:
    """The K next to a recommended one that failed when they were tried, each in a sentence."""
    failed: dict[int, Failure] = {}
    for record in records:
        number = record.trial.num_speculative_tokens
        if record.trial.candidate != candidate or number == 0:
            continue
        if isinstance(record.outcome, Failure) and not retried(record.outcome):
            failed[number] = record.outcome
    mine = {r.trial.num_speculative_tokens for r in records if r.trial.candidate == candidate}
    below = max((n for n in mine if 0 < n < k), default=k)
    above = min((n for n in mine if n > k), default=k)
    return [
        f"{candidate} at K = {n}, next to K = {k}, failed ({failed[n].cause.value}): little room"
        for n in sorted({below, above})
        if n in failed and CAUSES[failed[n].cause].reach is not Reach.LAUNCH
    ]
