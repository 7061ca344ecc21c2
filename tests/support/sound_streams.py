"""Streams as browsers and bridges send them, made in memory: whole, chained, with several tracks."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from sensorium.media.streams.decoder import StreamDecoder
from sensorium.media.streams.ogg import checksum
from sensorium.protocols.shared.container_format import StreamContainer
from support.audio_files import FloatArray, encoded, tone

OPUS_RATE: Final = 48_000
FRAGMENTED: Final = {"movflags": "frag_keyframe+empty_moov+default_base_moof", "frag_duration": "200000"}
"""How a browser writes MP4."""


def voice(seconds: float, *, rate: int = OPUS_RATE, hz: float = 300.0) -> FloatArray:
    """A tone with noise, so that no two packets are alike."""
    noise = np.random.default_rng(round(hz)).standard_normal(round(seconds * rate))
    return tone(seconds, rate=rate, hz=hz) + (0.02 * noise).astype(np.float32)


def webm(samples: FloatArray, *, layout: str = "mono") -> bytes:
    """As a page's recorder writes it."""
    return encoded(samples, container="webm", codec="libopus", rate=OPUS_RATE, layout=layout)


def ogg(samples: FloatArray, *, layout: str = "mono", serial: int = 1) -> bytes:
    """One link of a chain."""
    data = encoded(samples, container="ogg", codec="libopus", rate=OPUS_RATE, layout=layout)
    return b"".join(ogg_page(page, serial=serial) for page in ogg_pages(data))


def ogg_pages(data: bytes) -> Iterator[bytes]:
    """The pages of an Ogg stream."""
    at = 0
    while at < len(data):
        num_segments = data[at + 26]
        size = 27 + num_segments + sum(data[at + 27 : at + 27 + num_segments])
        yield data[at : at + size]
        at += size


def ogg_page(page: bytes, *, serial: int) -> bytes:
    """The same page of another stream."""
    head = page[:14] + struct.pack("<I", serial) + page[18:22]
    return head + struct.pack("<I", checksum(head + bytes(4) + page[26:])) + page[26:]


def streamed(data: bytes, cuts: Sequence[int] = (), *, container: StreamContainer = "auto") -> FloatArray:
    """What a stream decodes to that comes in pieces cut there."""
    decoder = StreamDecoder(container)
    parts: list[FloatArray] = []
    for start, end in pairwise([0, *sorted(cuts), len(data)]):
        decoder.push(data[start:end])
        while decoder.has_more:
            parts.append(decoder.take())
    parts.append(decoder.take_last())
    while decoder.has_more:
        parts.append(decoder.take_last())
    return np.concatenate(parts)
