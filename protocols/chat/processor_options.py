"""`mm_processor_kwargs`: how a request wants its pictures and clips looked at, by the processors' own names.

As in the reference `min_pixels` and `max_pixels` are of images, `fps` and the numbers of frames of videos,
and the rest of both; what `images_kwargs` and `videos_kwargs` say goes before what stands beside them. Knows
no model: what it may ask for at most is `media/vision/config.py`'s. Read next: `protocols/chat/request.py`.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from ..errors import BadRequestError, wrong
from ..shared.json_body import check_range, refuse

FIELD: Final = "mm_processor_kwargs"
_MAX_PIXELS: Final = 2**40
_MAX_FRAMES: Final = 2**31 - 1
_MAX_FPS: Final = 1000.0


class PixelSize(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Least and most pixels of the resized area, by the names they have in the checkpoints' files."""

    shortest_edge: int | None = None
    longest_edge: int | None = None


class _SizeKwargs(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    size: PixelSize | None = None
    do_resize: bool | None = None


class ImageKwargs(_SizeKwargs, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of images."""

    min_pixels: int | None = None
    max_pixels: int | None = None


class VideoKwargs(_SizeKwargs, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of videos. Pixels are those of all frames together."""

    fps: float | None = None
    num_frames: int | None = None
    min_frames: int | None = None
    max_frames: int | None = None
    do_sample_frames: bool | None = None


class ProcessorKwargs(VideoKwargs, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`mm_processor_kwargs`, of both; null means as the model does it."""

    min_pixels: int | None = None
    max_pixels: int | None = None
    images_kwargs: ImageKwargs | None = None
    videos_kwargs: VideoKwargs | None = None


class Wished(Struct, frozen=True):
    """A value, and where the request has it."""

    value: float
    param: str


class MediaWish(Struct, frozen=True, kw_only=True):
    """What a request says of one kind of media; None where it says nothing."""

    min_pixels: Wished | None = None
    max_pixels: Wished | None = None
    do_resize: bool | None = None
    fps: Wished | None = None
    num_frames: Wished | None = None
    min_frames: Wished | None = None
    max_frames: Wished | None = None


class MediaWishes(Struct, frozen=True, kw_only=True):
    """Of both kinds."""

    image: MediaWish = MediaWish()
    video: MediaWish = MediaWish()


NOTHING_WISHED: Final = MediaWishes()


def read_media_wishes(asked: ProcessorKwargs | None) -> MediaWishes:
    """Check the field. Raises BadRequestError naming the key."""
    if asked is None:
        return NOTHING_WISHED
    image, video = _pixels(asked, FIELD), _clip(asked, FIELD)
    if asked.images_kwargs is not None:
        image = _merged(image, _pixels(asked.images_kwargs, f"{FIELD}.images_kwargs"))
    if asked.videos_kwargs is not None:
        video = _merged(video, _clip(asked.videos_kwargs, f"{FIELD}.videos_kwargs"))
    return MediaWishes(image=image, video=video)


def _merged(general: MediaWish, particular: MediaWish) -> MediaWish:
    """What is particular goes first; a rate and a number of frames replace each other."""
    said = {name: getattr(particular, name) for name in MediaWish.__struct_fields__}
    merged = {name: getattr(general, name) if value is None else value for name, value in said.items()}
    if particular.fps is not None:
        merged["num_frames"] = None
    elif particular.num_frames is not None:
        merged["fps"] = None
    return MediaWish(**merged)


def _pixels(kwargs: ProcessorKwargs | ImageKwargs, where: str) -> MediaWish:
    least, most = _bounds(kwargs.size, where)
    if kwargs.size is not None and (kwargs.min_pixels is not None or kwargs.max_pixels is not None):
        raise wrong(f"{where}.size", "and `min_pixels` or `max_pixels` say the same; give one.")
    return MediaWish(
        min_pixels=least or _wished(kwargs.min_pixels, f"{where}.min_pixels", _MAX_PIXELS),
        max_pixels=most or _wished(kwargs.max_pixels, f"{where}.max_pixels", _MAX_PIXELS),
        do_resize=kwargs.do_resize,
    )


def _clip(kwargs: VideoKwargs, where: str) -> MediaWish:
    if kwargs.do_sample_frames is False:
        raise refuse(
            f"{where}.do_sample_frames", False, "true; frames of one's own are a data:video/jpeg URI"
        )
    if kwargs.fps is not None and kwargs.num_frames is not None:
        raise BadRequestError(
            f"`{where}.fps` and `{where}.num_frames` exclude each other.", param=f"{where}.num_frames"
        )
    if kwargs.fps is not None and not 0 < kwargs.fps <= _MAX_FPS:
        raise refuse(f"{where}.fps", kwargs.fps, f"above 0, up to {_MAX_FPS:g}")
    least, most = _bounds(kwargs.size, where)
    return MediaWish(
        min_pixels=least,
        max_pixels=most,
        do_resize=kwargs.do_resize,
        fps=None if kwargs.fps is None else Wished(kwargs.fps, f"{where}.fps"),
        num_frames=_wished(kwargs.num_frames, f"{where}.num_frames", _MAX_FRAMES),
        min_frames=_wished(kwargs.min_frames, f"{where}.min_frames", _MAX_FRAMES),
        max_frames=_wished(kwargs.max_frames, f"{where}.max_frames", _MAX_FRAMES),
    )


def _bounds(size: PixelSize | None, where: str) -> tuple[Wished | None, Wished | None]:
    if size is None:
        return None, None
    return (
        _wished(size.shortest_edge, f"{where}.size.shortest_edge", _MAX_PIXELS),
        _wished(size.longest_edge, f"{where}.size.longest_edge", _MAX_PIXELS),
    )


def _wished(value: int | None, param: str, most: int) -> Wished | None:
    check_range(param, value, 1, most)
    return None if value is None else Wished(value, param)
