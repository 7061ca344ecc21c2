"""The boxes of an MP4 that a stream needs: which track is heard, and where its samples lie.

Works on whole indexes, `moov` and `moof`; nothing here knows what has arrived of the sound. Sources:
ISO/IEC 14496-12 (boxes), 14496-1 (`esds`), the Opus-in-ISOBMFF mapping (`dOps`). Used by `mp4.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from itertools import repeat
from typing import NamedTuple

from .opus import HEAD
from .packets import StreamError, Track, rounded


class Sample(NamedTuple):
    """One packet's place in the stream, and in time: when it begins, in the track's units, and its length."""

    place: int
    size: int
    time: int
    length: int


class TrackInfo(NamedTuple):
    """The track that is heard, and the size of its samples where a fragment does not tell it."""

    number: int
    track: Track
    default_size: int
    table: bytes
    """Where the samples are that come before any fragment."""
    default_length: int = 0
    shift: int = 0
    """From a sample's own time to that on the movie's timeline, by the edit list."""


def boxes(body: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The boxes of a body that is there as a whole: kind and content."""
    at = 0
    while at + 8 <= len(body):
        size, kind, head = int.from_bytes(body[at : at + 4]), body[at + 4 : at + 8], 8
        if size == 1:
            size, head = int.from_bytes(body[at + 8 : at + 16]), 16
        elif size == 0:
            size = len(body) - at
        if size < head or at + size > len(body):
            raise StreamError("an index of the MP4 stream is damaged")
        yield kind, body[at + head : at + size]
        at += size


def _find(body: bytes, *path: bytes) -> bytes | None:
    """The content of the first box down there."""
    found: bytes | None = body
    for name in path:
        if found is None:
            return None
        found = next((content for kind, content in boxes(found) if kind == name), None)
    return found


def read_track(moov: bytes) -> TrackInfo:
    """The audio track of an index: the first that is enabled, or else the first. Raises StreamError if there
    is none that is served."""
    traks = [trak for kind, trak in boxes(moov) if kind == b"trak"]
    kinds = [(_find(trak, b"mdia", b"hdlr") or b"")[8:12] for trak in traks]
    tracks = [trak for trak, kind in zip(traks, kinds, strict=True) if kind == b"soun"]
    if not tracks:
        raise StreamError("the MP4 stream has no audio track")
    headers = [_find(trak, b"tkhd") or b"" for trak in tracks]
    trak, header = next(
        (
            (trak, header)
            for trak, header in zip(tracks, headers, strict=True)
            if header[3:4] and header[3] & 1
        ),
        (tracks[0], headers[0]),
    )
    number = _number(header, 20 if header[:1] == b"\1" else 12)
    extends = (content for kind, content in boxes(_find(moov, b"mvex") or b"") if kind == b"trex")
    defaults = next((each for each in extends if _number(each, 4) == number), bytes(20))
    table = _find(trak, b"mdia", b"minf", b"stbl") or b""
    scale = _time_scale(_find(trak, b"mdia", b"mdhd") or b"")
    empty, skip = _edits(_find(trak, b"edts", b"elst") or b"")
    track = _codec((_find(table, b"stsd") or b"")[8:])
    track = replace(
        track,
        skip=skip if track.codec == "aac" else 0,
        time_base=(1, scale),
        zero_s=0.0 if b"vide" in kinds else None,
    )
    shift = rounded(empty * scale, _time_scale(_find(moov, b"mvhd") or b"")) - skip
    return TrackInfo(number, track, _number(defaults, 16), table, _number(defaults, 12), shift)


def _time_scale(header: bytes) -> int:
    """Units of a second, of an `mvhd` or `mdhd`."""
    at = 20 if header[:1] == b"\1" else 12
    return max(1, int.from_bytes(header[at : at + 4]))


def _edits(edits: bytes) -> tuple[int, int]:
    """What an edit list puts in front, in the movie's units, and what it leaves out there (an encoder's own
    delay), in the track's; of several edits, nothing is left out."""
    width, shape = (20, ">Qqi") if edits[:1] == b"\1" else (12, ">Iii")
    whole = (len(edits) - 8) // width * width if len(edits) > 8 else 0
    found = [(length, time) for length, time, _ in struct.iter_unpack(shape, edits[8 : 8 + whole])]
    empty = found.pop(0)[0] if found and found[0][1] == -1 else 0
    return empty, max(0, found[0][1]) if len(found) == 1 else 0


def num_indexed(table: bytes) -> int:
    """Samples that an index itself has, in front of any fragment; four bytes may claim any number."""
    sizes = _find(table, b"stsz") or b""
    return _number(sizes, 8) if len(sizes) > 8 else 0


def read_indexed(table: bytes) -> Iterator[Sample]:
    """Where the samples lie that an index itself has: chunks of so many each, one after the other."""
    sizes, count = _find(table, b"stsz") or b"", num_indexed(table)
    if not count:
        return
    each = _number(sizes, 4)
    offsets, wide = _find(table, b"stco"), _find(table, b"co64")
    place_bytes = 4 if offsets is not None else 8
    offsets = offsets or wide or b""
    groups = _find(table, b"stsc") or b""
    firsts = [_number(groups, 8 + 12 * index) for index in range(min(_number(groups, 4), len(groups) // 12))]
    index, group, time, lengths = 0, -1, 0, _lengths(_find(table, b"stts") or b"")
    for chunk in range(1, min(_number(offsets, 4), len(offsets) // place_bytes) + 1):
        while group + 1 < len(firsts) and firsts[group + 1] <= chunk:
            group += 1
        at = 8 + place_bytes * (chunk - 1)
        place = int.from_bytes(offsets[at : at + place_bytes])
        for _ in range(min(_number(groups, 12 + 12 * max(group, 0)), count - index)):
            size = each or _number(sizes, 12 + 4 * index)
            length = next(lengths, 0)
            yield Sample(place, size, time, length)
            place, time = place + size, time + length
            index += 1
    if index < count:
        raise StreamError("an index of the MP4 stream is damaged")


def _lengths(times: bytes) -> Iterator[int]:
    """How long each sample of an index lasts."""
    for index in range(min(_number(times, 4), len(times) // 8) if times else 0):
        count, length = _number(times, 8 + 8 * index), _number(times, 12 + 8 * index)
        yield from repeat(length, count)


def _codec(entries: bytes) -> Track:
    for kind, entry in boxes(entries):
        # Eight bytes of every entry, twenty of a sound's, more in QuickTime's later versions.
        more = {1: 16, 2: 36}.get(int.from_bytes(entry[8:10]), 0)
        inside = entry[28 + more :]
        if kind == b"mp4a":
            found = _find(inside, b"esds") or _find(inside, b"wave", b"esds")  # QuickTime's is wrapped
            if found is not None:
                return Track("aac", extradata=_audio_config(found[4:]))
        if kind == b"Opus" and (found := _find(inside, b"dOps")) is not None:
            return Track("opus", extradata=_opus_head(found))
        name = kind.decode("latin-1")
        raise StreamError(f"the MP4 stream carries {name!r}; AAC and Opus are served")
    raise StreamError("the MP4 stream does not name its audio codec")


def _audio_config(descriptors: bytes) -> bytes:
    """The decoder's own part of an `esds`: in an ES, in a decoder's configuration, what is specific to it."""
    for tag, num_fields in ((3, 3), (4, 13), (5, 0)):
        if not descriptors or descriptors[0] != tag:
            raise StreamError("the MP4 stream's AAC header is damaged")
        at, size = 1, 0
        while at < min(len(descriptors), 5):
            size = size << 7 | descriptors[at] & 0x7F
            at += 1
            if not descriptors[at - 1] & 0x80:
                break
        inside = descriptors[at : at + size]
        if tag == 4 and inside[:1] not in {b"\x40", b"\x66", b"\x67", b"\x68"}:
            raise StreamError("the MP4 stream's sound is not AAC")
        flags = inside[2] if tag == 3 and len(inside) > 2 else 0
        optional = (2 if flags & 0x80 else 0) + (2 if flags & 0x20 else 0)
        if flags & 0x40 and len(inside) > num_fields + optional:
            optional += 1 + inside[num_fields + optional]
        descriptors = inside[num_fields + optional :]
    return descriptors


def _opus_head(dops: bytes) -> bytes:
    """The same header as Ogg has it, in its order of bytes."""
    if len(dops) < 11:
        raise StreamError("the MP4 stream's Opus header is damaged")
    skip, rate, gain = dops[2:4][::-1], dops[4:8][::-1], dops[8:10][::-1]
    return HEAD + b"\1" + dops[1:2] + skip + rate + gain + dops[10:]


def num_announced(moof: bytes) -> int:
    """Samples of all tracks that a fragment announces; four bytes may claim any number."""
    trafs = (content for kind, content in boxes(moof) if kind == b"traf")
    return sum(_number(run, 4) for traf in trafs for kind, run in boxes(traf) if kind == b"trun")


def read_fragment(moof: bytes, info: TrackInfo, place: int, time: int) -> Iterator[Sample]:
    """The samples of the track in a fragment whose `moof` begins at `place`; it goes on at `time` unless it
    states another."""
    after = place
    for kind, traf in boxes(moof):
        header = _find(traf, b"tfhd") if kind == b"traf" else None
        if header is None:
            continue
        flags, at = int.from_bytes(header[1:4]), 8
        base = place if flags & 0x020000 or after == place else after
        if flags & 0x1:
            base = int.from_bytes(header[at : at + 8])
            at += 8
        at += 4 if flags & 0x2 else 0
        default_length = _number(header, at) if flags & 0x8 else info.default_length
        at += 4 if flags & 0x8 else 0
        default_size = _number(header, at) if flags & 0x10 else info.default_size
        is_chosen = _number(header, 4) == info.number
        begins = _find(traf, b"tfdt") if is_chosen else None
        if begins is not None:
            time = int.from_bytes(begins[4 : 12 if begins[:1] == b"\1" else 8])
        after, at_time = base, time
        for name, run in boxes(traf):
            if name == b"trun":
                for sample in _run(run, base, Sample(after, default_size, at_time, default_length)):
                    after, at_time = sample.place + sample.size, sample.time + sample.length
                    if is_chosen:
                        yield sample
        time = at_time if is_chosen else time


def _run(run: bytes, base: int, default: Sample) -> Iterator[Sample]:
    """The samples of a run, of which `default` says what it does not."""
    flags, count, at = int.from_bytes(run[1:4]), _number(run, 4), 8
    place, size, time, length = default
    if flags & 0x1:
        place = base + int.from_bytes(run[at : at + 4], signed=True)
        at += 4
    at += 4 if flags & 0x4 else 0
    skipped = (4 if flags & 0x400 else 0) + (4 if flags & 0x800 else 0)
    for _ in range(count):
        if flags & 0x100:
            length = _number(run, at)
            at += 4
        if flags & 0x200:
            size = _number(run, at)
            at += 4
        at += skipped
        yield Sample(place, size, time, length)
        place, time = place + size, time + length


def _number(data: bytes, at: int) -> int:
    if len(data) < at + 4:
        raise StreamError("an index of the MP4 stream is damaged")
    return int.from_bytes(data[at : at + 4])
