"""Server-sent events out of body pieces, each with the time at which it was complete.

Law: events are cut at blank lines, wherever the pieces were cut; an event belongs to the piece
that completed it. (WHATWG HTML, 9.2.6: a last event without its blank line is no event.)
"""

import re
from collections.abc import Iterator, Sequence

_BLANK_LINE = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2}")
_LINE = re.compile(rb"\r\n|\n|\r")
_PLAIN = b"data: "


def events(times: Sequence[float], pieces: Sequence[bytes]) -> Iterator[tuple[float, bytes]]:
    """The data of each event, and when the last of its bytes arrived."""
    body = b"".join(pieces)
    index, arrived, start = 0, 0, 0
    for blank in _BLANK_LINE.finditer(body):
        while arrived < blank.end():
            arrived += len(pieces[index])
            index += 1
        data = _data(body[start : blank.start()])
        start = blank.end()
        if data is not None:
            yield times[index - 1], data


def _data(event: bytes) -> bytes | None:
    """The joined `data:` lines; None for a comment or an event without any."""
    if event.startswith(_PLAIN) and b"\n" not in event and b"\r" not in event:
        return event[len(_PLAIN) :]
    lines = [line[5:] for line in _LINE.split(event) if line.startswith(b"data:")]
    return b"\n".join(line.removeprefix(b" ") for line in lines) if lines else None
