"""Makes audio and video files in memory, in the formats the decoder is tested with; nothing is kept."""

from __future__ import annotations

import io
import struct
import wave
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import av
import numpy as np
import numpy.typing as npt
import soundfile
from av.stream import Disposition

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


PICTURES: Final = {"mpegts": "mpeg2video", "flv": "flv1", "webm": "libvpx", "mpeg": "mpeg1video"}


def timed(
    samples: FloatArray,
    move: Callable[[float], float | None],
    *,
    container: str,
    codec: str,
    rate: int = 16_000,
    layout: str = "mono",
    picture_times_s: Sequence[float] = (),
    format_options: dict[str, str] | None = None,
) -> bytes:
    """A file whose packets are moved in time: `move` takes when one begins, in seconds, and gives when it
    shall; None leaves it out. With a picture at each of the times, if there are any."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container, options=format_options or {}) as file:
        pictures = None
        if picture_times_s:
            pictures = file.add_stream(PICTURES.get(container, "mpeg4"), rate=25)
            pictures.width = pictures.height = 32
        sound = file.add_stream(codec, rate=rate, layout=layout)
        packets: list[av.Packet] = []
        for packet in _packets(sound, samples, rate):
            assert packet.pts is not None
            assert packet.time_base is not None
            stamp_s = move(float(packet.pts * packet.time_base))
            if stamp_s is not None:
                packet.pts = packet.dts = round(stamp_s / packet.time_base)
                packets.append(packet)
        for time_s in picture_times_s:
            assert pictures is not None
            frame = av.VideoFrame.from_ndarray(np.full((32, 32, 3), 128, np.uint8), format="rgb24")
            frame.pts = round(time_s * 25)
            packets += pictures.encode(frame)
        if pictures is not None:
            packets += pictures.encode(None)
        for packet in sorted(packets, key=lambda each: (each.dts or 0) * (each.time_base or 0)):
            file.mux(packet)
    return buffer.getvalue()


def tracks(
    *sounds: FloatArray,
    default: int | None = None,
    container: str = "matroska",
    codec: str = "flac",
    rate: int = 16_000,
    format_options: dict[str, str] | None = None,
) -> bytes:
    """A file with several audio tracks, one of which may be flagged as the default one."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container, options=format_options or {}) as file:
        streams = [file.add_stream(codec, rate=rate, layout="mono") for _ in sounds]
        for place, stream in enumerate(streams):
            stream.disposition = Disposition.default if place == default else Disposition(0)
        for stream, samples in zip(streams, sounds, strict=True):
            for packet in _packets(stream, samples, rate):
                file.mux(packet)
    return buffer.getvalue()


def caf(samples: FloatArray, *, codec: str, rate: int, frame: int, priming: int) -> bytes:
    """AAC or Opus as iPhones write it: a cookie, a table of packets with what is priming, and the packets."""
    with av.open(io.BytesIO(), "w", format="matroska") as file:
        stream = file.add_stream(codec, rate=rate, layout="mono")
        packets = [bytes(packet) for packet in _packets(stream, samples, rate) if packet.size]
        cookie = bytes(stream.codec_context.extradata or b"")
    if codec == "aac":
        config = _descriptor(4, b"\x40\x15" + bytes(11) + _descriptor(5, cookie))
        cookie = _descriptor(3, bytes(3) + config + _descriptor(6, b"\2"))
    kind = {"aac": b"aac ", "libopus": b"opus"}[codec]
    rest = len(packets) * frame - priming - len(samples)
    table = b"".join(bytes([len(each) >> 7 | 0x80, len(each) & 0x7F]) for each in packets)
    chunks = {
        b"desc": struct.pack(">d4sIIIII", rate, kind, 0, 0, frame, 1, 0),
        b"kuki": cookie,
        b"pakt": struct.pack(">qqii", len(packets), len(samples), priming, rest) + table,
        b"data": bytes(4) + b"".join(packets),
    }
    written = (name + struct.pack(">q", len(body)) + body for name, body in chunks.items())
    return b"caff\0\1\0\0" + b"".join(written)


def _descriptor(tag: int, body: bytes) -> bytes:
    return bytes([tag, 0x80, 0x80, 0x80, len(body)]) + body


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
