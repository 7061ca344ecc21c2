"""MP3 frame by frame (ISO/IEC 11172-3, 2.4.1), with what encoders tell in a first frame that is no sound.

That frame (`Xing` or `Info`, and LAME's part of it) says how many samples at the start and the end are
padding; they are left out as in a file. Only layer III is served. Read next: `framed.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .framed import FramedDemuxer
from .packets import Item, Packet, Track

_RATES: Final = (44_100, 48_000, 32_000)
_KBITS: Final = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
_LOW_KBITS: Final = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
_DECODER_DELAY: Final = 528 + 1
"""Samples by which every decoder of MP3 is late, as LAME counts them."""
INFO_NAMES: Final = (b"Xing", b"Info")
_VBRI: Final = b"VBRI"
_ENCODERS: Final = (b"LAME", b"Lavf", b"Lavc")


HEAD_BYTES: Final = 4


def frame_bytes(head: bytes) -> int:
    """Bytes of the frame of layer III that begins with these `HEAD_BYTES`; 0 if none does."""
    if len(head) < HEAD_BYTES or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return 0
    version, layer, kbits, rate = head[1] >> 3 & 3, head[1] >> 1 & 3, head[2] >> 4, head[2] >> 2 & 3
    if version == 1 or layer != 1 or kbits in (0, 15) or rate == 3:
        return 0
    is_high = version == 3
    hertz = _RATES[rate] >> (0 if is_high else 1 if version == 2 else 2)
    bits = 1000 * (_KBITS if is_high else _LOW_KBITS)[kbits]
    return (144 if is_high else 72) * bits // hertz + (head[2] >> 1 & 1)


def is_info_frame(frame: bytes) -> bool:
    """Whether a whole frame is no sound, but says what of the sound behind it is none."""
    at = _info_at(frame)
    return frame[at : at + 4] in INFO_NAMES or frame[36:40] == _VBRI


def _info_at(frame: bytes) -> int:
    """Where it would begin to say so: behind the side information."""
    is_mono, is_high = frame[3] >> 6 == 3, frame[1] >> 3 & 3 == 3
    return HEAD_BYTES + ((17 if is_mono else 32) if is_high else (9 if is_mono else 17))


class Mp3Demuxer(FramedDemuxer):
    """See `Demuxer`."""

    NAME = "MP3"
    HEAD_BYTES = HEAD_BYTES

    def __init__(self) -> None:
        super().__init__()
        self._has_begun = False
        self._position = 0
        self._first_padding: int | None = None
        """Decoded frame that the padding at the end begins with, where that was told, and where it ends."""
        self._end = 0

    def _length(self, head: bytes) -> int:
        return frame_bytes(head)

    def _frame(self, frame: bytes) -> Iterator[Item]:
        is_high = frame[1] >> 3 & 3 == 3
        size = 1152 if is_high else 576
        skip = self._read_info(frame, size) if is_info_frame(frame) else None
        if skip is not None or not self._has_begun:
            self._has_begun = True
            yield Track("mp3float", skip=skip or 0)
            if skip is not None:
                return
        end = self._position + size
        trim = 0
        if self._first_padding is not None and end >= self._first_padding and self._position < self._end:
            trim = min(end - self._first_padding, size)
        self._position = end
        yield Packet(frame, trim)

    def _read_info(self, frame: bytes, size: int) -> int:
        """How much to leave out at the start, of a frame that tells it: sound of its own begins there."""
        self._position, self._first_padding, self._end = 0, None, 0
        if frame[36:40] == _VBRI:
            return 0
        info = frame[_info_at(frame) :]
        flags = int.from_bytes(info[4:8])
        num_frames = int.from_bytes(info[8:12]) if flags & 1 else 0
        lame = info[8 + sum(length for bit, length in ((1, 4), (2, 4), (4, 100), (8, 4)) if flags & bit) :]
        if len(lame) < 24 or lame[:4] not in _ENCODERS:
            return 0
        delays = int.from_bytes(lame[21:24])
        if num_frames:
            self._end = num_frames * size
            self._first_padding = self._end - (delays & 4095) + _DECODER_DELAY
        return (delays >> 12) + _DECODER_DELAY
