"""Server-sent events out of body pieces, each with the time at which it was complete.

Law: events are cut at blank lines, wherever the pieces were cut; an event belongs to the piece
that completed it. (WHATWG HTML, 9.2.6: a last event without its blank line is no event.)
"""

import re
from collections.abc import Iterator, Sequence

_BLANK_LINE = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2}")
_LINE = re.compile(rb"\r\n|\n|\r")


def events(times: Sequence[float], pieces: Sequence[bytes]) -> Iterator[tuple[float, bytes]]:
    """The data of each event, and when the last of its bytes arrived."""
    plain = _one_each(pieces)
    if plain is not None:
        yield from zip(times, plain, strict=True)
        return
    held = b""
    for time, piece in zip(times, pieces, strict=True):
        *complete, held = _cut(held + piece)
        for event in complete:
            data = _data(event)
            if data is not None:
                yield time, data


def _one_each(pieces: Sequence[bytes]) -> list[bytes] | None:
    """The events, if each piece is a plain one: as servers write them; most of the time saved."""
    body = b"".join(pieces)
    if not body or b"\r" in body or body.count(b"\n") != 2 * len(pieces):
        return None
    if all(piece[:6] == b"data: " and piece[-2:] == b"\n\n" for piece in pieces):
        return body[6:-2].split(b"\n\ndata: ")
    return None


def _cut(body: bytes) -> list[bytes]:
    return _BLANK_LINE.split(body) if b"\r" in body else body.split(b"\n\n")


def _data(event: bytes) -> bytes | None:
    """The joined `data:` lines; None for a comment or an event without any."""
    lines = [line[5:] for line in _LINE.split(event) if line.startswith(b"data:")]
    return b"\n".join(line.removeprefix(b" ") for line in lines) if lines else None
