"""Gathers what arrives in pieces, tens of megabytes if need be, without a step that copies all of it."""

from __future__ import annotations

import io
from typing import Final

_SMALL_BYTES: Final = 1024 * 1024
_ROOM_BYTES: Final = 33 * 1024 * 1024
"""Pages of it are taken when they are written, and the kernel moves what grows beyond, since malloc has what
exceeds 32 MiB from there. A buffer that grew up to that is copied, in one step of 20 to 100 ms; so are pieces
that are joined at the end."""


def gathering(announced: str) -> io.BytesIO:
    """What pieces are written to; `announced` is the Content-Length, empty where there is none."""
    is_small = announced.isdigit() and len(announced) < 16 and int(announced) <= _SMALL_BYTES
    return io.BytesIO(b"" if is_small else bytes(_ROOM_BYTES))


def gathered(whole: io.BytesIO) -> bytes:
    """All that was written."""
    whole.truncate()
    return whole.getvalue()
