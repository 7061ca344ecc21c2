"""Heads of HTTP/1.1 that nobody can make long to read: two places in h11, mended for the whole process.

h11 bounds a head's bytes, not the time it takes. Its pattern of a header field backtracks: blanks that end in
a NUL cost the square of their number, 32 KiB of them many seconds in which nobody else is served. And each
field costs some microseconds, so that thousands of empty ones are too long, too. Here the pattern is one that
matches the same lines without going back, and fields are counted. Both hold for heads and for trailers, of
requests and of answers. Whoever opens an h11 connection imports this: `http_exchange.py`,
`actors/fetching/http_get.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import h11
from h11 import _readers

MAX_FIELDS: Final = 256
"""Lines of a head, or of a body's trailers: a millisecond and a half."""
_FIELD: Final = re.compile(
    rb"(?P<field_name>[-!#$%&'*+.^_`|~0-9a-zA-Z]++):[ \t]*+"
    rb"(?P<field_value>(?:[^\x00\s]++(?:[ \t]++[^\x00\s]++)*+)?+)[ \t]*+"
)
"""h11's own, with possessive quantifiers: no character fits two neighbours, so none is given back."""

_decode_header_lines = _readers._decode_header_lines


def _counted(lines: Iterable[bytes]) -> Iterable[tuple[bytes, bytes]]:
    """h11's fields of these lines. Raises LocalProtocolError (431), which h11 makes a remote one."""
    counted = list(lines)
    if len(counted) > MAX_FIELDS:
        raise h11.LocalProtocolError(f"more than {MAX_FIELDS} header fields", error_status_hint=431)
    return _decode_header_lines(counted)


def bound_heads() -> None:
    """Mend h11 in this process; again is nothing."""
    _readers.header_field_re = _FIELD
    _readers._decode_header_lines = _counted
