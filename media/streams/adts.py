"""AAC as radio sends it: ADTS frames that tell everything about themselves (ISO/IEC 13818-7, 6.2).

The decoder reads the head of each frame by itself, so frames go to it as they are. Read next: `framed.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .framed import FramedDemuxer
from .packets import Item, Packet, Track

HEAD_BYTES: Final = 7


def frame_bytes(head: bytes) -> int:
    """Bytes of the frame that begins with these `HEAD_BYTES`; 0 if none does."""
    if len(head) < HEAD_BYTES or head[0] != 0xFF or head[1] & 0xF6 != 0xF0 or head[2] >> 2 & 15 > 12:
        return 0
    length = (head[3] & 3) << 11 | head[4] << 3 | head[5] >> 5
    return length if length > HEAD_BYTES else 0


class AdtsDemuxer(FramedDemuxer):
    """See `Demuxer`."""

    NAME = "ADTS"
    HEAD_BYTES = HEAD_BYTES

    def __init__(self) -> None:
        super().__init__()
        self._has_begun = False

    def _length(self, head: bytes) -> int:
        return frame_bytes(head)

    def _frame(self, frame: bytes) -> Iterator[Item]:
        if not self._has_begun:
            self._has_begun = True
            yield Track("aac")
        yield Packet(frame)
