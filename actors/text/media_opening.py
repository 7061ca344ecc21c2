"""The files of a request → what a model's encoder takes, opened where and when that is safe.

Memory for media is reserved before any is decoded (`actors/media_decoding/memory_budget.py`) and held as long
as the prompt; what was opened before is not opened again (`actors/media_decoding/cache.py`). A server opens
files in the media actor's killable workers, `LocalEngine` (whose files are its user's own) in threads:
`actors/text/media_opener.py`. Read next: `actors/text/prompts.py`, which makes prompts of the results.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import numpy as np

from ...engine.models.prompts import PromptBuilder
from ...media.audio.decode import DecodeLimits, FloatArray
from ...media.embeds import embeds_item
from ...media.vision.config import WHITE, Background
from ...media.vision.images import PixelArray
from ...media.vision.live_frames import PreparedFrame
from ...media.vision.pixel_rule import PixelRule, open_rule
from ...media.vision.processor_options import unknown_key
from ...media.vision.video_container import VideoLimits
from ...protocols.chat.content import MediaPart
from ...protocols.chat.processor_options import FIELD, NO_PROCESSOR_OPTIONS, ProcessorOptions
from ...protocols.engine.messages import EncoderItem, MediaItems
from ...protocols.errors import BadRequestError, MediaError, SensoriumError, TooLargeError
from ...protocols.shared.audio_format import INTERNAL_RATE
from ...protocols.shared.json_body import unsupported
from ..config.server import SAMPLE_BYTES_PER_S
from ..media_decoding.audio_items import AudioItems
from ..media_decoding.cache import MediaCache, MediaKey, digest_of
from ..media_decoding.memory_budget import MediaBudget, Reservation
from ..runtime.compute_pool import compute
from ..runtime.nursery import all_of
from ..runtime.off_loop import off_loop
from .media_opener import MediaOpener

_T = TypeVar("_T")

FILES_AT_A_TIME: Final = 8
"""Of one request: the others wait here, and not where there is little room to wait."""
_FEATURE_BYTES_PER_S: Final = 4 * 128 * 100
"""Of audio: log-mel frames."""


@dataclass(frozen=True, slots=True)
class MediaLimits:
    """What one request may bring."""

    max_items: int = 64
    """Images, videos and audio clips of one request."""
    max_clip_s: float = 3600.0
    """Of one video or audio clip."""
    max_image_pixels: int | None = None
    """Larger images and frames are made smaller, as the model's own bound does."""
    background: Background = WHITE
    """What transparent pictures lie on."""
    takes_embeds: bool = False
    """Encodings made elsewhere are taken in place of files."""


@dataclass(frozen=True, slots=True, eq=False)
class Frames:
    """A video as its user chose the frames: uint8 [height, width, 3] each, with their times in seconds."""

    pictures: Sequence[PixelArray]
    times_s: Sequence[float]


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Mono audio at 16 kHz."""

    samples: FloatArray


Source = bytes | PixelArray | Frames | Samples
"""A file, or what is in one."""


@dataclass(slots=True, eq=False)
class _Given:
    """A part with its content; with `key`, what that comes to may be kept, and with `kept` was found so."""

    part: MediaPart
    source: Source
    pixels: PixelRule | None
    caller: str
    opener: MediaOpener
    key: MediaKey | None = None
    kept: MediaItems | None = None
    num_bytes: int = 0
    """What it was measured to come to, and so was reserved."""


class MediaOpening:
    """Opens files for one model. Shared by all its requests; `budget` and `cache` also by other models."""

    def __init__(
        self,
        builder: PromptBuilder,
        opener: MediaOpener,
        *,
        budget: MediaBudget,
        limits: MediaLimits,
        cache: MediaCache[MediaItems],
    ) -> None:
        self.builder = builder
        self._opener = opener
        self._budget = budget
        self._limits = limits
        self._cache = cache
        self._audio_limits = DecodeLimits(max_seconds=limits.max_clip_s)
        self._video_limits = VideoLimits(max_seconds=limits.max_clip_s)
        self._pixels: PixelRule | None = None
        self._audio: AudioItems | None = None
        if builder.media.pixels is not None:
            rule = open_rule(builder.media.pixels, builder.info.folder)
            self._pixels = rule.bounded(limits.max_image_pixels).on(limits.background)
        if builder.media.audio is not None:
            self._audio = AudioItems(builder.media.audio, builder.info)
        features = None if self._audio is None else self._audio.features
        ways = (self._video_limits, features, builder.media.audio)
        self._way = repr((ways, self._audio_limits))

    @asynccontextmanager
    async def opened(
        self,
        parts: Sequence[MediaPart],
        sources: Mapping[str, Source] | None = None,
        *,
        scope: str | None = None,
        caller: str = "",
        processor_options: ProcessorOptions = NO_PROCESSOR_OPTIONS,
    ) -> AsyncIterator[list[MediaItems]]:
        """Media with their features, whose memory is held until it is left. Raises as `chat` does."""
        pixels = self.pixel_rule(processor_options)
        given = [
            _Given(
                part,
                (sources or {}).get(part.param, part.data),
                _closely(pixels, part),
                caller,
                self._opener.of(caller),
            )
            for part in parts
        ]
        await _for_each(given, partial(self._recognise, scope))
        await _for_each(given, self._measure)
        async with self._budget.reserved(sum(each.num_bytes for each in given), caller) as reservation:
            media = await _for_each(given, partial(self._open, reservation))
            reservation.settle(sum(map(media_bytes, media)))
            yield media

    def pixel_rule(self, processor_options: ProcessorOptions) -> PixelRule | None:
        """How a request's pictures are looked at. Raises BadRequestError naming the key."""
        if processor_options == NO_PROCESSOR_OPTIONS:
            return self._pixels
        if self._pixels is None:
            raise unsupported(
                FIELD, f"is for images and videos; the model {self.builder.info.name} takes none"
            )
        if processor_options.unknown is not None:
            raise unknown_key(processor_options.unknown, self._pixels.option_keys)
        return self._pixels.with_options(processor_options)

    @property
    def video_fps(self) -> float | None:
        """Frames of a second that the model looks at; None where it takes no video, or a number whatever its
        length."""
        return None if self._pixels is None else self._pixels.video_fps

    async def open_frame(self, data: bytes, *, num_frames: int, caller: str = "") -> PreparedFrame:
        """One frame of live video, of `num_frames`. Raises MediaError and what the opener raises."""
        assert self._pixels is not None, "kinds are checked"
        opening = partial(self._pixels.open_frame, num_frames=num_frames)
        return await self._opener.of(caller).measure(data, opening, "image")

    @asynccontextmanager
    async def paired(self, frames: Sequence[PixelArray], *, caller: str = "") -> AsyncIterator[EncoderItem]:
        """What a vision tower encodes of frames that follow each other; its memory is held until it is left.

        Raises OverloadedError if there is no memory for media now."""
        assert self._pixels is not None, "kinds are checked"
        height, width, _ = frames[0].shape
        async with self._budget.reserved(self._pixels.pair_bytes(height, width), caller):
            yield await compute(self._pixels.pair, frames)

    async def _recognise(self, scope: str | None, given: _Given) -> None:
        """Find out by which key the file is kept. Raises MediaError if it is named only, and is not kept."""
        part, content = given.part, given.source
        if scope is not None and isinstance(content, bytes) and self._cache.max_bytes:
            if content:
                # Of no encoding are the bytes all there is of it.
                digest = await digest_of(content) + ("" if part.embeds is None else f" {part.embeds}")
            else:
                digest = self._cache.named(scope, part.name) or ""
            way = f"{self._way} {given.pixels}" if part.embeds is None else f"{self.builder.media.embeds}"
            given.key = MediaKey(scope, digest, f"{part.kind} {way}", given.caller)
            if part.name and content:
                self._cache.call(given.key, part.name)
            given.kept = self._cache.peek(given.key)
        if isinstance(content, bytes) and not content and part.name and given.kept is None:
            raise MediaError(
                f"No {part.kind} with the uuid {part.name[:80]!r} is kept here; send it again with its file.",
                code="media_not_kept",
            )

    async def _measure(self, given: _Given) -> None:
        """Bytes of memory that opening takes."""
        if given.kept is not None:
            given.num_bytes = media_bytes(given.kept)
        elif given.part.embeds is not None:
            given.num_bytes = len(given.part.data)
        else:
            given.num_bytes = await self._measure_file(given)

    async def _measure_file(self, given: _Given) -> int:
        part, source, pixels, opener = given.part, given.source, given.pixels, given.opener
        if part.kind == "audio":
            seconds = 0.0
            match source:
                case bytes():
                    seconds = await opener.measure_audio(source, limits=self._audio_limits)
                case Samples(samples):
                    seconds = len(samples) / INTERNAL_RATE
            assert self._audio is not None, "kinds are checked"
            self._audio.check_length(seconds)
            return int(seconds * (SAMPLE_BYTES_PER_S + _FEATURE_BYTES_PER_S))
        assert pixels is not None, "kinds are checked"
        match part.kind, source:
            case "image", bytes():
                return await opener.measure(source, pixels.measure_image, "image")
            case "image", np.ndarray():
                return pixels.image_bytes(source.shape[0], source.shape[1])
            case "video", bytes():
                measure = partial(pixels.measure_video, limits=self._video_limits)
                return await opener.measure(source, measure, "video")
            case "video", Frames(pictures) if pictures:
                height, width, _ = pictures[0].shape
                return pixels.video_bytes(len(pictures), height, width)
        return 0

    async def _open(self, reservation: Reservation, given: _Given) -> MediaItems:
        """Raises OverloadedError also for one that came to more than it was measured to, and has no room."""
        if given.key is None:
            found = await self._open_file(given)
        else:
            found = await self._cache.get(given.key, partial(self._open_kept, given))
        more = max(0, media_bytes(found) - given.num_bytes)
        reservation.settle(reservation.num_bytes + more)
        return found

    async def _open_kept(self, given: _Given) -> MediaItems:
        return given.kept or await self._open_file(given)

    async def _open_file(self, given: _Given) -> MediaItems:
        part, source, pixels, opener = given.part, given.source, given.pixels, given.opener
        if part.embeds is not None:
            with _naming(f"{part.param}.{part.kind}_embeds.data"):
                item = await off_loop(partial(embeds_item, part.data, part.embeds), size=len(part.data))
            return MediaItems(part.kind, (item,))
        if part.kind == "audio":
            return await self._open_audio(source, opener)
        assert pixels is not None, "kinds are checked"
        match part.kind, source:
            case "image", bytes():
                return await opener.prepare(source, pixels.prepare_image, "image")
            case "image", np.ndarray():
                return await compute(pixels.prepare_picture, source)
            case "video", bytes():
                prepare = partial(pixels.prepare_video, limits=self._video_limits)
                return await opener.prepare(source, prepare, "video")
            case "video", Frames(pictures, times_s):
                return await compute(pixels.prepare_frames, pictures, times_s)
        raise BadRequestError(f"{type(source).__name__} is not a supported type of {part.kind}.")

    async def _open_audio(self, source: Source, opener: MediaOpener) -> MediaItems:
        match source:
            case bytes():
                samples = (await opener.decode(source, limits=self._audio_limits)).samples
            case Samples(samples):
                if len(samples) > self._limits.max_clip_s * INTERNAL_RATE:
                    raise TooLargeError(
                        f"The audio has {len(samples) / INTERNAL_RATE:.1f} s; the limit is "
                        f"{self._limits.max_clip_s:g} s."
                    )
            case _:
                raise BadRequestError(f"{type(source).__name__} is not a supported type of audio.")
        return await compute(self._items, samples)

    def _items(self, samples: FloatArray) -> MediaItems:
        assert self._audio is not None, "kinds are checked"
        return MediaItems("audio", self._audio.items(samples))


def media_bytes(media: MediaItems) -> int:
    """Bytes of the features of one part."""
    return sum(len(item.features.data) for item in media.items)


def _closely(pixels: PixelRule | None, part: MediaPart) -> PixelRule | None:
    return pixels.low_detail() if part.is_low and pixels is not None else pixels


async def _for_each(given: Sequence[_Given], work: Callable[[_Given], Awaitable[_T]]) -> list[_T]:
    """Results in order; the first failure, which names its part, ends the others."""

    async def one(each: _Given) -> _T:
        with _naming(each.part.param):
            return await work(each)

    return await all_of(one, given, at_once=FILES_AT_A_TIME)


@contextmanager
def _naming(param: str) -> Iterator[None]:
    """Let errors name the request's part; openers know only a file."""
    try:
        yield
    except SensoriumError as error:
        if error.status < 500 and not (error.param or "").startswith(param):
            error.message = f"`{param}`: {error.message}"
            error.param = param
            error.args = (error.message,)
        raise
