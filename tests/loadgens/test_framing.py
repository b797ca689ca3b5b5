"""The reply parser: the same body comes out however the bytes were cut."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.loadgens._framing import MalformedReplyError, Reply

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def fed(*segments: bytes) -> Reply:
    """A reply that got these segments at times 0, 1, 2, ..."""
    result = Reply(0.0)
    for time, segment in enumerate(segments):
        result.feed(float(time), segment)
    return result


def cut(data: bytes, at: list[int]) -> list[bytes]:
    """The data cut at these places, taken modulo its length."""
    places = [0, *sorted({place % len(data) for place in at} - {0}), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(places)]


@settings(deadline=None)
@given(
    chunks=st.lists(st.binary(min_size=1, max_size=40), max_size=8),
    at=st.lists(st.integers(0, 10_000), max_size=30),
    trailer=st.sampled_from([b"", b"Digest: x\r\n"]),
    extension=st.sampled_from([b"", b";a=b"]),
)
def test_chunked_body_survives_any_cut(
    chunks: list[bytes], at: list[int], trailer: bytes, extension: bytes
) -> None:
    """Chunked bodies come out whole, and are complete exactly at their last byte."""
    framed = b"".join(b"%X%s\r\n%s\r\n" % (len(c), extension, c) for c in chunks)
    segments = cut(CHUNKED + framed + b"0\r\n" + trailer + b"\r\n", at)
    assert not fed(*segments[:-1]).complete
    reply = fed(*segments)
    assert reply.complete
    assert b"".join(reply.pieces) == b"".join(chunks)


@settings(deadline=None)
@given(body=st.binary(max_size=60), at=st.lists(st.integers(0, 10_000), max_size=20))
def test_counted_body_survives_any_cut(body: bytes, at: list[int]) -> None:
    """A body with a content-length ends there."""
    head = b"HTTP/1.1 404 Not Found\r\ncontent-length: %d\r\n\r\n" % len(body)
    reply = fed(*cut(head + body, at))
    assert reply.complete
    assert (reply.status, b"".join(reply.pieces)) == (404, body)


def test_times_are_those_of_the_segment() -> None:
    """A piece carries the time at which its bytes arrived, several pieces may share it."""
    reply = fed(CHUNKED, b"1\r\na\r\n1\r\nb\r\n", b"2\r\nc", b"d\r\n0\r\n\r\n")
    assert list(zip(reply.times, reply.pieces, strict=True)) == [
        (1.0, b"a"),
        (1.0, b"b"),
        (2.0, b"c"),
        (3.0, b"d"),
    ]


def test_body_without_length_ends_with_the_connection() -> None:
    """HTTP/1.0 manners: closing is the end of such a body, and the break of any other."""
    reply = fed(b"HTTP/1.0 500 Oops\r\n\r\nbroken")
    reply.end_of_stream()
    assert reply.complete
    short = fed(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nbroken")
    short.end_of_stream()
    assert not short.complete


def test_interim_reply_is_passed_over() -> None:
    """A 100 Continue before the reply is not the reply."""
    reply = fed(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    assert (reply.status, reply.complete) == (200, True)


def test_connection_close_is_noticed() -> None:
    """A server that will close is not asked again on this connection."""
    assert not fed(b"HTTP/1.1 200 OK\r\nConnection: close\r\ncontent-length: 0\r\n\r\n").keep_alive


@pytest.mark.parametrize(
    "segments",
    [
        [b"SSH-2.0-OpenSSH_9.6\r\n\r\n"],
        [CHUNKED, b"zz\r\n"],
        [CHUNKED, b"-1\r\n"],
        [CHUNKED, b"\r\n"],
        [b"HTTP/1.1 200 OK\r\ncontent-length: 1_0\r\n\r\n"],
        [b"HTTP/1.1 2_0 OK\r\n\r\n"],
        [b"x" * 70_000],
    ],
)
def test_what_is_no_http_is_refused(segments: list[bytes]) -> None:
    """Anything else than HTTP/1.1 ends the reply instead of being guessed at."""
    with pytest.raises(MalformedReplyError):
        fed(*segments)
