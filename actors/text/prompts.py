"""Requests → prompts: opens their media where that is safe, tokenizes long texts in a thread.

A server opens files in the media actor's killable workers, `LocalEngine` (whose files are its user's own) in
threads: the two `MediaOpener`s. What becomes of the results is `engine/models/prompts.py`'s business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol, TypeVar

import numpy as np
import trio

from ...engine.models.prompts import PreparedMedia, Prompt, PromptBuilder, media_parts, num_characters
from ...media.decode import DecodedAudio, DecodeLimits, FloatArray, decode_audio
from ...media.features import FeatureConfig
from ...media.images import ImageLimits, PixelArray, image_item, prepare_image
from ...media.video import VideoLimits, prepare_frames, prepare_video
from ...media.vision_config import PixelConfig, VideoConfig, VisionConfig, read_vision_config
from ...media.windows import WindowedLogMel
from ...protocols.audio import INTERNAL_RATE
from ...protocols.chat import Conversation
from ...protocols.chat_content import MediaPart
from ...protocols.errors import BadRequestError, OverloadedError, SensoriumError, TooLargeError
from ...protocols.messages import EncoderItem, VideoItems
from ..kernel.nursery import open_work

_T = TypeVar("_T")

_INLINE_CHARS: Final = 2000
"""Text up to this long is tokenized on the loop: a millisecond, less than a thread costs the others."""


@dataclass(frozen=True, slots=True)
class MediaLimits:
    """What one request may bring, and what all of them together may hold."""

    max_items: int = 64
    """Images, videos and audio clips of one request."""
    max_audio_s: float = 3600.0
    """Of one request, all clips together."""
    max_request_bytes: int = 1 << 30
    """Features of one request."""
    max_held_bytes: int = 4 << 30
    """Features of all requests in hand."""
    image: ImageLimits = field(default_factory=ImageLimits)
    video: VideoLimits = field(default_factory=VideoLimits)
    audio: DecodeLimits = field(default_factory=DecodeLimits)


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


class MediaOpener(Protocol):
    """Opens files. Raises MediaError, TooLargeError, OverloadedError or UnavailableError."""

    async def prepare_image(
        self, data: bytes, config: PixelConfig, limits: ImageLimits | None = None
    ) -> EncoderItem:
        """An image's features."""

    async def prepare_video(
        self, data: bytes, config: VideoConfig, limits: VideoLimits | None = None
    ) -> VideoItems:
        """A video's features."""

    async def decode(self, data: bytes, *, limits: DecodeLimits | None = None) -> DecodedAudio:
        """An audio file's samples at 16 kHz."""


class ThreadOpener:
    """Opens files in threads of this process: for files one trusts."""

    async def prepare_image(
        self, data: bytes, config: PixelConfig, limits: ImageLimits | None = None
    ) -> EncoderItem:
        """See `MediaOpener`."""
        return await trio.to_thread.run_sync(prepare_image, data, config, limits)

    async def prepare_video(
        self, data: bytes, config: VideoConfig, limits: VideoLimits | None = None
    ) -> VideoItems:
        """See `MediaOpener`."""
        return await trio.to_thread.run_sync(prepare_video, data, config, limits)

    async def decode(self, data: bytes, *, limits: DecodeLimits | None = None) -> DecodedAudio:
        """See `MediaOpener`."""
        return await trio.to_thread.run_sync(partial(decode_audio, data, limits=limits))


class Prompter:
    """Makes one model's prompts. Shared by all its requests."""

    def __init__(
        self, builder: PromptBuilder, opener: MediaOpener, *, limits: MediaLimits | None = None
    ) -> None:
        self.builder = builder
        self.limits = limits or MediaLimits()
        self.held_bytes = 0
        """Features of the requests in hand."""
        self._opener = opener
        self._vision: VisionConfig | None = None
        self._audio: FeatureConfig | None = None
        if builder.media.pixels is not None:
            self._vision = read_vision_config(builder.info.folder)
        if builder.media.audio is not None:
            self._audio = FeatureConfig.from_folder(builder.info.folder)

    async def completion(self, prompt: str | Sequence[int], *, param: str = "prompt") -> Prompt:
        """See `PromptBuilder.completion`."""
        work = partial(self.builder.completion, prompt, param=param)
        return await _run(work, len(prompt))

    async def chat(self, conversation: Conversation, sources: Mapping[str, Source] | None = None) -> Prompt:
        """The prompt of a conversation with its media opened.

        `sources` gives a part's content by its path where it does not hold the file itself. Raises
        BadRequestError, MediaError or TooLargeError naming the part, and the opener's errors. Cancellation
        stops the opening of files.
        """
        parts = media_parts(conversation)
        for part in parts:
            self.builder.check_kind(part)
        if len(parts) > self.limits.max_items:
            raise TooLargeError(
                f"The request has {len(parts)} media parts; the limit is {self.limits.max_items}.",
                param=parts[self.limits.max_items].param,
            )
        media = await self._open_all(parts, sources or {})
        return await _run(partial(self.builder.chat, conversation, media), num_characters(conversation))

    @contextmanager
    def holding(self, prompt: Prompt) -> Iterator[None]:
        """Count a prompt's features while a request holds them. Raises OverloadedError at the limit."""
        num_bytes = sum(len(item.features.data) for item in prompt.items)
        if num_bytes and self.held_bytes + num_bytes > self.limits.max_held_bytes:
            raise OverloadedError("Too much media is in hand; try again.", retry_after_s=5.0)
        self.held_bytes += num_bytes
        try:
            yield
        finally:
            self.held_bytes -= num_bytes

    async def _open_all(
        self, parts: Sequence[MediaPart], sources: Mapping[str, Source]
    ) -> list[PreparedMedia]:
        opened: dict[int, PreparedMedia] = {}
        request = _RequestBudget(self.limits)

        async def open_one(index: int, part: MediaPart) -> None:
            with _naming(part.param):
                opened[index] = await self._open(part, sources.get(part.param, part.data), request)
                request.add_features(opened[index])

        async with open_work() as nursery:
            for index, part in enumerate(parts):
                nursery.start_soon(open_one, index, part)
        return [opened[index] for index in range(len(parts))]

    async def _open(self, part: MediaPart, source: Source, request: _RequestBudget) -> PreparedMedia:
        if part.kind == "audio":
            return await self._open_audio(source, request)
        assert self._vision is not None, "kinds are checked"
        if part.kind == "image":
            match source:
                case bytes():
                    return await self._opener.prepare_image(source, self._vision.image, self.limits.image)
                case np.ndarray():
                    return await trio.to_thread.run_sync(image_item, source, self._vision.image)
        match source:
            case bytes():
                return await self._opener.prepare_video(source, self._vision.video, self.limits.video)
            case Frames(pictures, times_s):
                return await trio.to_thread.run_sync(prepare_frames, pictures, times_s, self._vision.video)
        raise BadRequestError(f"{type(source).__name__} is no {part.kind}.")

    async def _open_audio(self, source: Source, request: _RequestBudget) -> tuple[EncoderItem, ...]:
        match source:
            case bytes():
                samples = (await self._opener.decode(source, limits=self.limits.audio)).samples
            case Samples(samples):
                pass
            case _:
                raise BadRequestError(f"{type(source).__name__} is no audio.")
        request.add_audio(len(samples) / INTERNAL_RATE)
        return await trio.to_thread.run_sync(self._windows, samples)

    def _windows(self, samples: FloatArray) -> tuple[EncoderItem, ...]:
        rule = self.builder.media.audio
        assert self._audio is not None, "kinds are checked"
        assert rule is not None
        windows = WindowedLogMel(self._audio, window_frames=rule.window_frames, num_tokens=rule.num_tokens)
        windows.append(samples)
        return tuple(change.item for change in windows.changes())


class _RequestBudget:
    """What one request's media have come to so far."""

    def __init__(self, limits: MediaLimits) -> None:
        self._limits = limits
        self._audio_s = 0.0
        self._num_bytes = 0

    def add_audio(self, seconds: float) -> None:
        self._audio_s += seconds
        if self._audio_s > self._limits.max_audio_s:
            raise TooLargeError(
                f"The request has {self._audio_s:.1f} s of audio so far; the limit is "
                f"{self._limits.max_audio_s:g} s."
            )

    def add_features(self, media: PreparedMedia) -> None:
        self._num_bytes += sum(len(item.features.data) for item in _items(media))
        if self._num_bytes > self._limits.max_request_bytes:
            raise TooLargeError(
                f"The request's media come to {self._num_bytes:,} bytes of features so far; the limit is "
                f"{self._limits.max_request_bytes:,}."
            )


def _items(media: PreparedMedia) -> tuple[EncoderItem, ...]:
    match media:
        case EncoderItem():
            return (media,)
        case VideoItems(items):
            return items
        case _:
            return media


async def _run(work: Callable[[], _T], num_chars: int) -> _T:
    if num_chars <= _INLINE_CHARS:
        return work()
    return await trio.to_thread.run_sync(work)


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
