"""What a container taken apart gives: tracks and their packets, and the shape of what takes it apart.

A demuxer is a plain object that is fed bytes cut anywhere and answers with what became complete. It opens
nothing, knows no codec library, and can be pickled between two pieces, so that a stream may go on in another
process. Each container is a file (`matroska.py`, `ogg.py`, …); `decoder.py` makes samples of their packets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Protocol

Codec = Literal["opus", "aac", "mp3float", "flac", "pcm_f32le", "pcm_s16le"]
"""libavcodec's names of the decoders that are opened for streams; no other one ever is."""

MAX_HEADER_BYTES: Final = 1 << 20
"""Bytes that may come before the first audio packet; pictures in tags are most of them."""
MAX_PACKET_BYTES: Final = 1 << 17
"""Longest packet of one codec frame; uncompressed FLAC has the largest."""


def rounded(dividend: int, divisor: int) -> int:
    """The quotient of two numbers that are not negative, as libav rounds times: a half up."""
    return (2 * dividend + divisor) // (2 * divisor)


class StreamError(Exception):
    """The bytes are not what they claim to be, or not served; the message is fit for clients."""


@dataclass(frozen=True, slots=True)
class Track:
    """What the packets after it are. It begins a new decoder, unless it `goes_on`.

    `rate` and `num_channels` are needed for PCM only: everything else carries them itself.
    """

    codec: Codec
    extradata: bytes = b""
    rate: int = 0
    num_channels: int = 0
    skip: int = 0
    """Decoded frames to leave out at the start, where the codec does not know it by itself."""
    goes_on: bool = False
    """A link of a chain of Opus: the decoder of the one before is kept where it can do both."""
    time_base: tuple[int, int] = (1, 1)
    """Seconds of one unit of the packets' stamps: numerator, denominator."""
    zero_s: float | None = None
    """The stamp at which the stream begins; None: that of its first sample."""


class Packet(NamedTuple):
    """One packet of the codec, how many of its last decoded frames are padding, and when it begins.

    Without a stamp it follows the packet before it.
    """

    data: bytes
    trim: int = 0
    stamp: int | None = None


Item = Track | Packet


class Demuxer(Protocol):
    """Takes one container apart. Raises StreamError where it cannot go on; it is of no use afterwards."""

    def push(self, data: bytes) -> Sequence[Item]:
        """What became complete with `data`."""
        ...

    def end(self) -> Sequence[Item]:
        """What the last bytes were, as no more will come for now. More may come all the same."""
        ...
