"""Two readings of the counters become one pass: what their difference says, and what it cannot."""

from dataclasses import replace

import pytest

from autotune.core.acceptance import SpecCounters
from autotune.core.schedule import scheduled
from autotune.core.trial import BASELINE, Launch, Pass
from autotune.core.validity import Observed, first_flaw
from autotune.ports import Counters, LoadResult
from autotune.tuning.passes import Place, Readings, as_pass, observe
from tests.builders import make_spec
from tests.tuning.fakes import make_launch, sample

BEFORE = Counters(
    spec=SpecCounters(drafts=180, draft_tokens=540, accepted_tokens=90, accepted_per_pos=(90,)),
    generation_tokens=5000,
    prompt_tokens=900,
    prefix_queries=900,
    prefix_hits=0,
    preemptions=2,
    running=0,
    waiting=0,
    kv_cache_usage=0.0,
)
AFTER = replace(
    BEFORE,
    spec=SpecCounters(drafts=560, draft_tokens=1680, accepted_tokens=190, accepted_per_pos=(190,)),
    generation_tokens=5480,
    prompt_tokens=940,
    prefix_queries=940,
    preemptions=5,
)
PLACE = Place(num_speculative_tokens=3, concurrency=1, block=0, order=0, started_s=0.0)
FALLEN = Counters(
    spec=SpecCounters(),
    generation_tokens=120,
    prompt_tokens=10,
    prefix_queries=10,
    prefix_hits=0,
    preemptions=0,
    running=0,
    waiting=0,
    kv_cache_usage=0.0,
)


def launch(name: str = "eagle", k: int = 3) -> Launch:
    """A static launch."""
    return make_launch(make_spec(), name, (k,))


def result(text: str = "", cpu_s: float = 0.1) -> LoadResult:
    """Four replies of 120 tokens within ten seconds."""
    samples = tuple(replace(sample(f"p{i}", 120, 10.0, None), text=text) for i in range(4))
    return LoadResult(samples=samples, duration_s=10.0, client_cpu_s=cpu_s)


def seen(after: Counters = AFTER, of: Launch | None = None, text: str = "") -> Observed:
    """What the checks look at."""
    read = Readings(before=BEFORE, after=after, steps_by_k=None)
    return observe(of or launch(), PLACE, result(text), read)


def passed(after: Counters = AFTER, text: str = "", cpu_s: float = 0.1) -> Pass:
    """The pass as it is kept."""
    read = Readings(before=BEFORE, after=after, steps_by_k=None)
    got = result(text, cpu_s)
    return as_pass(PLACE, got, read, observe(launch(), PLACE, got, read))


def test_counters_are_used_as_differences() -> None:
    """Cumulative readings since the server began: 380 drafts belong to this pass."""
    told = passed()
    assert told.invalid is None
    assert told.spec is not None
    assert (told.spec.drafts, told.spec.accepted_tokens) == (380, 100)
    assert told.preemptions == 3


@pytest.mark.parametrize(
    ("after", "names"),
    [
        (FALLEN, ("generation_tokens", "prompt_tokens", "prefix_queries", "preemptions")),
        (replace(AFTER, generation_tokens=4999), ("generation_tokens",)),
        (replace(AFTER, preemptions=None, prefix_hits=None), ()),
    ],
)
def test_counters_that_fall_are_named(after: Counters, names: tuple[str, ...]) -> None:
    """What the engine does not count cannot fall."""
    found = seen(after).backwards
    assert found == (names if after is not FALLEN else (*names, "the counters of speculation"))


def test_of_counters_that_began_anew_none_is_believed() -> None:
    """Also not those that have passed their old values since: 460 drafts would be too many."""
    told = passed(replace(AFTER, generation_tokens=4999))
    assert told.spec is None
    assert told.invalid is not None
    assert told.invalid.startswith("the server restarted during the pass")


def test_without_speculation_its_counters_are_not_read() -> None:
    """An engine may show them at 0, or moving: a baseline has no acceptance."""
    assert seen(of=launch(BASELINE, 0)).spec is None
    assert seen(of=launch()).spec is not None


def test_replies_that_loop_are_counted() -> None:
    """From their text, which is not kept."""
    told = passed(text="- the " * 40)
    assert told.looping == 4
    assert told.invalid == "4 of 4 replies are one phrase over and over"
    assert passed(text="A reply of some words that says what it has to say and ends.").looping == 0


def test_the_clients_own_work_is_told_as_a_share() -> None:
    """Of one core, over the duration of the pass."""
    assert passed().client_cpu == pytest.approx(0.01)
    busy = passed(cpu_s=9.0)
    assert busy.invalid is not None
    assert "it is the bottleneck" in busy.invalid


def test_replies_that_are_no_json_are_counted() -> None:
    """Where JSON was asked for and the reply ended by itself; without reasoning or failures."""
    one = replace(sample("p", 120, 10.0, None), finish_reason="stop", text="Thinking.")
    samples = (
        replace(one, json_text='{"a": 1}'),
        replace(one, json_text='{"a": 1'),
        replace(one, json_text="I cannot."),
        replace(one, json_text='{"a": 1', finish_reason="length"),
        replace(one, json_text="", error="the stream ended without [DONE]"),
        one,
    )
    got = LoadResult(samples=samples, duration_s=10.0, client_cpu_s=0.1)
    read = Readings(before=BEFORE, after=AFTER, steps_by_k=None)
    assert as_pass(PLACE, got, read, observe(launch(), PLACE, got, read)).not_json == 2
    assert passed(text="I cannot.").not_json == 0


def test_a_pass_under_a_schedule_may_draft_nothing() -> None:
    """Where its K is 0 there are no drafts; a static launch without any is no measurement."""
    idle = replace(AFTER, spec=BEFORE.spec)
    static = launch()
    assert static.candidate is not None
    with_schedule = replace(static, candidate=scheduled(static.candidate, ((1, 1, 0), (2, 8, 3))))
    assert not seen(idle, of=static).scheduled
    flaw = first_flaw(seen(idle, of=static))
    assert flaw is not None
    assert "not one draft was counted" in flaw.why
    assert first_flaw(seen(idle, of=with_schedule)) is None
