"""What a request may wish of how its pictures are looked at: less than the model's own way, never more.

The checkpoint's bounds, or an operator's lower ones, are what memory was planned for. Read next:
`media/vision/config.py`; the wire's side is `protocols/chat/processor_options.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ...protocols.chat.processor_options import FIELD, MediaOptions, OptionValue, ProcessorOptions, UnknownKey
from ...protocols.errors import BadRequestError, wrong
from ...protocols.shared.json_body import refuse, unsupported
from .config import PixelConfig, VideoConfig, VisionConfig

LOW_DETAIL_PIXELS: Final = 512 * 512
"""Of an image of `detail: low`, at most: what OpenAI's API looks at then."""


def allowed_keys(keys: Sequence[str]) -> str:
    """The end of an error's text: the keys that a model takes."""
    return f"allowed: {', '.join(keys)}" if keys else f"it takes no {FIELD}"


def unknown_key(unknown: UnknownKey, keys: Sequence[str]) -> BadRequestError:
    """The error for an unknown key, for a model that takes these."""
    group = unknown.group
    if not group:
        return wrong(unknown.param, f"is not a known field; {allowed_keys(keys)}", code="unknown_parameter")
    if group not in keys:
        return unsupported(f"{FIELD}.{group}", f"does not apply to this model; {allowed_keys(keys)}")
    known = [key for key in unknown.known if group == "size" or key in keys]
    return wrong(unknown.param, f"is not a known field; {allowed_keys(known)}", code="unknown_parameter")


def low_detail(config: VisionConfig) -> VisionConfig:
    """`config` for an image of which few pixels will do, where its pictures are resized at all."""
    image = config.image
    if not image.do_resize or image.max_pixels <= LOW_DETAIL_PIXELS:
        return config
    least = min(image.min_pixels, LOW_DETAIL_PIXELS)
    return replace(config, image=replace(image, min_pixels=least, max_pixels=LOW_DETAIL_PIXELS))


def vision_with_options(config: VisionConfig, options: ProcessorOptions) -> VisionConfig:
    """`config` as a request wants it. Raises BadRequestError naming the key that asks for too much."""
    return VisionConfig(
        image=_pixels(config.image, options.image), video=_frames(config.video, options.video)
    )


def _pixels(pixels: PixelConfig, options: MediaOptions) -> PixelConfig:
    most = _at_most(options.max_pixels, pixels.max_pixels)
    least = pixels.min_pixels if options.min_pixels is None else _at_most(options.min_pixels, most)
    do_resize = pixels.do_resize if options.do_resize is None else options.do_resize
    ceiling = pixels.ceiling if options.min_pixels is None else pixels.max_pixels
    return replace(pixels, min_pixels=min(least, most), max_pixels=most, do_resize=do_resize, ceiling=ceiling)


def _frames(video: VideoConfig, options: MediaOptions) -> VideoConfig:
    most = _at_most(options.max_frames, video.max_frames)
    least = video.min_frames if options.min_frames is None else _at_most(options.min_frames, most)
    found = replace(
        video,
        pixels=_pixels(video.pixels, options),
        min_frames=min(least, most),
        max_frames=most,
        num_frames=None if video.num_frames is None else min(video.num_frames, most),
    )
    if options.num_frames is not None:
        return replace(found, num_frames=_at_most(options.num_frames, most))
    return found if options.fps is None else replace(found, num_frames=None, fps=options.fps.value)


def _at_most(option: OptionValue | None, most: int) -> int:
    if option is None:
        return most
    if option.value > most:
        raise refuse(option.param, option.value, f"up to {most} here")
    return int(option.value)
