"""What a stream of audio bytes is: encoding and rate. Knows bytes and milliseconds, not samples' values.

`media/pcm.py` turns such bytes into samples.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Encoding = Literal["pcm16", "pcmu", "pcma", "float32"]

_BYTES_PER_SAMPLE: Final[dict[str, int]] = {"pcm16": 2, "pcmu": 1, "pcma": 1, "float32": 4}

INTERNAL_RATE: Final = 16_000
"""Samples per second of every timeline inside the server (mono float32)."""

SUPPORTED_RATES: Final = (8_000, 16_000, 24_000, 48_000)
"""Rates a client may name for `audio/pcm`; G.711 (pcmu, pcma) is 8 kHz by definition."""


class AudioFormat(msgspec.Struct, frozen=True):
    """Mono audio as bytes: little-endian pcm16 or float32, or G.711 mu-law / A-law."""

    encoding: Encoding = "pcm16"
    rate: int = 24_000

    @property
    def bytes_per_sample(self) -> int:
        """Bytes of one sample."""
        return _BYTES_PER_SAMPLE[self.encoding]

    @property
    def bytes_per_second(self) -> int:
        """Bytes of one second."""
        return self.bytes_per_sample * self.rate


def samples_to_ms(num_samples: int) -> int:
    """Whole milliseconds of a position on the internal 16 kHz timeline (rounded down)."""
    return num_samples * 1000 // INTERNAL_RATE


def ms_to_samples(ms: float) -> int:
    """Samples on the internal 16 kHz timeline."""
    return round(ms * INTERNAL_RATE / 1000)
