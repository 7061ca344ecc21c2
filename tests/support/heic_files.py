"""HEIC pictures as iPhones write them: a grid of tiles, each coded as HEVC, turned by a property."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable

import av
import numpy as np
from support.vision_files import PixelArray, movie


def _box(kind: bytes, *content: bytes) -> bytes:
    body = b"".join(content)
    return struct.pack(">I4s", 8 + len(body), kind) + body


def _full(kind: bytes, version: int, *content: bytes, flags: int = 0) -> bytes:
    return _box(kind, struct.pack(">I", version << 24 | flags), *content)


def _tile(pixels: PixelArray) -> tuple[bytes, bytes]:
    """The decoder's configuration, and the coded picture."""
    options = {"x265-params": "log-level=none:pools=1:frame-threads=1:bframes=0", "crf": "8"}
    film = movie([pixels], container="matroska", codec="libx265", options=options)
    with av.open(io.BytesIO(film)) as file:
        stream = file.streams.video[0]
        packet = next(each for each in file.demux(stream) if each.size)
        return bytes(stream.codec_context.extradata or b""), bytes(packet)


def heic(picture: PixelArray, *, tile: int = 64, quarter_turns: int = 0, brand: bytes = b"heic") -> bytes:
    """`picture` (uint8 [rows * tile, columns * tile, 3]) in tiles, to be turned counterclockwise."""
    height, width = picture.shape[:2]
    rows, columns = height // tile, width // tile
    tiles = [
        _tile(np.ascontiguousarray(picture[y : y + tile, x : x + tile]))
        for y in range(0, height, tile)
        for x in range(0, width, tile)
    ]
    ids = range(2, 2 + len(tiles))
    grid = struct.pack(">BBBBHH", 0, 0, rows - 1, columns - 1, width, height)
    properties = _box(
        b"ipco",
        _box(b"hvcC", tiles[0][0]),
        _full(b"ispe", 0, struct.pack(">II", tile, tile)),
        _full(b"ispe", 0, struct.pack(">II", width, height)),
        _box(b"irot", bytes([quarter_turns])),
    )
    associations = _full(
        b"ipma",
        0,
        struct.pack(">I", 1 + len(tiles)),
        struct.pack(">HBBB", 1, 2, 3, 0x84),
        *(struct.pack(">HBBB", each, 2, 0x81, 2) for each in ids),
    )
    entries = [_entry(1, b"grid"), *(_entry(each, b"hvc1") for each in ids)]
    fixed = (
        _full(b"hdlr", 0, bytes(4), b"pict", bytes(13)),
        _full(b"pitm", 0, struct.pack(">H", 1)),
        _full(b"iinf", 0, struct.pack(">H", len(entries)), *entries),
        _full(
            b"iref",
            0,
            _box(b"dimg", struct.pack(">HH", 1, len(tiles)), *(struct.pack(">H", each) for each in ids)),
        ),
        _box(b"iprp", properties, associations),
        _box(b"idat", grid),
    )
    first = _box(b"ftyp", brand, bytes(4), b"mif1heic")
    sizes = [len(coded) for _, coded in tiles]
    place = len(first) + len(_meta(fixed, len(grid), ids, sizes, 0)) + 8
    meta = _meta(fixed, len(grid), ids, sizes, place)
    return first + meta + _box(b"mdat", *(coded for _, coded in tiles))


def _entry(item: int, kind: bytes) -> bytes:
    return _full(b"infe", 2, struct.pack(">HH", item, 0), kind, b"\0", flags=0)


def _meta(fixed: Iterable[bytes], grid_size: int, ids: range, sizes: list[int], place: int) -> bytes:
    """With the places of all items: the grid lies in `idat`, the tiles behind each other from `place`."""
    places = [struct.pack(">HHHHII", 1, 1, 0, 1, 0, grid_size)]
    for item, size in zip(ids, sizes, strict=True):
        places.append(struct.pack(">HHHHII", item, 0, 0, 1, place, size))
        place += size
    located = _full(b"iloc", 1, b"\x44\x00", struct.pack(">H", len(places)), *places)
    return _full(b"meta", 0, *fixed, located)
