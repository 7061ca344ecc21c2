"""Files inside of JSON: base64 and `data:` URIs → bytes, in slices that let other threads run.

As RFC 2397 has them, in capitals or not; base64 may be broken into lines, as MIME's is. Errors name the
field. Knows no kinds of files; read next: `protocols/chat/content.py`.
"""

from __future__ import annotations

import binascii
import io
import re
from typing import Final

from msgspec import Raw

from ..errors import BadRequestError, wrong
from .json_body import decoder, shown

DATA_URI: Final = re.compile(
    r"data:(?P<type>[\w.+-]+/[\w.+-]+)?(?P<params>(?:;[\w.+-]+=[^;,]*)*);base64,", re.IGNORECASE
)
HEAD_CHARS: Final = 256
"""Of a URI, among which its type and parameters are."""
_SLICE: Final = 1 << 18
"""Characters of base64 decoded in one call."""
_SPACE: Final = b" \t\n\r\f"
_ESCAPE_CHARS: Final = 6
"""The longest escape of JSON."""

_decode_text = decoder(str)


def inside(text: memoryview, param: str) -> memoryview:
    """What is between the quotes of a JSON string, its escapes undone. Raises BadRequestError."""
    if bytes(text[:1]) != b'"':
        _decode_text(Raw(text), param)  # raises
    slices = (bytes(text[at : at + _SLICE]) for at in range(0, len(text), _SLICE))
    return _unescaped(text[1:-1], param) if any(b"\\" in each for each in slices) else text[1:-1]


def _unescaped(text: memoryview, param: str) -> memoryview:
    whole, at = io.BytesIO(), 0
    while at < len(text):
        piece = bytes(text[at : at + _SLICE])
        if at + _SLICE < len(text) and (cut := piece.rfind(b"\\", 1 - _ESCAPE_CHARS)) > 0:
            piece = piece[:cut]  # not inside of an escape; whoever escapes a backslash writes no base64
        try:
            whole.write(_decode_text(Raw(b'"%b"' % piece), param).encode("utf-8", "replace"))
        except BadRequestError:
            raise _not_base64(param) from None
        at += len(piece)
    return memoryview(whole.getvalue())


def read_base64(text: Raw, param: str) -> bytes:
    """The bytes of a JSON string of base64. Raises BadRequestError naming `param`."""
    return from_base64(inside(memoryview(text), param), param)


def read_data_uri(url: Raw, param: str) -> bytes:
    """The bytes of a `data:` URI, a JSON string. Raises BadRequestError naming `param`."""
    return from_data_uri(inside(memoryview(url), param), param)


def read_data_text(url: str, param: str) -> bytes:
    """The bytes of a `data:` URI that did not come in JSON. Raises BadRequestError naming `param`."""
    return from_data_uri(memoryview(url.encode("utf-8", "replace")), param)


def from_data_uri(text: memoryview, param: str) -> bytes:
    """The bytes of a `data:` URI. Raises BadRequestError naming `param`."""
    start = bytes(text[:HEAD_CHARS]).decode("utf-8", "replace")
    if start[:8].lower().startswith(("http://", "https://")):
        raise BadRequestError(
            f"`{param}`: addresses are not fetched here; send the file as a data: URI "
            "(data:image/png;base64,…)",
            param=param,
            code="unsupported_url",
        )
    head = DATA_URI.match(start)
    if head is None:
        raise wrong(param, f"is {shown(start)}; allowed: a data: URI in base64 (data:image/png;base64,…)")
    return from_base64(text[head.end() :], param)


def from_base64(text: memoryview, param: str) -> bytes:
    """The bytes of base64, slice by slice: a thread that decodes tens of megabytes in one call keeps all
    others from running. Raises BadRequestError naming `param`."""
    found, rest, is_padded = io.BytesIO(), b"", False
    try:
        for at in range(0, len(text), _SLICE):
            piece = bytes(text[at : at + _SLICE])
            if any(each in piece for each in _SPACE):
                piece = piece.translate(None, _SPACE)
            piece = rest + piece
            end = len(piece) if at + _SLICE >= len(text) else len(piece) // 4 * 4
            piece, rest = piece[:end], piece[end:]
            if piece and is_padded:
                raise binascii.Error("padding before the end")
            is_padded |= found.write(binascii.a2b_base64(piece, strict_mode=True)) < len(piece) // 4 * 3
    except binascii.Error:
        raise _not_base64(param) from None
    return found.getvalue()


def _not_base64(param: str) -> BadRequestError:
    return wrong(param, "is not valid base64")
