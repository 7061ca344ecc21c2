"""Damaged, lying and hostile media files, made from good ones by a seed: the same seed, the same files.

What is asked of a decoder: a result or a client's error, in bounded time and memory; never anything else.
`examples/benchmarks/hostile_media.py` tries thousands of them in real workers, the suite a few.
"""

from __future__ import annotations

import io
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from PIL import Image
from sensorium.protocols.chat.frame_list import pack_frames

from .audio_files import encoded, sound_file, tone
from .vision_files import grey_steps, movie, picture, saved

Kind = Literal["image", "video", "audio"]
KINDS: Final[tuple[Kind, ...]] = ("image", "video", "audio")


@dataclass(frozen=True, slots=True)
class Hostile:
    """A file as it is sent, and what it is said to be."""

    name: str
    kind: Kind
    data: bytes


Damage = Callable[[random.Random, bytes], bytes]


def _flip(chance: random.Random, data: bytes) -> bytes:
    broken = bytearray(data)
    for _ in range(chance.randint(1, 12)):
        broken[chance.randrange(len(broken))] ^= 1 << chance.randrange(8)
    return bytes(broken)


def _cut(chance: random.Random, data: bytes) -> bytes:
    return data[: chance.randrange(len(data))]


def _head(chance: random.Random, data: bytes) -> bytes:
    """Numbers of the headers are the largest, the smallest or random ones."""
    broken = bytearray(data)
    place = chance.randrange(min(len(broken) - 4, 512))
    broken[place : place + 4] = chance.choice(
        [b"\xff\xff\xff\xff", bytes(4), b"\x7f\xff\xff\xff", b"\0\0\0\x80", chance.randbytes(4)]
    )
    return bytes(broken)


def _repeat(chance: random.Random, data: bytes) -> bytes:
    first = chance.randrange(len(data))
    return data[:first] + data[first : first + chance.randint(1, 4096)] * chance.randint(2, 50) + data[first:]


def _drop(chance: random.Random, data: bytes) -> bytes:
    first = chance.randrange(len(data))
    return data[:first] + data[first + chance.randint(1, 4096) :]


def _join(chance: random.Random, data: bytes) -> bytes:
    return data + data[chance.randrange(len(data)) :]


def _zero(chance: random.Random, data: bytes) -> bytes:
    first = chance.randrange(len(data))
    size = min(chance.randint(1, 2048), len(data) - first)
    return data[:first] + bytes(size) + data[first + size :]


DAMAGES: Final[tuple[Damage, ...]] = (_flip, _cut, _head, _repeat, _drop, _join, _zero)


def good_files() -> dict[str, tuple[Kind, bytes]]:
    """One small file of each format."""
    found: dict[str, tuple[Kind, bytes]] = {}
    image = Image.fromarray(picture(40, 56))
    for kind in ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "TGA", "ICO", "JPEG2000", "AVIF"):
        found[kind] = "image", saved(image, kind)
    for container, codec in (
        *(("mp4", "libx264"), ("mp4", "mpeg4"), ("webm", "libvpx"), ("webm", "libvpx-vp9")),
        *(("avi", "mpeg4"), ("matroska", "mjpeg"), ("gif", "gif")),
    ):
        pixel_format = {"mjpeg": "yuvj420p", "gif": "rgb8"}.get(codec, "yuv420p")
        frames = grey_steps(12)
        clip = movie(frames, container=container, codec=codec, pixel_format=pixel_format)
        found[f"{container} {codec}"] = "video", clip
    found["frames"] = "video", pack_frames([saved(Image.fromarray(frame), "JPEG") for frame in grey_steps(4)])
    samples = tone(0.5)
    for container, codec in (
        *(("mp3", "libmp3lame"), ("ogg", "libopus"), ("flac", "flac")),
        *(("mp4", "aac"), ("adts", "aac"), ("webm", "libopus")),
        *(("avi", "libmp3lame"), ("mpegts", "mp2"), ("flv", "aac")),
    ):
        found[f"{container} {codec}"] = "audio", encoded(samples, container=container, codec=codec)
    found["wav"] = "audio", sound_file(samples)
    return found


def damaged_files(num_files: int, seed: int) -> Iterator[Hostile]:
    """Good files of every format in turn, damaged by chance; one in eight is said to be another kind."""
    chance = random.Random(seed)
    good = list(good_files().items())
    for number in range(num_files):
        name, (kind, data) = good[number % len(good)]
        damage = chance.choice(DAMAGES)
        claimed = chance.choice(KINDS) if chance.randrange(8) == 0 else kind
        yield Hostile(f"{number} {name} {damage.__name__}", claimed, damage(chance, data))


def lying_files() -> Iterator[Hostile]:
    """Made by hand: bombs, lies about sizes, and files that name others."""
    for height, width in ((1, 50_000), (50_000, 1), (30_000, 30_000), (2**31 - 1, 2**31 - 1), (0, 0), (1, 1)):
        yield Hostile(f"png {width}x{height}", "image", _png(height, width))
    yield Hostile("png bomb", "image", _png(3_000, 3_000, zlib.compress(bytes(3_000 * 9_001))))
    yield Hostile("png text bomb", "image", _text_bomb())
    yield Hostile("gif frames", "image", _many_frames())
    for name, text in (
        ("m3u8", "#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n"),
        ("m3u8 http", "#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:9/a.ts\n"),
        ("concat", "ffconcat version 1.0\nfile /etc/passwd\n"),
        ("sdp", "v=0\no=- 0 0 IN IP4 127.0.0.1\nm=audio 9 RTP/AVP 0\n"),
        ("dash", '<?xml version="1.0"?><MPD><BaseURL>file:///etc/</BaseURL></MPD>'),
        ("svg", '<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>'),
        ("eps", "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(/etc/passwd) (r) file\n"),
        ("m3u8 data", "#EXTM3U\n#EXTINF:1,\ndata:audio/wav;base64,UklGRg==\n#EXT-X-ENDLIST\n"),
        ("nested data", "data:image/png;base64,ZGF0YTppbWFnZS9wbmc7YmFzZTY0LGlWQk9SdzBLR2dv"),
        ("nested list", "data:video/jpeg;base64,ZGF0YTp2aWRlby9qcGVnO2Jhc2U2NCwvOWovLC85ai8s"),
        ("tagged m3u8", "ID3\x03\0\0\0\0\0\0#EXTM3U\nfile:///etc/passwd\n"),
    ):
        for kind in KINDS:
            yield Hostile(f"{name} as {kind}", kind, text.encode("latin-1"))
    for kind in KINDS:
        yield Hostile(f"nothing as {kind}", kind, b"")
    for lines in (b"concat", b"segment"):  # names inside of a container that is opened
        track = encoded(tone(0.1), container="matroska", codec="flac")
        yield Hostile(f"matroska {lines!r}", "audio", track.replace(b"FLAC", lines[:4]))
    yield Hostile("endless ogg", "audio", encoded(tone(0.1), container="ogg", codec="libopus") * 400)
    yield Hostile("id3 tags", "audio", b"ID3\x03\0\0\0\0\0\0" * 200_000)
    for rate, channels in ((1, 1), (2**31 - 1, 1), (16_000, 0), (16_000, 60_000), (0, 2)):
        yield Hostile(f"wav {rate} Hz {channels} channels", "audio", _wav(rate, channels))
    yield Hostile("empty frames", "video", pack_frames([b""] * 50))
    yield Hostile("too many frames", "video", pack_frames([b"\xff\xd8\xff"] * 4000, 1e-6))
    for magic in (
        b"",
        b"\0",
        b"GIF89a",
        b"RIFF\x40\0\0\0AVI ",
        b"\x1a\x45\xdf\xa3",
        b"\0\0\0\x10ftyp",
        b"OggS",
    ):
        for kind in KINDS:
            yield Hostile(f"{magic!r} as {kind}", kind, magic + bytes(300))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _png(height: int, width: int, pixels: bytes = b"", before: bytes = b"") -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    start = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + before
    return start + _chunk(b"IDAT", pixels or zlib.compress(b"\0" * 1000)) + _chunk(b"IEND", b"")


def _text_bomb() -> bytes:
    text = _chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(3_000_000), 9))
    return _png(16, 16, zlib.compress(bytes(16 * 49)), text * 20)


def _many_frames() -> bytes:
    frames = [Image.new("P", (1000, 1000), index % 200) for index in range(20)]
    buffer = io.BytesIO()
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:])
    return buffer.getvalue()


def _wav(rate: int, channels: int) -> bytes:
    samples = np.zeros(500, "<i2").tobytes()
    block = min(2 * channels, 65_535)
    head = struct.pack("<HHIIHH", 1, channels, rate, min(rate * block, 2**32 - 1), block, 16)
    size = struct.pack("<I", 2**32 - 1)
    return b"RIFF" + size + b"WAVEfmt " + struct.pack("<I", 16) + head + b"data" + size + samples
