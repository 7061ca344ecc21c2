"""What one answer may take: bytes, lines and time, whatever the server does. Knows no sockets.

Read next: `client/client.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from .errors import APIError, SensoriumTimeoutError
from .options import ClientOptions

_MIB: Final = 1024 * 1024
MAX_ANSWER_BYTES: Final = 64 * _MIB
"""Of a whole answer; that of a day of speech with the times of all words has some 20 MB."""
MAX_LINE_BYTES: Final = 16 * _MIB
"""Of one line of an event stream."""
MAX_STREAM_BYTES: Final = 256 * _MIB
"""Of an event stream, comments included."""
_MAX_ERROR_BYTES: Final = _MIB
"""Of an answer that is an error: what comes after is not read."""


class Deadline:
    """The total time of one request, and of its answer once that has begun."""

    def __init__(self, options: ClientOptions) -> None:
        self._options = options
        self._limit_s = options.total_timeout_s
        self._at = time.monotonic() + self._limit_s

    def answer_begins(self) -> None:
        """A whole answer is sent in one piece: it takes no longer than a single wait."""
        at = time.monotonic() + self._options.timeout_s
        if at < self._at:
            self._at, self._limit_s = at, self._options.timeout_s

    def left_s(self) -> float:
        """Seconds that are left. Raises SensoriumTimeoutError if there are none."""
        left_s = self._at - time.monotonic()
        if left_s <= 0:
            raise self.error()
        return left_s

    def error(self) -> SensoriumTimeoutError:
        """What is raised once it has passed."""
        return SensoriumTimeoutError(
            f"the answer of {self._options.root_url} was not complete within {self._limit_s:g} s"
        )


class WholeBody:
    """The bytes of an answer that is read as a whole."""

    def __init__(self, status: int, encoding: str | None) -> None:
        """Raises APIError for an answer that is compressed: a few bytes of it can fill the memory."""
        check_encoding(status, encoding)
        self._status = status
        self._data = bytearray()

    def add(self, piece: bytes) -> bool:
        """Take the next bytes; False: no more are wanted. Raises APIError for too many."""
        self._data += piece
        if self._status >= 300:
            return len(self._data) < _MAX_ERROR_BYTES
        if len(self._data) > MAX_ANSWER_BYTES:
            raise _too_large(self._status, "an answer", MAX_ANSWER_BYTES)
        return True

    def data(self) -> bytes:
        """All of it."""
        return bytes(self._data)


class LineSplitter:
    """Bytes of an event stream → its lines, without their ends.

    Lines end as server-sent events have it: at LF, CR or both, and at no other separator of Unicode, which
    JSON may contain.
    """

    def __init__(self, status: int, encoding: str | None) -> None:
        """Raises APIError for a stream that is compressed."""
        check_encoding(status, encoding)
        self._status = status
        self._pieces: list[bytes] = []
        self._line_bytes = 0
        self._stream_bytes = 0

    def feed(self, data: bytes) -> Iterator[str]:
        """The lines that end in `data`. Raises APIError for a line or a stream that is too long."""
        self._stream_bytes += len(data)
        if self._stream_bytes > MAX_STREAM_BYTES:
            raise _too_large(self._status, "an event stream", MAX_STREAM_BYTES)
        for piece in data.splitlines(keepends=True):
            self._pieces.append(piece)
            self._line_bytes += len(piece)
            if self._line_bytes > MAX_LINE_BYTES:
                raise _too_large(self._status, "a line of an event stream", MAX_LINE_BYTES)
            if piece.endswith((b"\n", b"\r")):
                yield self._taken()

    def end(self) -> Iterator[str]:
        """The last line, if it has no end."""
        if self._pieces:
            yield self._taken()

    def _taken(self) -> str:
        line = b"".join(self._pieces).rstrip(b"\r\n").decode(errors="replace")
        self._pieces, self._line_bytes = [], 0
        return line


def check_encoding(status: int, encoding: str | None) -> None:
    """Raises APIError for an answer that is compressed, which no request allows."""
    if encoding and encoding.strip().lower() != "identity":
        raise APIError(
            status,
            None,
            None,
            f"the server compressed its answer ({encoding[:40]!r}), and only identity was accepted; "
            "let no proxy compress",
        )


def _too_large(status: int, what: str, limit: int) -> APIError:
    return APIError(status, None, None, f"the server sent {what} of more than {limit // _MIB} MiB")
