"""Whole numbers that are written with a fraction, as `16.0`: the same number, which msgspec refuses.

Some languages have one type of numbers and write them so. `protocols/shared/json_body.py` and
`protocols/realtime/codec.py` look here after a decoder has refused one.
"""

from __future__ import annotations

import re
from typing import Final

_REFUSED: Final = re.compile(r"Expected `[^`]*\bint\b[^`]*`, got `float`")
_WHOLE: Final = re.compile(rb"(?<![0-9.eE+])(-?[0-9]{1,20})\.0+(?![0-9.eE])")
MAX_STRINGS: Final = 200_000
"""Strings and quotation marks in them that are looked at; a text of more is left as it is."""


def expects_whole(message: str) -> bool:
    """Whether msgspec's message says that a whole number was expected, and another one came."""
    return _REFUSED.search(message[:1000]) is not None


def without_fractions(text: bytes) -> bytes:
    """The JSON text with `16.0` as `16`, but in strings; shorter, or as it was."""
    parts: list[bytes] = []
    at = 0
    for _ in range(MAX_STRINGS):
        begin = text.find(b'"', at)
        if begin < 0:
            parts.append(_WHOLE.sub(rb"\1", text[at:]))
            return b"".join(parts)
        parts.append(_WHOLE.sub(rb"\1", text[at:begin]))
        at = _string_end(text, begin)
        parts.append(text[begin:at])
    return text


def _string_end(text: bytes, begin: int) -> int:
    """The index after the quotation mark that closes the string which begins there."""
    at = begin + 1
    while (end := text.find(b'"', at)) >= 0:
        num_escapes = (end - at) - len(text[at:end].rstrip(b"\\"))
        if num_escapes % 2 == 0:
            return end + 1
        at = end + 1
    return len(text)
