"""What a WebSocket brings, cut so that it is handled in short steps: a few tiny frames at a time, and a large
one as several. The library that keeps the protocol takes all frames of a read in one go, 8 ms for a thousand,
and unmasks one when it is whole, 20 ms for 20 MB. Pure; for `actors/transport/websocket.py`.
"""

from __future__ import annotations

import math
from typing import Final

PIECE_BYTES: Final = 512 * 1024
FRAMES_AT_ONCE: Final = 64
_FIN: Final = 0x80
_MASKED: Final = 0x80
_OPCODES: Final = 0x0F
_DATA: Final = (0, 1, 2)
"""Opcodes: goes on, text, binary."""
_CONTROL: Final = (8, 9, 10)
_MAX_CONTROL: Final = 125
_KEY_BYTES: Final = 4


class FrameCutter:
    """Takes what a client sends, cut anywhere, and gives it back some frames at a time, those of more than
    twice `piece_bytes` as fragments of no fewer bytes. What is no frame that may be sent, or has more than
    `max_bytes`, is left as it is, and all behind it."""

    def __init__(self, *, max_bytes: int, piece_bytes: int = PIECE_BYTES) -> None:
        """`piece_bytes`: a multiple of 4, so that each piece has the frame's mask."""
        assert piece_bytes % _KEY_BYTES == 0
        self._max_bytes = max_bytes
        self._piece_bytes = piece_bytes
        self._head = b""
        """The beginning of a frame's, held back."""
        self._num_left: float = 0
        """Bytes of the piece's payload to come."""
        self._num_remaining = 0
        """Of the frame's, behind that piece."""
        self._last = 0
        """The first byte of its last piece."""
        self._key = b""

    def cut(self, data: bytes) -> tuple[bytes, bytes]:
        """The next bytes, with `FRAMES_AT_ONCE` frames at the most, and what of `data` is left: to be given
        again. The head of a frame is held back until it is whole."""
        if len(data) <= self._num_left and not self._num_remaining:
            self._num_left -= len(data)
            return data, b""
        data, self._head = self._head + data, b""
        out: list[bytes] = []
        begin = place = num_frames = 0  # what lies between the first two was looked at, and stays
        while place < len(data) and num_frames < FRAMES_AT_ONCE:
            if not self._num_left:
                size = self._begin_frame(data, place)
                if not size:
                    self._head = data[place:]
                    break
                num_frames += 1
                if self._num_remaining:
                    out += data[begin:place], self._next_head(data[place] & _OPCODES)
                    begin = place + size
                place += size
            num = int(min(self._num_left, len(data) - place))
            place += num
            self._num_left -= num
            if self._num_remaining and not self._num_left:
                out += data[begin:place], self._next_head(0)
                begin = place
        out.append(data[begin:place])
        return b"".join(out), b"" if self._head else data[place:]

    def _begin_frame(self, data: bytes, place: int) -> int:
        """Read the head of the frame there; its size, 0 if there is not all of it."""
        if len(data) < place + 2:
            return 0
        first, second = data[place], data[place + 1]
        opcode, length, size = first & _OPCODES, second & 0x7F, 2
        if length > _MAX_CONTROL:
            size += 2 if length == _MAX_CONTROL + 1 else 8
            if len(data) < place + size:
                return 0
            length = int.from_bytes(data[place + 2 : place + size])
        is_odd = first & ~(_FIN | _OPCODES) or not second & _MASKED or opcode not in _DATA + _CONTROL
        if is_odd or length > (self._max_bytes if opcode in _DATA else _MAX_CONTROL):
            self._num_left = math.inf
            return size
        if len(data) < place + size + _KEY_BYTES:
            return 0
        if length > 2 * self._piece_bytes:
            self._key = data[place + size : place + size + _KEY_BYTES]
            self._num_remaining, self._last = length, first & _FIN
        else:
            self._num_left = length
        return size + _KEY_BYTES

    def _next_head(self, opcode: int) -> bytes:
        """That of the next piece of a large frame."""
        is_last = self._num_remaining <= 2 * self._piece_bytes
        num = self._num_remaining if is_last else self._piece_bytes
        self._num_left, self._num_remaining = num, self._num_remaining - num
        first = opcode | (self._last if is_last else 0)
        return bytes((first, _MASKED | 0x7F)) + num.to_bytes(8) + self._key
