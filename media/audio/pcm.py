"""Raw audio bytes of a live stream → float32 samples. One format, no state, no resampling.

Rates are not changed here: read `media/audio/resample.py` next. Files with headers are
`media/audio/decode.py`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from ...protocols.errors import BadRequestError
from ...protocols.shared.audio_format import AudioFormat

FloatArray = npt.NDArray[np.float32]

MAX_FLOAT_MAGNITUDE: Final = 1e6
"""Full scale is 1.0; anything this far outside is not audio, and would overflow float32 when filtered."""


def _mu_law_table() -> FloatArray:
    """All 256 codes of ITU-T G.711 mu-law as samples; 14-bit linear, full scale 8192."""
    code = ~np.arange(256) & 0xFF
    exponent, mantissa = (code >> 4) & 7, code & 15
    magnitude = ((2 * mantissa + 33) << exponent) - 33
    return (np.where(code & 0x80, -magnitude, magnitude) / 8192).astype(np.float32)


def _a_law_table() -> FloatArray:
    """All 256 codes of ITU-T G.711 A-law as samples; 13-bit linear, full scale 4096."""
    code = np.arange(256) ^ 0x55
    exponent, mantissa = (code >> 4) & 7, code & 15
    magnitude = np.where(exponent == 0, 2 * mantissa + 1, (2 * mantissa + 33) << np.maximum(exponent - 1, 0))
    return (np.where(code & 0x80, magnitude, -magnitude) / 4096).astype(np.float32)


_MU_LAW: Final = _mu_law_table()
_A_LAW: Final = _a_law_table()


class PcmDecoder:
    """Turns bytes of one `AudioFormat` into float32 samples with full scale 1.0.

    Stateless: every call takes whole samples, so a refused call changes nothing.
    """

    def __init__(self, format: AudioFormat) -> None:  # noqa: A002 (the field's name everywhere else)
        self.format = format

    def decode(self, data: bytes | bytearray | memoryview) -> FloatArray:
        """Samples of `data`, at the format's own rate, shape [channels, n].

        Raises BadRequestError (param `audio`, code `invalid_audio`) when the bytes end inside a sample, or
        when a float32 sample is not a finite number of sensible size.
        """
        size = self.format.bytes_per_frame
        num_bytes = len(data)
        if num_bytes % size:
            raise BadRequestError(
                f"The audio has {num_bytes} bytes, which is not a whole number of {size}-byte "
                f"{self.format.encoding} samples.",
                code="invalid_audio",
                param="audio",
            )
        samples = self._samples(data).reshape(-1, self.format.num_channels)
        return np.ascontiguousarray(samples.T)

    def _samples(self, data: bytes | bytearray | memoryview) -> FloatArray:
        """As they come, of all channels."""
        match self.format.encoding:
            case "pcm16":
                return np.frombuffer(data, "<i2").astype(np.float32) * np.float32(1 / 32768)
            case "pcmu":
                return _MU_LAW[np.frombuffer(data, np.uint8)]
            case "pcma":
                return _A_LAW[np.frombuffer(data, np.uint8)]
            case "float32":
                return _checked(np.frombuffer(data, "<f4").astype(np.float32))


def is_sound(samples: FloatArray) -> bool:
    """Whether all are finite numbers of sensible size: NaN fails the comparison, too."""
    return bool(np.all(np.abs(samples) <= MAX_FLOAT_MAGNITUDE))


def _checked(samples: FloatArray) -> FloatArray:
    if not is_sound(samples):
        raise BadRequestError(
            "The audio holds float32 samples that are not finite numbers near full scale (-1.0 to 1.0).",
            code="invalid_audio",
            param="audio",
        )
    return samples
