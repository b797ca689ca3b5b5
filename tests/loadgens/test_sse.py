"""The splitter of server-sent events."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.loadgens._sse import events

LINES = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=30)


@settings(deadline=None)
@given(
    data=st.lists(LINES, max_size=8),
    at=st.lists(st.integers(0, 10_000), max_size=30),
    end=st.sampled_from([b"\n", b"\r\n", b"\r"]),
    comment=st.booleans(),
)
def test_events_survive_any_cut(data: list[str], at: list[int], end: bytes, comment: bool) -> None:  # noqa: FBT001
    """Wherever the bytes are cut, inside a character or a line end, the same events come out."""
    ping = b": ping" + end * 2 if comment else b""
    body = b"".join(ping + b"data: " + line.encode() + end * 2 for line in data)
    places = [0, *sorted({place % (len(body) + 1) for place in at}), len(body)]
    pieces = [body[a:b] for a, b in itertools.pairwise(places)]
    found = list(events([float(i) for i in range(len(pieces))], pieces))
    assert [event for _, event in found] == [line.encode() for line in data]
    assert [time for time, _ in found] == sorted(time for time, _ in found)


def test_event_has_the_time_of_its_last_byte() -> None:
    """An event in two segments arrived with the second; two in one arrived together."""
    pieces = [b"data: a", b"\n\ndata: b\n\ndata: c\n", b"\n"]
    assert list(events([1.0, 2.0, 3.0], pieces)) == [(2.0, b"a"), (2.0, b"b"), (3.0, b"c")]


def test_data_lines_are_joined_and_other_fields_dropped() -> None:
    """Several data lines are one event; a missing space and other fields do not matter."""
    pieces = [b"event: x\ndata:a\ndata: b\nid: 7\n\nretry: 9\n\n"]
    assert list(events([1.0], pieces)) == [(1.0, b"a\nb")]


def test_unfinished_event_is_none() -> None:
    """An event without its blank line has not arrived."""
    assert list(events([1.0], [b"data: [DONE]\n"])) == []
