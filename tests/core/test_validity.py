"""Every check of a pass fires with its numbers, and only beyond its bound."""

from dataclasses import replace

import pytest

from autotune.core.acceptance import SpecCounters
from autotune.core.methods import METHODS
from autotune.core.steps import StepStats
from autotune.core.validity import CHECKS, Observed, first_flaw, k_not_in_force

SEEN = Observed(
    num_speculative_tokens=3,
    method=METHODS["eagle"],
    requests=4,
    failed=0,
    first_error="",
    client_tokens=1000,
    server_tokens=1000,
    prefix_hit_rate=0.0,
    client_lag_s=0.009,
    spec=SpecCounters(drafts=500, draft_tokens=1500, accepted_tokens=500),
    steps_by_k={3: 500},
    steps=None,
)


def steps_of(seconds: float) -> StepStats:
    """Steps that take so long."""
    return StepStats(tokens=996, steps=500, merged=0, step_s=seconds, first_token_s=0.1)


def drafted(tokens: int) -> SpecCounters:
    """Ten drafts of so many tokens in all."""
    return SpecCounters(drafts=10, draft_tokens=tokens)


def counted(drafts: int, drafted: int, accepted: int) -> SpecCounters:
    """Counters that need not agree with each other."""
    return SpecCounters(drafts=drafts, draft_tokens=drafted, accepted_tokens=accepted)


def why(**change: object) -> str:
    """The flaw of the clean pass with these changes."""
    flaw = first_flaw(replace(SEEN, **change))  # type: ignore[arg-type]
    assert flaw is not None
    return flaw.why


def test_a_clean_pass_is_valid() -> None:
    """Nothing is wrong where nothing is wrong."""
    assert first_flaw(SEEN) is None
    assert k_not_in_force(SEEN) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"failed": 1, "first_error": "HTTP 500"}, "1 of 4 requests failed: HTTP 500"),
        ({"client_tokens": 0, "server_tokens": 0}, "no output tokens at all"),
        ({"server_tokens": 979}, "the client counted 1000 tokens, the server 979"),
        ({"server_tokens": 1021}, "the client counted 1000 tokens, the server 1021"),
        ({"prefix_hit_rate": 0.06}, "6% of the prompt tokens came from the prefix cache"),
        ({"spec": SpecCounters()}, "K = 3 was asked for, not one draft was counted"),
        ({"spec": drafted(31)}, "K = 3 was asked for, 3.10 tokens per draft were counted"),
        (
            {"client_tokens": 4001, "server_tokens": 4001, "concurrency": 2},
            "4001 tokens in 500 steps at concurrency 2: with K = 3 no more than 4000 can be",
        ),
        ({"client_lag_s": 0.201}, "the client was kept from running for 201 ms"),
        (
            {"client_lag_s": 0.6, "steps": steps_of(1.0)},
            "the client was kept from running for 600 ms, a step takes 1000 ms",
        ),
    ],
)
def test_each_check_names_its_numbers(change: dict[str, object], words: str) -> None:
    """The reason can be judged without looking anything up."""
    flaw = first_flaw(replace(SEEN, **change))  # type: ignore[arg-type]
    assert flaw is not None
    assert words in flaw.why


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"failed": 1, "first_error": "HTTP 500"}, "see that error"),
        ({"client_tokens": 0, "server_tokens": 0}, "try one prompt by hand"),
        ({"server_tokens": 979}, "nothing else may send to this server"),
        ({"prefix_hit_rate": 0.06}, "enable_prefix_caching: false"),
        ({"spec": drafted(31)}, "speculative_config in the engine's log"),
        ({"spec": SpecCounters()}, "why it does not speculate"),
        ({"client_lag_s": 0.3}, "leave the client a core"),
        ({"backwards": ("generation_tokens",)}, "why it started again"),
        ({"server_tokens": 0}, "disable_log_stats"),
        ({"disturbances": ("a kernel was compiled: x",)}, "no warm-up covers that shape"),
        ({"spec": counted(500, 1500, 1501)}, "an accounting error of this engine version"),
        ({"client_tokens": 2001, "server_tokens": 2001}, "compare the usage of one reply"),
        ({"client_cpu_s": 9.0, "duration_s": 10.0}, "a faster or a less busy core"),
        ({"looping": 3}, "chat template"),
    ],
)
def test_each_check_has_a_remedy_of_its_own(change: dict[str, object], words: str) -> None:
    """What to do follows from what was wrong."""
    flaw = first_flaw(replace(SEEN, **change))  # type: ignore[arg-type]
    assert flaw is not None
    assert words in flaw.remedy
    assert len({remedy for _, remedy in CHECKS}) == len(CHECKS) == 14


@pytest.mark.parametrize(
    "change",
    [
        {"server_tokens": 980},
        {"server_tokens": 1020},
        {"prefix_hit_rate": 0.05},
        {"prefix_hit_rate": None},
        {"client_lag_s": 0.142},  # the worst seen on two cores, one of them the engine's
        {"client_lag_s": 0.2},
        {"client_lag_s": 0.5, "steps": steps_of(1.0)},
        {"spec": None},
        {"spec": SpecCounters(), "num_speculative_tokens": 0, "steps_by_k": {0: 1000}},
        {"client_tokens": 2000, "server_tokens": 2000},
        {"spec": None, "steps_by_k": None, "client_tokens": 9000, "server_tokens": 9000},
        {"client_cpu_s": 8.0, "duration_s": 10.0},
        {"client_cpu_s": 0.5, "duration_s": 0.1},
        {"looping": 2},
        {"warnings": {"the grammar refused tokens of a reply": 3}},
        {"spec": SpecCounters(), "method": METHODS["ngram"]},
        {"spec": SpecCounters(), "client_tokens": 4, "server_tokens": 4},
    ],
)
def test_up_to_the_bound_a_pass_is_valid(change: dict[str, object]) -> None:
    """The bound itself is allowed; a lookup may find nothing, one-token replies draft nothing."""
    assert first_flaw(replace(SEEN, **change)) is None  # type: ignore[arg-type]


def test_a_restart_explains_what_follows_from_it() -> None:
    """Counters that ran backwards are no negative rate, and requests that failed are no riddle."""
    told = why(backwards=("prompt_tokens", "the counters of speculation"), failed=2, spec=None)
    assert told == (
        "the server restarted during the pass: prompt_tokens, the counters of speculation ran "
        "backwards"
    )


def test_counters_that_stand_still_are_not_a_slow_server() -> None:
    """Tokens arrive and none is counted: the statistics are off, and the message says so."""
    told = why(server_tokens=0, spec=SpecCounters())
    assert "the client got 1000 tokens, the engine's counter of generated tokens did not" in told


def test_work_other_than_serving_spoils_a_pass() -> None:
    """The first line is quoted, the others are counted."""
    told = why(disturbances=("a kernel was compiled: Triton kernel JIT", "b", "c"))
    assert "other work than serving: a kernel was compiled: Triton kernel JIT (and 2 more" in told


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (counted(10, 30, 31), "31 tokens were accepted of 30 drafted"),
        (counted(10, 30, 30), None),
    ],
)
def test_more_than_was_drafted_cannot_be_accepted(spec: SpecCounters, words: str | None) -> None:
    """Nor can a step give more than K + 1 tokens."""
    flaw = first_flaw(replace(SEEN, spec=spec))
    assert (flaw.why if flaw else None) == words


def test_a_step_gives_no_more_than_k_plus_one() -> None:
    """Counters of a lookup that accepts more than K tokens of a draft are wrong somewhere."""
    lookup = replace(SEEN, method=METHODS["ngram"], spec=counted(0, 40, 40))
    flaw = first_flaw(lookup)
    assert flaw is not None
    assert "an acceptance length of 41.00 was counted: K + 1 is the most" in flaw.why


def test_all_failed_is_never_very_fast() -> None:
    """64 requests refused in 3 ms each are a failure, whatever their duration says."""
    told = why(requests=64, failed=64, first_error="HTTP 404: no such model", client_tokens=0)
    assert told == "64 of 64 requests failed: HTTP 404: no such model"


def test_survivors_are_not_averaged() -> None:
    """Three failed requests of 64 spoil the pass: those that are left were served by fewer."""
    assert why(requests=64, failed=3, first_error="timeout").startswith("3 of 64 requests failed")


def test_a_client_that_computes_all_the_time_is_the_bottleneck() -> None:
    """Both times are told."""
    told = why(client_cpu_s=9.1, duration_s=10.0)
    assert told == "the client computed for 9.1 of 10.0 s: it is the bottleneck"


def test_a_client_that_sees_half_of_what_the_server_counts_is_the_bottleneck() -> None:
    """At a high concurrency a slow client shows as a difference of tokens, told with both."""
    told = why(client_tokens=480, server_tokens=910)
    assert told == "the client counted 480 tokens, the server 910"


def test_replies_that_only_repeat_themselves_measure_nothing() -> None:
    """Most of the replies are loops: drafted for free, worth nothing."""
    assert why(looping=3) == "3 of 4 replies are one phrase over and over"


def test_first_broken_rule_is_the_cause() -> None:
    """Failed requests explain missing tokens, not the other way round."""
    seen = replace(SEEN, failed=4, first_error="refused", client_tokens=0, server_tokens=0)
    flaw = first_flaw(seen)
    assert flaw is not None
    assert flaw.why == "4 of 4 requests failed: refused"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"steps_by_k": {3: 400, 5: 2}}, "K = 3 was asked for, the scheduler had {5: 2} in force"),
        ({"steps_by_k": {0: 7}}, "the scheduler had {0: 7} in force"),
        ({"steps_by_k": {}}, "the scheduler recorded no step at all"),
        ({"spec": drafted(31)}, "K = 3 was asked for, 3.10 tokens per draft were counted"),
        ({"spec": drafted(26)}, "K = 3 was asked for, 2.60 tokens per draft were counted"),
        (
            {"spec": drafted(31), "method": METHODS["ngram"]},
            "K = 3 was asked for, 3.10 tokens per draft were counted",
        ),
        (
            {"num_speculative_tokens": 0, "steps_by_k": {0: 9}, "spec": drafted(10)},
            "K = 0 was asked for, the engine counted 10 drafts",
        ),
    ],
)
def test_another_k_in_force_is_noticed(change: dict[str, object], words: str) -> None:
    """The scheduler's record and the counters must both agree with the K that was asked for."""
    why = k_not_in_force(replace(SEEN, **change))  # type: ignore[arg-type]
    assert why is not None
    assert words in why


@pytest.mark.parametrize(
    "change",
    [
        {"spec": drafted(27)},
        {"spec": drafted(30)},
        {"spec": drafted(12), "method": METHODS["ngram"]},
        {"spec": None},
        {"steps_by_k": None},
        {"num_speculative_tokens": 0, "steps_by_k": {0: 9}, "spec": SpecCounters()},
    ],
)
def test_trimmed_and_short_drafts_are_in_force(change: dict[str, object]) -> None:
    """Trimming may take a tenth of a fixed draft; a lookup may draft fewer than K."""
    assert k_not_in_force(replace(SEEN, **change)) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("spec", [counted(500, 900, 400), counted(0, 0, 0)])
def test_under_a_schedule_k_is_the_most_that_may_be_drafted(spec: SpecCounters) -> None:
    """Fewer tokens per draft, or no draft, are what it may ask for; more than K are not."""
    fewer = replace(SEEN, spec=spec)
    assert first_flaw(fewer) is not None
    assert first_flaw(replace(fewer, scheduled=True)) is None
    more = replace(SEEN, spec=counted(500, 2000, 500), scheduled=True)
    assert first_flaw(more) is not None
