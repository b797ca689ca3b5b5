"""One HTTP/1.1 reply, from bytes as they arrive to body pieces with their time of arrival.

Law: nothing here waits, reads a clock or looks into the body. A reply knows only where it ends;
what it says is read after the pass, when nobody's tokens are waiting.
"""

from collections.abc import Callable

_HEAD_END = b"\r\n\r\n"
_CRLF = b"\r\n"
_CRLF_LENGTH = 2
_MAX_LINE = 65_536
_LENGTHS = {b"%x" % length: length for length in range(1, 1024)}
"""The size lines of small chunks."""


class MalformedReplyError(ValueError):
    """The bytes are not an HTTP/1.1 reply."""


class Reply:
    """What has come of one reply; `error` says why the connection gave no more."""

    def __init__(self, sent: float) -> None:
        self.sent = sent
        self.ended = sent
        self.status = 0
        self.times: list[float] = []
        self.pieces: list[bytes] = []
        self.complete = False
        self.keep_alive = True
        self.error: str | None = None
        self.stalled = False
        """Given up because no byte came for the whole of the timeout."""
        self._held = b""
        self._left = 0
        self._between = False
        """At the first byte of a chunk's size line."""
        self._feed: Callable[[float, bytes], None] = self._head

    def feed(self, now: float, data: bytes) -> bool:
        """Take what arrived at `now`; true once the reply is complete."""
        if self._between:
            # One whole chunk: what a server sends that writes each by itself. Half the time saved.
            line_end = data.find(_CRLF)
            start = line_end + _CRLF_LENGTH
            if start + _LENGTHS.get(data[:line_end], _MAX_LINE) + _CRLF_LENGTH == len(data):
                self.times.append(now)
                self.pieces.append(data[start:-_CRLF_LENGTH])
                return False
            self._between = False
        self._feed(now, data)
        return self.complete

    def end_of_stream(self) -> None:
        """The server closed: that completes a body without length, and breaks any other."""
        self.keep_alive = False
        if self._feed == self._until_close:
            self.complete = True

    def _head(self, now: float, data: bytes) -> None:
        data = self._held + data
        head, found, rest = data.partition(_HEAD_END)
        self._held = b"" if found else _bounded(data)
        if not found:
            return
        status, headers = _parse_head(head)
        if 100 <= status < 200:  # noqa: PLR2004 - 1xx: interim replies, the real one follows
            self._head(now, rest)
            return
        self.status = status
        self._choose_body(headers)
        if rest and not self.complete:
            self._feed(now, rest)

    def _choose_body(self, headers: dict[bytes, bytes]) -> None:
        self.keep_alive = headers.get(b"connection", b"").lower() != b"close"
        length = headers.get(b"content-length")
        if headers.get(b"transfer-encoding", b"").lower().endswith(b"chunked"):
            self._feed = self._chunked
        elif length is not None:
            self._left = _number(length, 10)
            self._feed = self._counted
            self.complete = self._left == 0
        else:
            self._feed = self._until_close

    def _counted(self, now: float, data: bytes) -> None:
        self._keep(now, data[: self._left])
        self._left -= min(len(data), self._left)
        self.complete = self._left == 0

    def _until_close(self, now: float, data: bytes) -> None:
        self._keep(now, data)

    def _chunked(self, now: float, data: bytes) -> None:
        """`_left` counts what the current chunk still owes, its closing CRLF included."""
        if self._held:
            data, self._held = self._held + data, b""
        at, size = 0, len(data)
        while at < size:
            if not self._left:
                at = self._next_chunk(now, data, at)
                continue
            taken = min(self._left, size - at)
            if self._left > _CRLF_LENGTH:
                self._keep(now, data[at : at + min(taken, self._left - _CRLF_LENGTH)])
            self._left -= taken
            at += taken
        self._between = not (self._left or self._held or self._feed != self._chunked)

    def _next_chunk(self, now: float, data: bytes, at: int) -> int:
        """Read the size line at `at`, and the chunk, too, if it is whole; where to go on."""
        size = len(data)
        line_end = data.find(_CRLF, at)
        if line_end < 0:
            self._held = _bounded(data[at:])
            return size
        length = _number(data[at:line_end], 16)
        start = line_end + _CRLF_LENGTH
        if not length:
            self._feed = self._trailer
            self._trailer(now, _CRLF + data[start:])
            return size
        end = start + length
        if end + _CRLF_LENGTH > size:
            self._left = length + _CRLF_LENGTH
            return start
        self.times.append(now)
        self.pieces.append(data[start:end])
        return end + _CRLF_LENGTH

    def _trailer(self, now: float, data: bytes) -> None:
        self._held += data
        self.complete = _HEAD_END in self._held

    def _keep(self, now: float, piece: bytes) -> None:
        self.times.append(now)
        self.pieces.append(piece)


def _parse_head(head: bytes) -> tuple[int, dict[bytes, bytes]]:
    first, *lines = head.split(_CRLF)
    version, _, rest = first.partition(b" ")
    if not version.startswith(b"HTTP/1."):
        raise MalformedReplyError(f"not an HTTP/1.1 reply: {first[:80]!r}")
    pairs = (line.partition(b":") for line in lines)
    return _number(rest[:3], 10), {name.lower(): value.strip() for name, _, value in pairs}


def _number(text: bytes, base: int) -> int:
    """A length, or a chunk's length with its extensions; no sign, no underscore."""
    digits = text if text.isalnum() else text.partition(b";")[0].strip()
    try:
        if digits.isalnum():
            return int(digits, base)
    except ValueError:
        pass
    raise MalformedReplyError(f"not a number: {text[:80]!r}")


def _bounded(line: bytes) -> bytes:
    if len(line) > _MAX_LINE:
        raise MalformedReplyError(f"a line of more than {_MAX_LINE} bytes")
    return line
