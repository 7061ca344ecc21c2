"""Pictures of a video file whose packets are gone, so that they are counted and named.

AVI numbers its pictures and lists them in an index. Matroska and Flash have stamps only: there a gap between
stamps is a loss where bytes lie in it that belong to no packet. Without such bytes the file shows nothing
new for a while, as recordings of screens do, and nothing is lost.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

import av
import numpy as np

from ..audio.containers import demuxed
from .video_container import VideoLimits, open_video

_COUNTED: Final = "avi"
"""libav's name of the container whose pictures have numbers and no times."""
_CHUNK_HEAD: Final = 8
"""Bytes between where AVI's index says a picture lies, and where its packet begins."""
_WITHOUT_INDEX: Final = frozenset({"matroska", "flv"})
"""Containers, as `sniff_video` names them, of which a picture is known by its packet alone."""
_MAX_OVERHEAD: Final = 512
"""Bytes that such a container may need between two packets."""
_WHOLE_STEPS: Final = 1.5
"""Times the usual step between two pictures; what is longer is a gap."""
_MAX_REORDERED: Final = 16
"""Pictures that a codec may hold back before it shows them."""


def stamped(file: av.container.InputContainer, stream: av.VideoStream) -> Iterator[av.Packet]:
    """The packets, where the file counts its pictures (AVI) with the numbers that its index gives them: libav
    goes on counting after a damaged part as if nothing were missing."""
    if file.format.name != _COUNTED:
        yield from demuxed(file, stream)
        return
    numbers = {entry.pos + _CHUNK_HEAD: entry.timestamp for entry in stream.index_entries}
    for packet in demuxed(file, stream):
        number = numbers.get(packet.pos)
        if number is not None and packet.dts is not None and number != packet.dts:
            if packet.pts is not None:
                packet.pts += number - packet.dts
            packet.dts = number
        yield packet


def lost_of_index(
    file: av.container.InputContainer, stream: av.VideoStream, stamps: Sequence[int | None]
) -> list[int]:
    """Stamps of pictures that an AVI's index names, and of which no packet could be read."""
    known = {stamp for stamp in stamps if stamp is not None}
    if file.format.name != _COUNTED or not known:
        return []
    first = min(known)
    numbers = sorted(entry.timestamp for entry in stream.index_entries)
    return [number for number in (each - numbers[0] + first for each in numbers) if number not in known]


def lost_in_gaps(
    data: bytes, container: str | None, stamps: Sequence[int], index: int, limits: VideoLimits
) -> list[int]:
    """Stamps at which pictures were before bytes of the file were destroyed, evenly spread over each gap.

    `stamps` are those of the pictures that are left, rising, and `index` is their stream's.
    """
    if container not in _WITHOUT_INDEX or len(stamps) < 3:
        return []
    steps = np.diff(stamps)
    is_gap = steps > _WHOLE_STEPS * np.median(steps)
    if not is_gap.any():
        return []
    step = float(steps[~is_gap].mean())
    spans = _damaged_spans(data, index, limits)
    lost: list[int] = []
    for place in map(int, np.flatnonzero(is_gap)):
        begin, end = stamps[place], stamps[place + 1]
        num_steps = round((end - begin) / step)
        if len(stamps) + len(lost) + num_steps > limits.max_frames:
            break
        if any(first <= begin and end <= last for first, last in spans):
            lost += (begin + round((end - begin) * each / num_steps) for each in range(1, num_steps))
    return lost


def _damaged_spans(data: bytes, index: int, limits: VideoLimits) -> list[tuple[int, int]]:
    """Stamps of pictures on both sides of bytes that belong to no packet of any stream."""
    order: list[int] = []
    places: list[int] = []
    reached, block, is_damaged = 0, -1, False
    for packet in _all_packets(data, limits):
        if packet.pos is None or packet.size == 0:
            continue
        if packet.pos == block:
            reached += packet.size  # one of several packets in a block
        else:
            is_damaged |= 0 < reached < packet.pos - _MAX_OVERHEAD
            reached, block = packet.pos + packet.size, packet.pos
        stamp = packet.dts if packet.pts is None else packet.pts
        if packet.stream.index == index and stamp is not None:
            if is_damaged:
                places.append(len(order))
                is_damaged = False
            order.append(stamp)
    around = [(order[max(0, at - _MAX_REORDERED) : at], order[at : at + _MAX_REORDERED]) for at in places]
    return [(min(before), max(after)) for before, after in around if before]


def _all_packets(data: bytes, limits: VideoLimits) -> Iterator[av.Packet]:
    """Of all streams, up to where the file cannot be read further."""
    with open_video(data, limits) as (file, _):
        try:
            yield from file.demux()
        except (IndexError, av.FFmpegError):  # as in `demuxed`
            return


def are_lost_between(lost: Sequence[int], before: int | None, stamp: int | None) -> bool:
    """Whether pictures were lost between two stamps."""
    if before is None or stamp is None:
        return False
    return bisect_right(lost, stamp) > bisect_right(lost, before)
