"""Reads a form or a JSON body from a request while it arrives, within bounds on bytes, time and pace.

What is too large is refused before it is buffered; what then becomes of the rest is told in
`actors/transport/http_exchange.py`.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

import trio
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from ...protocols.errors import BadRequestError, RequestTimeoutError, TooLargeError
from ..runtime.byte_gatherer import gathered, gathering
from ..runtime.temp_files import disk_room

_JSON: Final = "application/json"
_MAX_FIELDS: Final = 192
"""Room for every keyword and language a form may list (`protocols/transcription/hints.py`)."""
_MAX_FIELD_BYTES: Final = 256 * 1024
"""But for `url`, which may be a data: URI and as large as a file."""
_FORM_OVERHEAD_BYTES: Final = 1024 * 1024
"""Boundaries, headers and text fields around the file."""
_STALL_S: Final = 30.0
_MIN_BYTES_PER_S: Final = 16 * 1024
"""A body may be this much slower than that altogether; without a pace, a byte now and then would hold one
of the few places for requests for ever."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A form: its text fields in order, and the bytes of its `file` part; None where it names a `url`."""

    fields: list[tuple[str, str]]
    data: bytes | None


async def read_upload(request: Request, *, max_bytes: int, has_url: bool = False) -> Upload:
    """Read the whole form; `has_url`: another place than the form names a `url`.

    Raises BadRequestError, TooLargeError or RequestTimeoutError, and starlette's ClientDisconnect if the
    client leaves meanwhile.
    """
    body = BodyChunks(request, max_bytes)
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise BadRequestError("The request must be multipart/form-data with a `file` or `url`.", param="file")
    body.check_announced(request.headers.get("content-length", ""))

    async def stream() -> AsyncGenerator[bytes, None]:
        async for chunk in body:
            yield chunk
        if not parser.is_whole:  # said here, so that the parser closes what it has opened
            raise MultiPartException("it was cut off, its closing boundary is missing")

    chunks = stream()
    parser = _Parser(request.headers, chunks, max_files=1, max_fields=_MAX_FIELDS)
    try:
        async with aclosing(chunks):
            with disk_room():  # what is large is spooled
                form = await parser.parse()
    except MultiPartException as error:
        raise BadRequestError(f"The form could not be read: {error.message}") from None
    try:
        file = form.get("file")
        fields = [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
        if file is None and (has_url or any(name == "url" and value for name, value in fields)):
            return Upload(fields, None)
        if not isinstance(file, UploadFile):
            raise BadRequestError("The form has no file in its part `file`, and no `url`.", param="file")
        if (file.size or 0) > max_bytes:
            raise _too_large(max_bytes)
        return Upload(fields, await file.read())
    finally:
        await form.close()


async def read_json_body(request: Request, *, max_bytes: int) -> bytes:
    """Read a whole JSON body. Raises as `read_upload` does."""
    body = BodyChunks(request, max_bytes, what="body")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("", _JSON):
        raise _not_json(kind)
    length = request.headers.get("content-length", "")
    body.check_announced(length)
    whole = gathering(length)
    async for chunk in body:
        # A page of anybody's may send bytes without a type, but not JSON, unless it is asked for.
        if chunk and not kind:
            raise _not_json("of no type")
        whole.write(chunk)
    return gathered(whole)


class _Parser(MultiPartParser):
    """Reads text as UTF-8 (as Latin-1 where it is not), whatever `charset` the request names.

    RFC 7578 knows no such parameter, and among Python's codecs are some that a client must not choose:
    they take quadratic time, fail with other errors, or give text that is not Unicode.
    """

    is_whole = False
    """The closing boundary was there."""

    def on_headers_finished(self) -> None:
        super().on_headers_finished()
        is_url = self._current_part.field_name == "url"
        self.max_part_size = sys.maxsize if is_url else _MAX_FIELD_BYTES  # the body is bounded

    def on_end(self) -> None:
        self.is_whole = True

    @property
    def _charset(self) -> str:
        return "utf-8"

    @_charset.setter
    def _charset(self, _: str) -> None: ...


class BodyChunks:
    """The chunks of a request's body. Refuses to go on when there are too many, or they come too slowly."""

    def __init__(self, request: Request, max_bytes: int, what: str = "file") -> None:
        """Raises BadRequestError for one that is compressed."""
        encoding = request.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):
            raise BadRequestError(
                f"The body has the header `Content-Encoding: {encoding[:80]}`; send it as it is, without one."
            )
        self._receive = request.receive
        self._max_bytes = max_bytes
        self._what = what
        self._room = max_bytes + (_FORM_OVERHEAD_BYTES if what == "file" else 0)
        self._ended = False
        self._deadline = trio.current_time() + _STALL_S

    def check_announced(self, length: str) -> None:
        """Refuse a Content-Length that is too large before reading anything."""
        if length.isdigit() and int(length) > self._room:
            raise _too_large(self._max_bytes, self._what)

    def __aiter__(self) -> BodyChunks:
        return self

    async def __anext__(self) -> bytes:
        if self._ended:
            raise StopAsyncIteration
        try:
            with trio.fail_at(self._deadline):
                message: Any = await self._receive()
        except trio.TooSlowError:
            raise RequestTimeoutError("The body arrives too slowly, or stopped arriving.") from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        self._ended = not message.get("more_body", False)
        chunk: bytes = message.get("body", b"")
        earned = self._deadline + len(chunk) / _MIN_BYTES_PER_S
        self._deadline = min(earned, trio.current_time() + _STALL_S)
        self._room -= len(chunk)
        if self._room < 0:
            raise _too_large(self._max_bytes, self._what)
        return chunk


def _not_json(kind: str) -> BadRequestError:
    return BadRequestError(
        f"The body must be sent with the header `Content-Type: {_JSON}`; it is {kind[:80]}."
    )


def _too_large(max_bytes: int, what: str = "file") -> TooLargeError:
    if what != "file":
        return TooLargeError(f"The {what} is larger than {max_bytes:,} bytes.")
    hint = "--max-upload-mib; sound is smaller as FLAC, Opus or MP3"
    return TooLargeError(f"The file is larger than {max_bytes:,} bytes ({hint}).", param="file")
