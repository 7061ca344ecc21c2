"""AAC as radio sends it: ADTS frames that tell everything about themselves (ISO/IEC 13818-7, 6.2).

The decoder reads the head of each frame by itself, so frames go to it as they are. Read next: `framed.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from .framed import FramedDemuxer
from .packets import Item, Packet, Track


class AdtsDemuxer(FramedDemuxer):
    """See `Demuxer`."""

    NAME = "ADTS"
    HEAD_BYTES = 7

    def __init__(self) -> None:
        super().__init__()
        self._has_begun = False

    def _length(self, head: bytes) -> int:
        if len(head) < self.HEAD_BYTES or head[0] != 0xFF or head[1] & 0xF6 != 0xF0 or head[2] >> 2 & 15 > 12:
            return 0
        length = (head[3] & 3) << 11 | head[4] << 3 | head[5] >> 5
        return length if length > self.HEAD_BYTES else 0

    def _frame(self, frame: bytes) -> Iterator[Item]:
        if not self._has_begun:
            self._has_begun = True
            yield Track("aac")
        yield Packet(frame)
