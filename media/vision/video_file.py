"""The pictures of a video file: when each is shown, and those that are asked for, decoded.

First the packets are listed without decoding any (`list_pictures`): their times are the file's own, so that
variable rates, edit lists and holes are told as they are. Then the wanted ones are decoded (`read_pictures`):
where a later key picture is nearer than what lies before it, by going there. One that is damaged is replaced
by the next good one before the one that is wanted next, and told by its own time. Knows nothing of models;
which pictures are wanted decides `media/vision/video.py`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import av
import numpy as np
from av.video.reformatter import Colorspace

from .animated_webp import is_animated_webp, read_webp, webp_pictures
from .images import PixelArray
from .missing_frames import are_lost_between, lost_in_gaps, lost_of_index, stamped
from .video_container import (
    VideoLimits,
    check_length,
    check_picture,
    fault,
    open_video,
    sniff_video,
    too_large,
)

DEFAULT_FPS: Final = 24.0
"""The rate assumed where a file states none, as in the reference."""
_SEEKABLE: Final = frozenset({"mp4", "matroska"})
"""Containers whose index says where key pictures lie."""
_WORTH_SEEKING: Final = 8
"""Pictures; fewer are decoded sooner than a decoder is started anew."""
_MAX_BAD_PACKETS: Final = 1000
"""Consecutive packets that do not decode before a damaged file is given up."""


@dataclass(frozen=True, slots=True)
class Pictures:
    """A file's pictures in the order they are shown, damaged ones among them."""

    stamps: Sequence[int]
    """By which they are known; rising."""
    keys: Sequence[int]
    """Stamps of those that decoding can begin with; empty where the file cannot be entered."""
    times_s: Sequence[float]
    """Since the first."""
    fps: float
    """As the file states it, or of its pictures in the mean where that is not their rate."""
    has_stamps: bool
    """False: the file says no times; pictures are counted, and evenly spread."""
    height: int
    width: int
    lost: Sequence[int] = ()
    """Stamps of those whose packets are gone; rising."""

    @property
    def is_even(self) -> bool:
        """Whether they follow each other evenly, at `fps`."""
        return _are_even(self.times_s, self.fps)


def _are_even(times_s: Sequence[float], fps: float) -> bool:
    places = np.arange(len(times_s)) / fps
    return bool(np.abs(np.asarray(times_s) - places).max() <= 0.5 / fps)


def list_pictures(data: bytes, limits: VideoLimits) -> Pictures:
    """Of the first picture track, without decoding any. Raises MediaError or TooLargeError (`video`)."""
    if is_animated_webp(data):
        return _list_webp(data, limits)
    stamps: list[int | None] = []
    keys: list[int] = []
    with open_video(data, limits) as (file, stream):
        height, width = stream.codec_context.height, stream.codec_context.width
        fps = float(stream.average_rate or 0)
        fps = fps if fps > 0 else DEFAULT_FPS
        try:
            for packet in stamped(file, stream):
                if packet.size == 0 or packet.is_discard:
                    continue
                stamp = packet.dts if packet.pts is None else packet.pts
                stamps.append(stamp)
                if packet.is_keyframe and stamp is not None:
                    keys.append(stamp)
                if len(stamps) > limits.max_frames:
                    raise too_large(f"The video has more than the limit of {limits.max_frames} frames.")
        except av.FFmpegError:
            pass  # a file that is cut off has the frames before the cut
        base = float(stream.time_base or 0)
        lost = lost_of_index(file, stream, stamps)
        index = stream.index
    stamps += lost
    if not stamps:
        raise fault("The video holds no pictures.")
    known = sorted({stamp for stamp in stamps if stamp is not None})
    if len(known) != len(stamps) or not base:
        count = len(stamps)
        check_length(count / fps, limits)
        return Pictures(
            range(count),
            (),
            [place / fps for place in range(count)],
            fps,
            has_stamps=False,
            height=height,
            width=width,
        )
    container = sniff_video(data)
    lost += lost_in_gaps(data, container, known, index, limits)
    known = sorted({*known, *lost})
    times = [(stamp - known[0]) * base for stamp in known]
    if times[-1] > 0 and not _are_even(times, fps):
        fps = (len(times) - 1) / times[-1]
    check_length(times[-1] + 1 / fps, limits)
    found = sorted(keys) if container in _SEEKABLE else []
    return Pictures(
        known, found, times, fps, has_stamps=True, height=height, width=width, lost=tuple(sorted(lost))
    )


def _list_webp(data: bytes, limits: VideoLimits) -> Pictures:
    (height, width), times, length_s = webp_pictures(data, limits)
    fps = len(times) / length_s
    return Pictures(range(len(times)), (), times, fps, has_stamps=True, height=height, width=width)


def read_pictures(
    data: bytes,
    pictures: Pictures,
    wanted: Sequence[int],
    limits: VideoLimits,
    keep: Callable[[PixelArray], PixelArray],
) -> list[tuple[int, PixelArray] | None]:
    """What is shown for each of `wanted` (places in `pictures`, rising): the place of the picture and what
    `keep` makes of it, uint8 [height, width, 3] upright; None where nothing good comes before the next.

    Raises MediaError or TooLargeError (`video`).
    """
    if is_animated_webp(data):
        return read_webp(data, wanted, keep)
    try:
        return _read(data, pictures, wanted, limits, keep, may_seek=bool(pictures.keys))
    except _LostError:
        return _read(data, pictures, wanted, limits, keep, may_seek=False)


class _LostError(Exception):
    """Going to a key picture led elsewhere."""


def _read(
    data: bytes,
    pictures: Pictures,
    wanted: Sequence[int],
    limits: VideoLimits,
    keep: Callable[[PixelArray], PixelArray],
    *,
    may_seek: bool,
) -> list[tuple[int, PixelArray] | None]:
    choice = _Choice(pictures, wanted)
    with open_video(data, limits) as (file, stream):
        while True:
            frames = _frames(file, stream, pictures.lost, has_stamps=pictures.has_stamps)
            start = _read_on(frames, choice, limits, keep, may_seek=may_seek)
            if start is None:
                return choice.result()
            file.seek(start, stream=stream)


def _read_on(
    frames: Iterator[tuple[av.VideoFrame, int, bool]],
    choice: _Choice,
    limits: VideoLimits,
    keep: Callable[[PixelArray], PixelArray],
    *,
    may_seek: bool,
) -> int | None:
    """Choose until the end, or until it is better to go on from a key picture, whose stamp is returned."""
    is_first = True
    for frame, stamp, is_good in frames:
        check_picture(frame.width, frame.height, limits)
        if is_first and choice.is_past(stamp):
            raise _LostError
        is_first = False
        if choice.takes(stamp):
            choice.put(stamp, keep(upright(frame)), is_good=is_good)
        if choice.is_done:
            return None
        if may_seek and (start := choice.better_start(stamp)) is not None:
            return start
    return None


class _Choice:
    """Which of the pictures that come are shown for those that are wanted."""

    def __init__(self, pictures: Pictures, wanted: Sequence[int]) -> None:
        self._pictures = pictures
        self._targets = [pictures.stamps[place] for place in wanted]
        self._found: list[tuple[int, PixelArray] | None] = [None] * len(wanted)
        self._num_sure = 0
        """Targets up to the last that something good is shown for."""
        self._poor_places: list[int] = []
        self._sought: int | None = None
        """The key picture that was gone to last."""
        self._place = 0
        self._poor: tuple[int, PixelArray] | None = None
        """Of the target at hand, a damaged picture."""

    @property
    def is_done(self) -> bool:
        """Whether there is no more target."""
        return self._place >= len(self._targets)

    def is_past(self, stamp: int) -> bool:
        """Whether what comes first after a seek lies behind what was sought."""
        return self._sought is not None and stamp > self._targets[self._place]

    def takes(self, stamp: int) -> bool:
        """Whether a picture may be shown for the target at hand; targets it lies behind are given up."""
        while self._place + 1 < len(self._targets) and stamp >= self._targets[self._place + 1]:
            self._finish(self._poor)
        return self._place < len(self._targets) and stamp >= self._targets[self._place]

    def put(self, stamp: int, picture: PixelArray, *, is_good: bool) -> None:
        """A picture that may be shown."""
        place = bisect_right(self._pictures.stamps, stamp) - 1
        if is_good:
            self._poor = None
            self._finish((place, picture))
            self._num_sure = self._place
        elif self._poor is None:
            self._poor = place, picture

    def result(self) -> list[tuple[int, PixelArray] | None]:
        """What is shown. Damaged pictures are not, where good ones follow; behind the last of those (a file
        may have one key picture) they are what there is."""
        if self._place < len(self._targets):
            self._finish(self._poor)
        return [
            None if place in self._poor_places and place < self._num_sure else each
            for place, each in enumerate(self._found)
        ]

    def better_start(self, stamp: int) -> int | None:
        """The key picture to go on from, where that is nearer to the target than going on."""
        keys, stamps = self._pictures.keys, self._pictures.stamps
        target = self._targets[self._place]
        place = bisect_right(keys, target) - 1
        if place < 0 or self._poor is not None or keys[place] == self._sought:
            return None
        away = bisect_right(stamps, keys[place]) - bisect_right(stamps, stamp)
        if away <= _WORTH_SEEKING:
            return None
        self._sought = keys[place]
        return self._sought

    def _finish(self, shown: tuple[int, PixelArray] | None) -> None:
        self._found[self._place] = shown
        if self._poor is not None:
            self._poor_places.append(self._place)
        self._poor = None
        self._place += 1


def _frames(
    file: av.container.InputContainer, stream: av.VideoStream, lost: Sequence[int], *, has_stamps: bool
) -> Iterator[tuple[av.VideoFrame, int, bool]]:
    """Decode until the end, with each frame's stamp and whether it is good; damaged packets are skipped, as
    players do, and what comes after them is not good before the next key picture."""
    num_bad = count = 0
    is_good = True
    good: set[int | None] = set()
    """Stamps of packets that decoded, and of which all did that they may refer to."""
    last: int | None = None
    for packet in _packets(file, stream):
        stamp = packet.dts if packet.pts is None else packet.pts
        is_good = (is_good and not are_lost_between(lost, last, stamp)) or packet.is_keyframe
        last = stamp if last is None or stamp is None else max(last, stamp)
        try:
            frames = packet.decode()
        except av.FFmpegError:
            num_bad += 1
            is_good = False
            if num_bad > _MAX_BAD_PACKETS:
                return
            continue
        num_bad = 0
        if is_good:
            good.add(stamp)
        for frame in frames:
            stamp = frame.dts if frame.pts is None else frame.pts
            has_own = has_stamps and stamp is not None
            is_whole = stamp in good if has_own else is_good
            good.discard(stamp)
            yield frame, stamp if has_own and stamp is not None else count, is_whole and not frame.is_corrupt
            count += 1


def _packets(file: av.container.InputContainer, stream: av.VideoStream) -> Iterator[av.Packet]:
    """Until the end; what cannot be read is skipped."""
    packets = stamped(file, stream)
    num_bad = 0
    while num_bad <= _MAX_BAD_PACKETS:
        try:
            yield next(packets)
        except StopIteration:
            return
        except av.FFmpegError:
            num_bad += 1


_HD_WIDTH: Final = 1280
_MAX_SD_HEIGHT: Final = 576
_UNSPECIFIED: Final = 2
"""The colour matrix of a file that names none."""
_TURNS: Final[dict[int, Callable[[PixelArray], PixelArray]]] = {
    90: lambda picture: np.rot90(picture, 1),
    180: lambda picture: np.rot90(picture, 2),
    270: lambda picture: np.rot90(picture, 3),
}
"""Counterclockwise, as libav gives the angle a picture is to be turned by."""


def upright(frame: av.VideoFrame) -> PixelArray:
    """A decoded frame as uint8 [height, width, 3], turned as the file says. Without a colour matrix HD is
    BT.709, as players have it, and SD is BT.601."""
    is_hd = frame.width >= _HD_WIDTH or frame.height > _MAX_SD_HEIGHT
    matrix = Colorspace.ITU709 if is_hd and frame.colorspace == _UNSPECIFIED else None
    picture: PixelArray = frame.to_ndarray(format="rgb24", src_colorspace=matrix)
    turn = _TURNS.get(round(frame.rotation) % 360)
    return picture if turn is None else np.ascontiguousarray(turn(picture))
