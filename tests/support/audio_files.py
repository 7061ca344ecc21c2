"""Makes audio and video files in memory, in the formats the decoder is tested with; nothing is kept."""

from __future__ import annotations

import io
import wave
from collections.abc import Iterator
from typing import Final

import av
import numpy as np
import numpy.typing as npt
import soundfile

FloatArray = npt.NDArray[np.float32]

_CHUNK_SAMPLES: Final = 48_000


def tone(seconds: float, *, rate: int = 16_000, hz: float = 440.0, amplitude: float = 0.4) -> FloatArray:
    """A sine, shape [n]."""
    times = np.arange(round(seconds * rate)) / rate
    return (amplitude * np.sin(2 * np.pi * hz * times)).astype(np.float32)


def encoded(
    samples: FloatArray,
    *,
    container: str,
    codec: str,
    rate: int = 16_000,
    layout: str = "mono",
    options: dict[str, str] | None = None,
    format_options: dict[str, str] | None = None,
) -> bytes:
    """Mono samples as a file; `container` and `codec` are libav's names."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container, options=format_options or {}) as file:
        stream = file.add_stream(codec, rate=rate, layout=layout, options=options or {})
        for packet in _packets(stream, samples, rate):
            file.mux(packet)
    return buffer.getvalue()


def video(samples: FloatArray | None, *, container: str = "mp4", rate: int = 44_100) -> bytes:
    """Half a second of grey video, with sound if `samples` is given."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container) as file:
        pictures = file.add_stream("mpeg4", rate=10)
        pictures.width = pictures.height = 64
        sound = None if samples is None else file.add_stream("aac", rate=rate, layout="mono")
        for _ in range(5):
            frame = av.VideoFrame.from_ndarray(np.full((64, 64, 3), 128, np.uint8), format="rgb24")
            file.mux(pictures.encode(frame))
        file.mux(pictures.encode(None))
        if sound is not None and samples is not None:
            for packet in _packets(sound, samples, rate):
                file.mux(packet)
    return buffer.getvalue()


def _packets(stream: av.AudioStream, samples: FloatArray, rate: int) -> Iterator[av.Packet]:
    context = stream.codec_context
    resampler = av.AudioResampler(format=context.format.name, layout=context.layout.name, rate=rate)
    for start in range(0, len(samples), _CHUNK_SAMPLES):
        chunk = np.ascontiguousarray(samples[start : start + _CHUNK_SAMPLES][None])
        frame = av.AudioFrame.from_ndarray(chunk, format="flt", layout="mono")
        frame.rate = rate
        frame.pts = start
        for converted in resampler.resample(frame):
            yield from stream.encode(converted)
    for converted in resampler.resample(None):
        yield from stream.encode(converted)
    yield from stream.encode(None)


def sound_file(
    samples: FloatArray, *, rate: int = 16_000, kind: str = "WAV", subtype: str = "PCM_16"
) -> bytes:
    """Samples [n] or [n, channels] as a file of libsndfile."""
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, format=kind, subtype=subtype)
    return buffer.getvalue()


def plain_wav(samples: FloatArray, *, rate: int = 16_000) -> bytes:
    """The 44-byte-header 16-bit WAV everybody writes: data size at byte 40, RIFF size at byte 4."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((samples * 32767).astype("<i2").tobytes())
    return buffer.getvalue()
