"""How long an Opus packet is, by its first two bytes (RFC 6716, section 3). Decoding is libav's.

Used where a container tells positions: `ogg.py`.
"""

from __future__ import annotations

from typing import Final

OPUS_RATE: Final = 48_000
"""Opus counts at this rate, whatever was recorded."""
MAX_PACKET_FRAMES: Final = 5_760
"""120 ms; a packet that claims more is damaged."""
HEAD: Final = b"OpusHead"
TAGS: Final = b"OpusTags"

_SILK: Final = (480, 960, 1920, 2880)
_HYBRID: Final = (480, 960)
_CELT: Final = (120, 240, 480, 960)


def num_frames(packet: bytes) -> int:
    """Decoded frames at 48 kHz; 0 for an empty packet or one that is damaged."""
    if not packet:
        return 0
    config, code = packet[0] >> 3, packet[0] & 3
    if config < 12:
        each = _SILK[config & 3]
    elif config < 16:
        each = _HYBRID[config & 1]
    else:
        each = _CELT[config & 3]
    count = 1 if code == 0 else 2
    if code == 3:
        count = packet[1] & 63 if len(packet) > 1 else 0
    total = each * count
    return total if total <= MAX_PACKET_FRAMES else 0


def pre_skip(head: bytes) -> int:
    """Decoded frames at the start of a stream that are no sound, by its OpusHead."""
    return int.from_bytes(head[10:12], "little")


def is_same(head: bytes, other: bytes) -> bool:
    """Whether one decoder can do both: they differ in their pre-skip and in what was recorded at most."""
    return head.startswith(HEAD) and (head[:10], head[16:]) == (other[:10], other[16:])
