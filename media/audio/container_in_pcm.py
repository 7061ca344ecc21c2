"""Whether bytes that are to be raw samples begin a file instead, as a client sends one by mistake.

Only beginnings count that samples hardly ever have by chance. A WAV file that holds just the samples which
are expected is none: what is in front of them is a click.
"""

from __future__ import annotations

import struct
from typing import Final

from ...protocols.errors import BadRequestError
from ...protocols.shared.audio_format import AudioFormat, Encoding
from .containers import Container, sniff

_WIRE_TYPES: Final[dict[Container, str]] = {
    "matroska": "audio/webm",
    "ogg": "audio/ogg",
    "mp4": "audio/mp4",
    "mp3": "audio/mpeg",
    "flac": "audio/flac",
    "aac": "audio/aac",
}
"""How a session that takes the container names it."""
_SURE: Final = (
    b"fLaC",
    b"OggS",
    b"\x1a\x45\xdf\xa3",
    b"RIFF",
    b"RIFX",
    b"RF64",
    b"FORM",
    b"ID3",
    b"#!AMR",
    b"FLV",
)
_ENCODINGS: Final[dict[tuple[int, int], Encoding]] = {
    (1, 16): "pcm16",
    (3, 32): "float32",
    (6, 8): "pcma",
    (7, 8): "pcmu",
}
"""By a WAV file's format tag and bits of a sample."""
_WAVE_HEAD: Final = 36


def refusal_of_file(data: bytes, expected: AudioFormat) -> BadRequestError | None:
    """Why the first bytes of a stream are not samples of the expected format; None: they may be."""
    if not data.startswith(_SURE) and data[4:8] != b"ftyp":
        return None
    container = sniff(data)
    if container is None or (container == "wav" and _wave_format(data) in (expected, None)):
        return None
    ours = f"{expected.encoding} samples of {expected.rate} Hz"
    if (named := _WIRE_TYPES.get(container)) is not None:
        way = f'set `session.audio.input.format` to {{"type": "{named}"}}, or send samples'
    elif container == "wav" and (found := _wave_format(data)) is not None:
        channels = "" if found.num_channels == 1 else f" and {found.num_channels} channels"
        way = (
            f"its samples are {found.encoding} of {found.rate} Hz{channels}; set `session.audio.input.format`"
        )
    else:
        way = "send samples, or the file to /v1/audio/transcriptions"
    return BadRequestError(
        f"The `audio` is the beginning of a file ({container}), and the session expects {ours}; {way}. "
        "Audio is ignored until the format is set, or the buffer cleared or committed.",
        code="unexpected_container",
        param="audio",
    )


def _wave_format(data: bytes) -> AudioFormat | None:
    """What the samples of a WAV file are; None where its first bytes do not state it."""
    if len(data) < _WAVE_HEAD or data[:4] != b"RIFF" or data[12:16] != b"fmt ":
        return None
    tag, num_channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", data, 20)
    encoding = _ENCODINGS.get((tag, bits))
    return None if encoding is None else AudioFormat(encoding, rate, num_channels)
