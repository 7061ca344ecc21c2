"""`mm_processor_kwargs`: how a request wants its pictures and clips looked at, by the processors' own names.

As in the reference `min_pixels` and `max_pixels` are of images, `fps` and the numbers of frames of videos,
and the rest of both; what `images_kwargs` and `videos_kwargs` say goes before what stands beside them. Knows
no model: what it may ask for at most is `media/vision/config.py`'s. Read next: `protocols/chat/request.py`.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw, Struct, UnsetType

from ..errors import BadRequestError, wrong
from ..shared.decode_errors import shortened
from ..shared.json_body import Decode, check_range, decoder, refuse

FIELD: Final = "mm_processor_kwargs"
_MAX_PIXELS: Final = 2**40
_MAX_FRAMES: Final = 2**31 - 1
_MAX_FPS: Final = 1000.0

RawProcessorKwargs = Raw | UnsetType
"""As requests hold it: which keys are known depends on the model."""


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


class OptionValue(Struct, frozen=True):
    """A value, and where the request has it."""

    value: float
    param: str


class MediaOptions(Struct, frozen=True, kw_only=True):
    """What a request says of one kind of media; None where it says nothing."""

    min_pixels: OptionValue | None = None
    max_pixels: OptionValue | None = None
    do_resize: bool | None = None
    fps: OptionValue | None = None
    num_frames: OptionValue | None = None
    min_frames: OptionValue | None = None
    max_frames: OptionValue | None = None


class UnknownKey(Struct, frozen=True):
    """A key that no model takes. `known` are the keys that are known at its place, `group` is the key of the
    object that holds it (`size`, `images_kwargs`), empty for the field itself."""

    param: str
    known: tuple[str, ...]
    group: str = ""


class ProcessorOptions(Struct, frozen=True, kw_only=True):
    """Of both kinds. With an `unknown` key nothing else is read: who knows the model refuses it with the keys
    that this one takes."""

    image: MediaOptions = MediaOptions()
    video: MediaOptions = MediaOptions()
    unknown: UnknownKey | None = None


NO_PROCESSOR_OPTIONS: Final = ProcessorOptions()
PROCESSOR_KEYS: Final = ProcessorKwargs.__struct_fields__
_GROUPS: Final[dict[str, type[Struct]]] = {
    "size": PixelSize,
    "images_kwargs": ImageKwargs,
    "videos_kwargs": VideoKwargs,
}
_decode: Decode[ProcessorKwargs | None] = decoder(ProcessorKwargs | None)  # type: ignore[arg-type]  # a union


def parse_processor_options(raw: RawProcessorKwargs) -> ProcessorOptions:
    """Check the field as it came. Raises BadRequestError naming the key, but for an unknown one."""
    if isinstance(raw, UnsetType):
        return NO_PROCESSOR_OPTIONS
    if (unknown := _unknown_key(raw, FIELD, PROCESSOR_KEYS)) is not None:
        return ProcessorOptions(unknown=unknown)
    return read_processor_options(_decode(raw, FIELD))


def _unknown_key(raw: Raw, where: str, known: tuple[str, ...], group: str = "") -> UnknownKey | None:
    try:
        fields = msgspec.json.decode(raw, type=dict[str, Raw])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None  # decoding says what is wrong
    for name, value in fields.items():
        if name not in known:
            return UnknownKey(f"{where}.{shortened(name)}", known, group)
        if name in _GROUPS:
            inner = _unknown_key(value, f"{where}.{name}", _GROUPS[name].__struct_fields__, name)
            if inner is not None:
                return inner
    return None


def read_processor_options(kwargs: ProcessorKwargs | None) -> ProcessorOptions:
    """Check the field. Raises BadRequestError naming the key."""
    if kwargs is None:
        return NO_PROCESSOR_OPTIONS
    image, video = _pixels(kwargs, FIELD), _clip(kwargs, FIELD)
    if kwargs.images_kwargs is not None:
        image = _merged(image, _pixels(kwargs.images_kwargs, f"{FIELD}.images_kwargs"))
    if kwargs.videos_kwargs is not None:
        video = _merged(video, _clip(kwargs.videos_kwargs, f"{FIELD}.videos_kwargs"))
    return ProcessorOptions(image=image, video=video)


def _merged(general: MediaOptions, particular: MediaOptions) -> MediaOptions:
    """What is particular goes first; a rate and a number of frames replace each other."""
    given = {name: getattr(particular, name) for name in MediaOptions.__struct_fields__}
    merged = {name: getattr(general, name) if value is None else value for name, value in given.items()}
    if particular.fps is not None:
        merged["num_frames"] = None
    elif particular.num_frames is not None:
        merged["fps"] = None
    return MediaOptions(**merged)


def _pixels(kwargs: ProcessorKwargs | ImageKwargs, where: str) -> MediaOptions:
    least, most = _bounds(kwargs.size, where)
    if kwargs.size is not None and (kwargs.min_pixels is not None or kwargs.max_pixels is not None):
        raise wrong(f"{where}.size", "and `min_pixels` or `max_pixels` exclude each other")
    return MediaOptions(
        min_pixels=least or _option(kwargs.min_pixels, f"{where}.min_pixels", _MAX_PIXELS),
        max_pixels=most or _option(kwargs.max_pixels, f"{where}.max_pixels", _MAX_PIXELS),
        do_resize=kwargs.do_resize,
    )


def _clip(kwargs: VideoKwargs, where: str) -> MediaOptions:
    if kwargs.do_sample_frames is False:
        raise refuse(f"{where}.do_sample_frames", False, "true; send chosen frames as a data:video/jpeg URI")
    if kwargs.fps is not None and kwargs.num_frames is not None:
        raise BadRequestError(
            f"`{where}.fps` and `{where}.num_frames` exclude each other", param=f"{where}.num_frames"
        )
    if kwargs.fps is not None and not 0 < kwargs.fps <= _MAX_FPS:
        raise refuse(f"{where}.fps", kwargs.fps, f"above 0, up to {_MAX_FPS:g}")
    least, most = _bounds(kwargs.size, where)
    return MediaOptions(
        min_pixels=least,
        max_pixels=most,
        do_resize=kwargs.do_resize,
        fps=None if kwargs.fps is None else OptionValue(kwargs.fps, f"{where}.fps"),
        num_frames=_option(kwargs.num_frames, f"{where}.num_frames", _MAX_FRAMES),
        min_frames=_option(kwargs.min_frames, f"{where}.min_frames", _MAX_FRAMES),
        max_frames=_option(kwargs.max_frames, f"{where}.max_frames", _MAX_FRAMES),
    )


def _bounds(size: PixelSize | None, where: str) -> tuple[OptionValue | None, OptionValue | None]:
    if size is None:
        return None, None
    return (
        _option(size.shortest_edge, f"{where}.size.shortest_edge", _MAX_PIXELS),
        _option(size.longest_edge, f"{where}.size.longest_edge", _MAX_PIXELS),
    )


def _option(value: int | None, param: str, most: int) -> OptionValue | None:
    check_range(param, value, 1, most)
    return None if value is None else OptionValue(value, param)
