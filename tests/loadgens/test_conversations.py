"""Conversations of several turns, adapters and response formats: what is sent, and what is counted.

The stub's third reply is one of three tokens, and so on: replies are told apart by their words.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from autotune.core.jsontype import JSON
from autotune.core.workload import Prompt, Workload
from autotune.loadgens.closed_loop import ClosedLoop
from autotune.ports import LoadResult, Request
from tests.loadgens.passes import WORKLOAD, StubServer, errors
from tests.loadgens.stub import (
    DONE,
    HEAD,
    LAST_CHUNK,
    ROLE,
    Seen,
    Step,
    delta,
    error_body,
    final_usage,
    framed,
    plain,
    reply,
    stub,
)


def talk(ident: str, *turns: str) -> Prompt:
    """A conversation in which the user says these things."""
    first, *later = turns
    return Prompt(
        id=ident, messages=({"role": "user", "content": first},), later_turns=tuple(later)
    )


def send(
    seen: Seen, *prompts: Prompt, concurrency: int = 1, workload: Workload = WORKLOAD
) -> LoadResult:
    """A pass of these conversations, each with a salt of its own."""
    requests = [Request(prompt=p, cache_salt=f"s.{i}") for i, p in enumerate(prompts)]
    server = StubServer(seen.base_url)
    return ClosedLoop(idle_timeout_s=0.5).run(server, workload, requests, concurrency)


def content(seen: Seen, index: int) -> list[tuple[str, str]]:
    """What the n-th request said, by role."""
    return [(m["role"], m["content"]) for m in seen.bodies[index]["messages"]]


def test_a_turn_is_sent_with_the_replies_before_it() -> None:
    """The third request holds both earlier questions and what was answered."""
    with stub(lambda index: reply(range(1, index + 2))) as seen:
        result = send(seen, talk("81", "a", "b", "c"))
    assert content(seen, 0) == [("user", "a")]
    assert content(seen, 1) == [("user", "a"), ("assistant", " w1"), ("user", "b")]
    assert content(seen, 2) == [*content(seen, 1), ("assistant", " w1 w2"), ("user", "c")]
    assert [s.prompt_id for s in result.samples] == ["81", "81#2", "81#3"]
    assert [s.output_tokens for s in result.samples] == [1, 2, 3]
    assert errors(result) == [None] * 3


def test_every_turn_has_a_salt_of_its_own() -> None:
    """Else the prefix cache would answer for the turns before; vLLM takes no / @ or backslash."""
    with stub(lambda index: reply()) as seen:
        send(seen, talk("1", "a", "b"), talk("2", "a", "b"), talk("3", "c"), concurrency=2)
    salts = [body["cache_salt"] for body in seen.bodies]
    assert len(set(salts)) == len(salts) == 5
    assert not any(sign in salt for salt in salts for sign in "/@\\")


def test_conversations_keep_the_streams_full() -> None:
    """Turns of one conversation follow each other; others run beside it, and samples in order."""
    with stub(lambda index: reply(range(1, 5), 0.004)) as seen:
        talks = [talk(str(i), *("abcd"[: 1 + i % 4])) for i in range(12)]
        result = send(seen, *talks, concurrency=3)
    assert max(seen.in_flight) == 3
    assert len(result.samples) == len(seen.bodies) == sum(t.requests for t in talks) == 30
    expected = [f"{t.id}#{n}" if n > 1 else t.id for t in talks for n in range(1, t.requests + 1)]
    assert [s.prompt_id for s in result.samples] == expected
    for before, after in zip(result.samples, result.samples[1:], strict=False):
        if after.prompt_id.partition("#")[0] == before.prompt_id.partition("#")[0]:
            assert after.sent_s >= before.end_s


def test_a_failed_turn_fails_those_after_it() -> None:
    """They cannot be asked; the pass still has a sample for each, and goes on."""
    refusal = plain(400, error_body("too long"))
    with stub(lambda index: [refusal] if index == 1 else reply()) as seen:
        result = send(seen, talk("1", "Why?", "How?", "When?", "Who?"), talk("2", "So?"))
    assert len(seen.bodies) == 3
    assert errors(result) == [
        None,
        "HTTP 400: too long",
        "not sent: the turn before it failed",
        "not sent: the turn before it failed",
        None,
    ]


def test_a_stalled_server_is_not_waited_for_again() -> None:
    """All that is left of the pass has failed, turn by turn."""
    with stub(lambda index: [HEAD, 30.0]) as seen:
        result = send(seen, talk("1", "a", "b"), talk("2", "c", "d"))
    assert len(seen.bodies) == 1
    assert len(result.samples) == 4
    assert all(errors(result))
    assert result.duration_s < 5


def test_the_reasoning_of_a_reply_is_not_sent_back() -> None:
    """Chat clients drop it; it stays in the sample's text."""

    def thinking(index: int) -> Iterable[Step]:
        yield HEAD + framed(ROLE)
        yield framed(delta("", 1, reasoning="hm ")) + framed(delta("yes", 2, "stop"))
        yield framed(final_usage(2)) + framed(DONE) + LAST_CHUNK

    with stub(thinking) as seen:
        result = send(seen, talk("1", "a", "b"))
    assert content(seen, 1)[1] == ("assistant", "yes")
    assert result.samples[0].text == "hm yes"


def test_no_turn_lands_in_an_error() -> None:
    """Servers quote what they refuse: neither question nor reply is kept."""

    def quoting(index: int) -> Iterable[Step]:
        return reply((1, 2)) if index == 0 else [plain(400, error_body("bad: secret and  w1 w2"))]

    with stub(quoting) as seen:
        result = send(seen, talk("1", "secret", "more"))
    assert errors(result)[1] == "HTTP 400: bad: <prompt> and <prompt>"


SCHEMA: dict[str, JSON] = {
    "type": "json_schema",
    "json_schema": {"name": "n", "schema": {"type": "object"}},
}


def test_a_prompt_has_its_own_bound_and_format() -> None:
    """Where it has none those of the workload hold, and every turn has the same."""
    workload = replace(WORKLOAD, response_format={"type": "json_object"})
    talks = (
        replace(talk("1", "a", "b"), max_tokens=5, response_format=SCHEMA),
        replace(talk("2", "c"), max_tokens=500),
    )
    with stub(lambda index: reply()) as seen:
        send(seen, *talks, workload=workload)
    assert [body["max_tokens"] for body in seen.bodies] == [5, 5, 32]
    assert [body["response_format"]["type"] for body in seen.bodies] == [
        "json_schema",
        "json_schema",
        "json_object",
    ]
    assert seen.bodies[0]["response_format"] == SCHEMA


def test_what_is_to_be_json_is_kept_without_its_reasoning() -> None:
    """Of every turn whose format asks for JSON, the workload's or its own; of no other."""

    def thinking(index: int) -> Iterator[Step]:
        yield HEAD + framed(ROLE) + framed(delta("", 1, reasoning="Hm."))
        yield framed(delta(f'{{"a": {index}}}', 2, "stop"))
        yield framed(final_usage(2)) + framed(DONE) + LAST_CHUNK

    plain_text: dict[str, JSON] = {"type": "text"}
    workload = replace(WORKLOAD, response_format={"type": "json_object"})
    talks = (talk("1", "a", "b"), replace(talk("2", "c"), response_format=plain_text))
    with stub(thinking) as seen:
        result = send(seen, *talks, workload=workload)
        other = send(seen, talk("1", "a"))
    assert [s.json_text for s in result.samples] == ['{"a": 0}', '{"a": 1}', None]
    assert result.samples[0].text == 'Hm.{"a": 0}'
    assert [s.json_text for s in other.samples] == [None]


def test_requests_name_the_adapter() -> None:
    """The model of a request is the adapter, if the workload has one."""
    with stub(lambda index: reply()) as seen:
        send(seen, talk("1", "a"), workload=replace(WORKLOAD, lora="sql"))
        send(seen, talk("1", "a"))
    assert [body["model"] for body in seen.bodies] == ["sql", "target"]
    assert "response_format" not in seen.bodies[1]
