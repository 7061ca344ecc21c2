"""Requests → prompts: opens their media where and when that is safe, tokenizes long texts in a thread.

Memory for media is reserved before any is decoded (`actors/media_budget.py`) and held as long as the prompt.
A server opens files in the media actor's killable workers, `LocalEngine` (whose files are its user's own) in
threads: `actors/text/openers.py`. What becomes of the results is `engine/models/prompts.py`'s business.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import numpy as np
import trio

from ...engine.models.prompts import PreparedMedia, Prompt, PromptBuilder, media_parts
from ...engine.text.chat_size import is_short
from ...media.decode import DecodeLimits, FloatArray
from ...media.features import FeatureConfig
from ...media.images import ImageLimits, PixelArray, image_bytes, image_item
from ...media.video import VideoLimits, prepare_frames, video_bytes
from ...media.vision_config import VisionConfig, read_vision_config
from ...media.windows import WindowedLogMel
from ...protocols.audio import INTERNAL_RATE
from ...protocols.chat import Conversation
from ...protocols.chat_content import MediaPart
from ...protocols.errors import BadRequestError, SensoriumError, TooLargeError
from ...protocols.messages import EncoderItem, VideoItems
from ..config import SAMPLE_BYTES_PER_S
from ..kernel.nursery import open_work
from ..kernel.off_loop import INLINE_CHARS, off_loop
from ..media_budget import MediaBudget
from .openers import MediaOpener

_T = TypeVar("_T")

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


class Prompter:
    """Makes one model's prompts. Shared by all its requests; `budget` also by other models."""

    def __init__(
        self,
        builder: PromptBuilder,
        opener: MediaOpener,
        *,
        budget: MediaBudget | None = None,
        limits: MediaLimits | None = None,
    ) -> None:
        self.builder = builder
        self._budget = budget or MediaBudget()
        self._opener = opener
        self._limits = limits = limits or MediaLimits()
        self._audio_limits = DecodeLimits(max_seconds=limits.max_clip_s)
        self._video_limits = VideoLimits(max_seconds=limits.max_clip_s)
        self._image_limits = ImageLimits()
        self._vision: VisionConfig | None = None
        self._audio: FeatureConfig | None = None
        if builder.media.pixels is not None:
            self._vision = read_vision_config(builder.info.folder).bounded(limits.max_image_pixels)
            if not self._vision.image.do_resize and limits.max_image_pixels is not None:
                self._image_limits = ImageLimits(max_pixels=limits.max_image_pixels)
        if builder.media.audio is not None:
            self._audio = FeatureConfig.from_folder(builder.info.folder)

    async def completion(self, prompt: str | Sequence[int], *, param: str = "prompt") -> Prompt:
        """See `PromptBuilder.completion`."""
        return await off_loop(partial(self.builder.completion, prompt, param=param), size=len(prompt))

    async def decode(self, token_ids: Sequence[int]) -> str:
        """The text of ids."""
        return await off_loop(partial(self.builder.text.decode, token_ids), size=len(token_ids))

    @asynccontextmanager
    async def chat(
        self, conversation: Conversation, sources: Mapping[str, Source] | None = None
    ) -> AsyncIterator[Prompt]:
        """The prompt of a conversation with its media opened; their memory is held until it is left.

        `sources` gives a part's content by its path where it does not hold the file itself. Raises
        BadRequestError, MediaError or TooLargeError naming the part, OverloadedError if there is no memory
        for media now, and the opener's errors. Cancellation stops the opening of files.
        """
        parts = media_parts(conversation)
        for part in parts:
            self.builder.check_kind(part)
        if len(parts) > self._limits.max_items:
            raise TooLargeError(
                f"The request has {len(parts)} media parts; the limit is {self._limits.max_items}.",
                param=parts[self._limits.max_items].param,
            )
        given = [(part, (sources or {}).get(part.param, part.data)) for part in parts]
        sizes = await _for_each(given, self._measure)
        async with self._budget.reserved(sum(sizes)) as reservation:
            media = await _for_each(given, self._open)
            reservation.settle(sum(len(item.features.data) for each in media for item in _items(each)))
            build = partial(self.builder.chat, conversation, media)
            size = 0 if is_short(conversation, INLINE_CHARS) else INLINE_CHARS + 1
            yield await off_loop(build, size=size)

    async def _measure(self, part: MediaPart, source: Source) -> int:
        """Bytes of memory that opening takes."""
        if part.kind == "audio":
            seconds = 0.0
            match source:
                case bytes():
                    seconds = await self._opener.measure_audio(source, limits=self._audio_limits)
                case Samples(samples):
                    seconds = len(samples) / INTERNAL_RATE
            return int(seconds * (SAMPLE_BYTES_PER_S + _FEATURE_BYTES_PER_S))
        assert self._vision is not None, "kinds are checked"
        match part.kind, source:
            case "image", bytes():
                return await self._opener.measure_image(source, self._vision.image, self._image_limits)
            case "image", np.ndarray():
                return image_bytes(source.shape[0], source.shape[1], self._vision.image)
            case "video", bytes():
                return await self._opener.measure_video(source, self._vision.video, self._video_limits)
            case "video", Frames(pictures) if pictures:
                height, width, _ = pictures[0].shape
                return video_bytes(len(pictures), height, width, self._vision.video)
        return 0

    async def _open(self, part: MediaPart, source: Source) -> PreparedMedia:
        if part.kind == "audio":
            return await self._open_audio(source)
        assert self._vision is not None, "kinds are checked"
        match part.kind, source:
            case "image", bytes():
                return await self._opener.prepare_image(source, self._vision.image, self._image_limits)
            case "image", np.ndarray():
                return await trio.to_thread.run_sync(image_item, source, self._vision.image)
            case "video", bytes():
                return await self._opener.prepare_video(source, self._vision.video, self._video_limits)
            case "video", Frames(pictures, times_s):
                return await trio.to_thread.run_sync(prepare_frames, pictures, times_s, self._vision.video)
        raise BadRequestError(f"{type(source).__name__} is no {part.kind}.")

    async def _open_audio(self, source: Source) -> tuple[EncoderItem, ...]:
        match source:
            case bytes():
                samples = (await self._opener.decode(source, limits=self._audio_limits)).samples
            case Samples(samples):
                if len(samples) > self._limits.max_clip_s * INTERNAL_RATE:
                    raise TooLargeError(
                        f"The audio has {len(samples) / INTERNAL_RATE:.1f} s; the limit is "
                        f"{self._limits.max_clip_s:g} s."
                    )
            case _:
                raise BadRequestError(f"{type(source).__name__} is no audio.")
        return await trio.to_thread.run_sync(self._windows, samples)

    def _windows(self, samples: FloatArray) -> tuple[EncoderItem, ...]:
        rule = self.builder.media.audio
        assert self._audio is not None, "kinds are checked"
        assert rule is not None
        windows = WindowedLogMel(self._audio, window_frames=rule.window_frames, num_tokens=rule.num_tokens)
        windows.append(samples)
        return tuple(change.item for change in windows.changes())


def _items(media: PreparedMedia) -> tuple[EncoderItem, ...]:
    match media:
        case EncoderItem():
            return (media,)
        case VideoItems(items):
            return items
        case _:
            return media


async def _for_each(
    given: Sequence[tuple[MediaPart, Source]], work: Callable[[MediaPart, Source], Awaitable[_T]]
) -> list[_T]:
    """Results in order; the first failure, which names its part, ends the others."""
    found: dict[int, _T] = {}

    async def one(index: int, part: MediaPart, source: Source) -> None:
        with _naming(part.param):
            found[index] = await work(part, source)

    async with open_work() as nursery:
        for index, (part, source) in enumerate(given):
            nursery.start_soon(one, index, part, source)
    return [found[index] for index in range(len(given))]


@contextmanager
def _naming(param: str) -> Iterator[None]:
    """Let errors name the request's part; openers know only a file."""
    try:
        yield
    except SensoriumError as error:
        if error.status < 500:
            error.message = f"`{param}`: {error.message}"
            error.param = param
            error.args = (error.message,)
        raise
