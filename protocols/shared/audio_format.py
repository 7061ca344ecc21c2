"""What a stream of audio bytes is: encoding and rate. Knows bytes and milliseconds, not samples' values.

`media/audio/pcm.py` turns such bytes into samples.
"""

from __future__ import annotations

import struct
from typing import Final, Literal

import msgspec

Encoding = Literal["pcm16", "pcmu", "pcma", "float32"]

_BYTES_PER_SAMPLE: Final[dict[str, int]] = {"pcm16": 2, "pcmu": 1, "pcma": 1, "float32": 4}

WIRE_TYPES: Final[dict[Encoding, str]] = {"pcm16": "audio/pcm", "pcmu": "audio/pcmu", "pcma": "audio/pcma"}
"""What sessions call those that their clients may send."""

INTERNAL_RATE: Final = 16_000
"""Samples per second of every timeline inside the server (mono float32)."""

SUPPORTED_RATES: Final = (8_000, 16_000, 24_000, 48_000)
"""Rates a client may name for `audio/pcm`; G.711 (pcmu, pcma) is 8 kHz by definition."""


class AudioFormat(msgspec.Struct, frozen=True):
    """Audio as bytes: little-endian pcm16 or float32, or G.711 mu-law / A-law; channels interleaved."""

    encoding: Encoding = "pcm16"
    rate: int = 24_000
    num_channels: int = 1

    @property
    def bytes_per_sample(self) -> int:
        """Bytes of one sample."""
        return _BYTES_PER_SAMPLE[self.encoding]

    @property
    def bytes_per_frame(self) -> int:
        """Bytes of one sample of every channel."""
        return self.bytes_per_sample * self.num_channels

    @property
    def bytes_per_second(self) -> int:
        """Bytes of one second."""
        return self.bytes_per_frame * self.rate


def samples_to_ms(num_samples: int) -> int:
    """Whole milliseconds of a position on the internal 16 kHz timeline (rounded down)."""
    return num_samples * 1000 // INTERNAL_RATE


def ms_to_samples(ms: float) -> int:
    """Samples on the internal 16 kHz timeline."""
    return round(ms * INTERNAL_RATE / 1000)


_WAVE_TAGS: Final[dict[Encoding, int]] = {"pcm16": 1, "float32": 3, "pcma": 6, "pcmu": 7}


def wave_file(data: bytes, audio_format: AudioFormat) -> bytes:
    """The same bytes as a WAV file (RIFF; source: Microsoft's WAVEFORMAT)."""
    head = struct.pack(
        "<HHIIHHH",
        _WAVE_TAGS[audio_format.encoding],
        audio_format.num_channels,
        audio_format.rate,
        audio_format.bytes_per_second,
        audio_format.bytes_per_frame,
        8 * audio_format.bytes_per_sample,
        0,
    )
    padded = data + bytes(len(data) % 2)
    parts = b"".join(
        (b"fmt ", struct.pack("<I", len(head)), head, b"data", struct.pack("<I", len(data)), padded)
    )
    return b"RIFF" + struct.pack("<I", 4 + len(parts)) + b"WAVE" + parts
