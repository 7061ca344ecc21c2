"""Text of live sessions that comes otherwise than decoders expect it, and is meant all the same.

Base64 with line breaks, whole numbers with a fraction, and events in binary frames, as some clients and
proxies send them. `protocols/realtime/codec.py` and `protocols/calls/frames.py` decode by `decode_frame`; who
reads a socket asks `is_event` before it takes bytes for sound.
"""

from __future__ import annotations

import re
from typing import Final, TypeVar

import msgspec

from .decode_errors import read_fault
from .whole_numbers import expects_whole, without_fractions

T = TypeVar("T")

_BEGINS: Final = re.compile(rb'(?:\xef\xbb\xbf)?[ \t\r\n]*\[?[ \t\r\n]*\{[ \t\r\n]*"')
_MARKS: Final = (b'"type"', b'"event"')
_BREAKS: Final = re.compile(rb"\\[nrtf]|\\u000[9aAcCdD]|\\u0020| ")
_MOST: Final = 64 * 1024
"""Bytes that are decoded to find out."""
_any_decoder: Final = msgspec.json.Decoder(msgspec.Raw)


def is_event(frame: bytes) -> bool:
    """Whether a binary frame is an event, complete or cut: it begins as a JSON object.

    Those first bytes could be samples, so it must also have a field that names an event, or be valid JSON.
    """
    if _BEGINS.match(frame) is None:
        return False
    return any(mark in frame for mark in _MARKS) or (len(frame) <= _MOST and _is_json(frame))


def decode_frame(decoder: msgspec.json.Decoder[T], frame: str | bytes | msgspec.Raw) -> T:
    """What the decoder makes of it. Raises as that does, for what is wrong in the frame as it came."""
    try:
        return decoder.decode(frame)
    except msgspec.ValidationError as error:
        refusal = error
    try:
        text = frame.encode("utf-8", "surrogatepass") if isinstance(frame, str) else bytes(frame)
        message = str(refusal)
        while (mended := _mended(text, message)) != text:
            text = mended
            try:
                return decoder.decode(text)
            except msgspec.ValidationError as error:
                message = str(error)
        raise refusal
    finally:
        del refusal  # it and this frame would hold each other, and what the client has sent


def _mended(text: bytes, message: str) -> bytes:
    if expects_whole(message):
        return without_fractions(text)
    if "base64" not in message[:100]:
        return text
    name = re.escape(read_fault(message).param.rpartition(".")[2].encode())
    field = re.compile(rb'("%b"\s*:\s*")([^"\\]*(?:\\.[^"\\]*)*)' % name)
    return field.sub(lambda found: found[1] + _BREAKS.sub(b"", found[2]), text)


def _is_json(frame: bytes) -> bool:
    try:
        _any_decoder.decode(frame)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True
