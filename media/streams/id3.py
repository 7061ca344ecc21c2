"""Tags between the frames of MP3 and ADTS streams, and around FLAC's: passed over as they come, however long
they are.

Used by `framed.py`, `flac.py` and `sniff.py`. Source: ID3v2.4, section 3.1; ID3v1 is 128 bytes that begin
with `TAG`.
"""

from __future__ import annotations

from typing import Final

HEAD_BYTES: Final = 10
_FOOTER: Final = 0x10
OLD_TAG: Final = b"TAG"
OLD_TAG_BYTES: Final = 128


def tag_length(buffer: bytes | bytearray, start: int) -> int | None:
    """Bytes of the tag at `start`; 0 if there is none, None if too few bytes are there to know."""
    head = bytes(buffer[start : start + HEAD_BYTES])
    if head.startswith(OLD_TAG):
        return OLD_TAG_BYTES
    if head[:3] == b"ID3":
        if len(head) < HEAD_BYTES:
            return None
        size = 0
        for byte in head[6:]:
            size = size << 7 | byte & 0x7F
        return HEAD_BYTES + size + (HEAD_BYTES if head[5] & _FOOTER else 0)
    is_maybe = len(head) < 3 and head and (b"ID3".startswith(head) or OLD_TAG.startswith(head))
    return None if is_maybe else 0
