"""Recordings one after the other in one file of a container that states its size: WAV, AIFF, AU, W64, CAF.

`cat a.wav b.wav` is such a file, and so are parts that a recorder appends. A second header counts only where
the first one's sizes end; samples may hold any bytes, also those of a header. Where sizes are not known, as
what writes into a pipe leaves them (0, all ones), the next complete header counts. Read next:
`concatenated.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

_LEAST_UNKNOWN: Final = 0x7FFFF000
"""Sizes from here on are what is written before the size is known (SoX's, and all ones)."""
_PCM_FORMATS: Final = frozenset({1, 3, 6, 7, 0xFFFE})
W64_MAGIC: Final = b"riff" + bytes.fromhex("2e91cf11a5d628db04c10000")
_W64_WAVE: Final = b"wave" + bytes.fromhex("f3acd3118cd100c04f8edb8a")
AU_MAGIC: Final = b".snd"
CAF_MAGIC: Final = b"caff\0\1"

_HEADERS: Final = {
    "wav": rb"R(?:IFF|IFX|F64)....WAVE[A-Za-z0-9 _]{4}",
    "aiff": rb"FORM....AIF[FC][A-Z(][A-Za-z0-9) ]{3}",
    "au": rb"\.snd\0\0...{4}\0\0\0[\x01-\x1d]\0[\0-\x05]..\0\0\0[\x01-\x08]",
    "w64": re.escape(W64_MAGIC) + rb".{8}" + re.escape(_W64_WAVE),
    "caf": re.escape(CAF_MAGIC) + rb"\0\0desc\0\0\0\0\0\0\0\x20",
}
_BEGINNINGS: Final = {name: re.compile(pattern, re.DOTALL) for name, pattern in _HEADERS.items()}
_MOST_PADDING: Final = 7
"""Bytes between a recording's end and a multiple of 2 or 8."""


_MOST_CHUNKS: Final = 1000
"""Of one recording that are looked at: a file of nothing but empty chunks would take minutes."""


class _Chunk(NamedTuple):
    name: bytes
    start: int
    size: int


def beginnings(data: bytes, container: str) -> Iterator[int]:
    """Where the second recording of a file begins, and each one after it."""
    at = _next(data, 0, container)
    while at is not None:
        yield at
        at = _next(data, at, container)


def _next(data: bytes, at: int, container: str) -> int | None:
    begins = _BEGINNINGS[container]
    ends = list(_ENDS[container](data, at))
    for end in ends:
        for place in range(end, min(end + _MOST_PADDING + 1, len(data))):
            if begins.match(data, place):
                return place
    found = None if ends else begins.search(data, at + 1)
    return None if found is None else found.start()


def _chunks(data: bytes, at: int, order: str) -> Iterator[_Chunk]:
    """Of a RIFF or IFF file that begins at `at`, as far as their sizes lead."""
    place = at + 12
    for _ in range(_MOST_CHUNKS):
        if place + 8 > len(data):
            return
        size = _number(data[place + 4 : place + 8], order)
        yield _Chunk(data[place : place + 4], place + 8, size)
        place += 8 + size + size % 2


def _number(data: bytes, order: str) -> int:
    return int.from_bytes(data, "little" if order == "little" else "big")


def _is_known(size: int) -> bool:
    return 0 < size < _LEAST_UNKNOWN


def _order(data: bytes, at: int) -> str:
    return "big" if data[at : at + 4] in {b"RIFX", b"FORM"} else "little"


def _ends_of_chunks(data: bytes, at: int, body: bytes) -> Iterator[int]:
    """By the size of the whole, and by that of the chunk with the samples."""
    order = _order(data, at)
    whole = _number(data[at + 4 : at + 8], order)
    wide = 0
    for chunk in _chunks(data, at, order):
        if chunk.name == b"ds64":
            whole, wide = (
                _number(data[chunk.start + each : chunk.start + each + 8], order) for each in (0, 8)
            )
        if chunk.name != body:
            continue
        size = wide or chunk.size
        if size == chunk.size and not _is_known(size) and at + 8 + whole <= chunk.start:
            whole = 0  # both were written before there was a sample
        if wide or _is_known(size):
            yield chunk.start + size
        break
    if whole and (wide or _is_known(whole)):
        yield at + 8 + whole


def _ends_of_wav(data: bytes, at: int) -> Iterator[int]:
    return _ends_of_chunks(data, at, b"data")


def _ends_of_aiff(data: bytes, at: int) -> Iterator[int]:
    return _ends_of_chunks(data, at, b"SSND")


def _ends_of_au(data: bytes, at: int) -> Iterator[int]:
    start, size = (int.from_bytes(data[at + place : at + place + 4]) for place in (4, 8))
    if _is_known(size):
        yield at + start + size


def _ends_of_w64(data: bytes, at: int) -> Iterator[int]:
    size = int.from_bytes(data[at + 16 : at + 24], "little")
    if 0 < size < 1 << 62:
        yield at + size


def _ends_of_caf(data: bytes, at: int) -> Iterator[int]:
    """Behind the last chunk: nothing states the size of the whole."""
    place = at + 8
    for _ in range(_MOST_CHUNKS):
        if place + 12 > len(data) or data[place : place + 4] == CAF_MAGIC[:4]:
            break
        size = int.from_bytes(data[place + 4 : place + 12])
        if size >= 1 << 62 and data[place : place + 4] == b"data":
            return  # up to the end of the file, whose size was not known
        place += 12 + size
    yield place


_ENDS: Final[dict[str, Callable[[bytes, int], Iterator[int]]]] = {
    "wav": _ends_of_wav,
    "aiff": _ends_of_aiff,
    "au": _ends_of_au,
    "w64": _ends_of_w64,
    "caf": _ends_of_caf,
}


def in_bytes(data: bytes, container: str) -> bytes:
    """A WAV or AU whose size counts samples or frames, as some recorders write it, with its size in bytes.

    It is one only if that many samples end exactly where the file does, or another chunk begins.
    """
    if container == "au":
        return _au_in_bytes(data)
    if container != "wav" or data[:4] == b"RF64":
        return data
    order, frame, sample = _order(data, 0), 0, 0
    for chunk in _chunks(data, 0, order):
        if chunk.name == b"fmt ":
            form = data[chunk.start : chunk.start + 16]
            kind, frame, bits = (_number(form[place : place + 2], order) for place in (0, 12, 14))
            sample = bits // 8 if kind in _PCM_FORMATS else 0
        if chunk.name == b"data":
            size = _counted(data, chunk, frame if sample else 0, sample)
            field = size.to_bytes(4, "big" if order == "big" else "little")
            return data if size == chunk.size else data[: chunk.start - 4] + field + data[chunk.start :]
    return data


def _au_in_bytes(data: bytes) -> bytes:
    start, size, kind, _, num_channels = (int.from_bytes(data[at : at + 4]) for at in range(4, 24, 4))
    sample = {1: 1, 2: 1, 3: 2, 4: 3, 5: 4, 6: 4, 7: 8, 27: 1}.get(kind, 0)
    counted = _counted(data, _Chunk(b"data", start, size), sample * num_channels, sample)
    return data[:8] + counted.to_bytes(4) + data[12:] if counted != size else data


def _counted(data: bytes, chunk: _Chunk, frame: int, sample: int) -> int:
    """The size in bytes of a chunk of samples."""
    if not _is_known(chunk.size) or _ends_well(data, chunk.start + chunk.size):
        return chunk.size
    sizes = (chunk.size * each for each in (frame, sample) if each > 1)
    return next((size for size in sizes if _ends_well(data, chunk.start + size)), chunk.size)


def _ends_well(data: bytes, end: int) -> bool:
    """Whether the file ends here, but for a byte of padding, or chunks lead from here to its end."""
    if end == len(data) - 1 and not data[end]:
        return True
    for _ in range(_MOST_CHUNKS):
        if end >= len(data):
            break
        head = data[end : end + 8]
        if len(head) < 8 or not head[:4].isascii() or not head[:4].decode("ascii").isprintable():
            return False
        size = int.from_bytes(head[4:], "little")
        end += 8 + size + size % 2
    return end in (len(data), len(data) + 1)
