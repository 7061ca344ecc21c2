"""What MP3 and ADTS have in common: frames that follow each other, each with its length in its head.

Tags between them are skipped as they come. Bytes that are neither are searched for the next two frames that
follow each other, as in a stream that is entered in its middle. Read next: `mp3.py`, `adts.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

from .id3 import tag_length
from .packets import MAX_HEADER_BYTES, Item, StreamError


class FramedDemuxer(ABC):
    """See `Demuxer`."""

    NAME: ClassVar[str]
    """For messages."""
    HEAD_BYTES: ClassVar[int]

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._skipping = 0
        self._is_synced = True
        self._num_lost = 0
        """Bytes since the last frame that belong to none."""

    @abstractmethod
    def _length(self, head: bytes) -> int:
        """Bytes of the frame with this head; 0 if it is none."""

    @abstractmethod
    def _frame(self, frame: bytes) -> Iterator[Item]:
        """What a whole frame is."""

    def push(self, data: bytes) -> list[Item]:
        """See `Demuxer.push`."""
        skipped = min(self._skipping, len(data))
        self._skipping -= skipped
        self._buffer += data[skipped:]
        items: list[Item] = []
        start = 0
        while (step := self._step(start)) is not None:
            length, is_frame = step
            if is_frame:
                items += self._frame(bytes(self._buffer[start : start + length]))
            self._skipping = max(0, start + length - len(self._buffer))
            start = min(start + length, len(self._buffer))
        del self._buffer[:start]
        return items

    def end(self) -> list[Item]:
        """The last frame, where it was to be seen whether another one follows it."""
        if self._is_synced or not (length := self._length(bytes(self._buffer[: self.HEAD_BYTES]))):
            return []
        if len(self._buffer) < length:
            return []
        frame = bytes(self._buffer[:length])
        del self._buffer[:length]
        self._is_synced = True
        return list(self._frame(frame))

    def _step(self, start: int) -> tuple[int, bool] | None:
        """How far to go, and whether over a frame; None if more bytes are needed to see that."""
        buffer = self._buffer
        # What looks like a tag among bytes that are no frames would depend on where they were cut.
        tag = tag_length(buffer, start) if self._is_synced else 0
        if tag is None or len(buffer) < start + self.HEAD_BYTES:
            return None
        if tag:
            return tag, False
        length = self._length(bytes(buffer[start : start + self.HEAD_BYTES]))
        if length and not self._is_synced:
            after = bytes(buffer[start + length : start + length + self.HEAD_BYTES])
            if len(after) < self.HEAD_BYTES:
                return None
            length = length if self._length(after) else 0
        if not length:
            self._is_synced = False
            found = buffer.find(b"\xff", start + 1)
            lost = (found if found >= 0 else len(buffer)) - start
            self._num_lost += lost
            if self._num_lost > MAX_HEADER_BYTES:
                raise StreamError(f"no {self.NAME} frame came within {MAX_HEADER_BYTES} bytes")
            return lost, False
        if len(buffer) < start + length:
            return None
        self._is_synced, self._num_lost = True, 0
        return length, True
