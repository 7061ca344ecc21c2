"""What a vision model wants its pixels to be: read once from the JSON files of its folder.

Published folders hold `preprocessor_config.json` and `video_preprocessor_config.json`; transformers 5 writes
both into one `processor_config.json`. Absent fields have the defaults of transformers' Qwen2VLImageProcessor
and Qwen3VLVideoProcessor. Knows no pixels; read next: `media/vision/images.py`, `media/vision/video.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from ...protocols.engine.messages import EncoderItem, MediaKind
from ...protocols.errors import ModelLoadError
from ...protocols.shared.json_file import read_json

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_V = TypeVar("_V")

CLIP_MEAN: Final = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD: Final = (0.26862954, 0.26130258, 0.27577711)
HALF: Final = (0.5, 0.5, 0.5)
NUM_FILTERS: Final = 6
"""Pillow numbers its resampling filters 0 to 5."""

Rgb = tuple[float, float, float]
Background = tuple[int, int, int]
"""Red, green and blue, 0 to 255."""
WHITE: Final[Background] = (255, 255, 255)


@dataclass(frozen=True, slots=True, kw_only=True)
class PixelConfig:
    """From a picture to patches. `min_pixels` and `max_pixels` bound the resized area: of the image, or of
    all sampled frames of a video together."""

    min_pixels: int
    max_pixels: int
    patch_size: int
    merge_size: int
    temporal_patch_size: int
    mean: Rgb
    std: Rgb
    rescale_factor: float = 1 / 255
    resample: int = 3
    """Pillow's filter; 3 is bicubic."""
    do_resize: bool = True
    do_rescale: bool = True
    do_normalize: bool = True
    background: Background = WHITE
    """What transparent pictures lie on: an operator's choice."""
    ceiling: int | None = None
    """Pixels that memory was planned for, beyond which an image is not made larger to reach a wished least:
    the reference rounds up."""
    first_longest: int | None = None
    """Pixels of the longer side that a picture is given before its own size; None: it is not."""
    as_torchvision: bool = False
    """Resized and normalised as torchvision does it (`media/vision/fixed_point.py`)."""
    lengthens_sides: bool = False
    """An image with a side shorter than one token's is made larger until it is not, and then resized."""

    @property
    def factor(self) -> int:
        """Pixels on a side of what becomes one token; resized sides are multiples of it."""
        return self.patch_size * self.merge_size

    @property
    def bytes_per_pixel(self) -> int:
        """Of features: three channels in float32."""
        return 12


class FrameRule(Protocol):
    """How each frame of a video becomes a separate item."""

    def size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of what a frame of a size is resized to."""

    def item(self, frame: npt.NDArray[np.uint8], modality: MediaKind) -> EncoderItem:
        """Of uint8 [height, width, 3] of that size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoConfig:
    """Which frames of a video are looked at, and what becomes of their pixels."""

    pixels: PixelConfig
    fps: float | None = 2.0
    """Frames looked at per second; not used if `num_frames` is given."""
    num_frames: int | None = None
    min_frames: int = 4
    max_frames: int = 768
    cap_pixels_per_frame: bool = False
    """Bound one frame's area too, so that a short clip does not spend the whole budget on few frames."""
    max_video_tokens: int = 768
    """Tokens a frame may have then."""
    max_frame_pixels: int | None = None
    """An operator's bound on one frame's area."""
    skipped_s: float | None = None
    """Frames are chosen as SmolVLM's are: up to `num_frames` or `max_frames`, at places rounded down, and of
    a long video none of so many seconds at each end. None: as Qwen's are."""
    bounds_frames: bool = False
    """The bounds of `pixels` are of one frame, and `max_video_tokens` of all together."""
    frame_size: tuple[int, int] | None = None
    """Height and width of every frame, which is then no patches but [3, height, width]; frames of one
    temporal patch are an item [frames, 3, height, width], or where that is one frame [3, height, width]."""
    frames: FrameRule | None = None
    """Of frames that are neither merged patches nor of one size; a temporal patch is one frame then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionConfig:
    """Both."""

    image: PixelConfig
    video: VideoConfig

    @property
    def max_item_pixels(self) -> int:
        """Pixels of the largest picture that is encoded at once: an image, or the frame of a video."""
        pixels = self.video.pixels
        frame = pixels.max_pixels // (1 if self.video.bounds_frames else pixels.temporal_patch_size)
        return max(self.image.max_pixels, min(frame, self.video.max_frame_pixels or frame))

    def on(self, background: Background) -> VisionConfig:
        """With transparent pictures on `background`."""
        pixels = replace(self.video.pixels, background=background)
        return VisionConfig(
            image=replace(self.image, background=background), video=replace(self.video, pixels=pixels)
        )

    def bounded(self, max_pixels: int | None) -> VisionConfig:
        """With images and frames made no larger than `max_pixels`, where the model allows resizing."""
        if max_pixels is None:
            return self
        image = replace(
            self.image,
            min_pixels=min(self.image.min_pixels, max_pixels),
            max_pixels=min(self.image.max_pixels, max_pixels),
        )
        return VisionConfig(image=image, video=replace(self.video, max_frame_pixels=max_pixels))


def read_vision_config(folder: Path) -> VisionConfig:
    """Read and check the files of a model folder. Raises ModelLoadError naming the file and field."""
    image = ProcessorFields(folder, "image_processor", ("preprocessor_config.json",))
    video = video_fields(folder)
    return VisionConfig(
        image=read_pixels(image, 14, 56 * 56, 28 * 28 * 1280, CLIP_MEAN, CLIP_STD, old_names=True),
        video=read_video(
            video, read_pixels(video, 16, 128 * 32 * 32, 32 * 32 * 768, HALF, HALF, old_names=False)
        ),
    )


def video_fields(folder: Path) -> ProcessorFields:
    """The video processor's of a folder; where it has none, the image processor's."""
    names = ("video_preprocessor_config.json", "preprocessor_config.json")
    return ProcessorFields(folder, "video_processor", names)


def read_video(
    fields: ProcessorFields,
    pixels: PixelConfig,
    *,
    fps: float | None = 2.0,
    num_frames: int | None = None,
    min_frames: int = 4,
    max_frames: int = 768,
    caps: bool = False,
    max_video_tokens: int = 768,
) -> VideoConfig:
    """Which frames a processor whose class has these defaults looks at. A rate counts where the file says
    no number."""
    has_number = fields.get("num_frames") is not None or (
        num_frames is not None and fields.get("fps") is None
    )
    return VideoConfig(
        pixels=pixels,
        fps=fields.number("fps", fps or 2.0) if fields.get("fps", fps) is not None else None,
        num_frames=fields.integer("num_frames", num_frames or 1) if has_number else None,
        min_frames=fields.integer("min_frames", min_frames),
        max_frames=fields.integer("max_frames", max_frames),
        cap_pixels_per_frame=fields.flag("cap_pixels_per_frame", default=caps),
        max_video_tokens=fields.integer("max_video_tokens", max_video_tokens),
    )


class ProcessorFields:
    """One processor's fields: from the combined file if it has them, else from the first file there is.
    Raises ModelLoadError naming the file and the field."""

    def __init__(self, folder: Path, part: str, names: tuple[str, ...]) -> None:
        combined = _read_object(folder / "processor_config.json")
        if combined is not None and isinstance(combined.get(part), dict):
            self.path, self._values = folder / "processor_config.json", combined[part]
            return
        for name in names:
            values = _read_object(folder / name)
            if values is not None:
                self.path, self._values = folder / name, values
                return
        raise ModelLoadError(f"{folder}: no {names[0]}, and no processor_config.json with {part!r}")

    @classmethod
    def optional(cls, folder: Path, part: str, name: str) -> ProcessorFields:
        """Of a folder that may have no such processor: without fields then."""
        combined = _read_object(folder / "processor_config.json") or {}
        if not isinstance(combined.get(part), dict) and not (folder / name).is_file():
            found = cls.__new__(cls)
            found.path, found._values = folder / name, {}
            return found
        return cls(folder, part, (name,))

    @property
    def is_empty(self) -> bool:
        """It says nothing."""
        return not self._values

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 (JSON)
        return self._values.get(name, default)

    def without(self, name: str) -> ProcessorFields:
        """The others."""
        found = copy(self)
        found._values = {each: value for each, value in self._values.items() if each != name}
        return found

    def fault(self, name: str, allowed: str) -> ModelLoadError:
        return ModelLoadError(f"{self.path}: {name} must be {allowed}, not {self.get(name)!r}")

    def integer(self, name: str, default: int, minimum: int = 1) -> int:
        value = self.get(name, default)
        if type(value) is not int or value < minimum:
            raise self.fault(name, f"an integer of at least {minimum}")
        return value

    def kind(self, known: Mapping[str, _V], *, allowed: str = "") -> _V:
        """What is known of the class of processors that the file names, whichever library it is made for."""
        name = str(self.get("image_processor_type", "")).removesuffix("Fast").removesuffix("Pil")
        if name not in known:
            raise self.fault("image_processor_type", allowed or ", ".join(known))
        return known[name]

    def sides(self, name: str, default: Mapping[str, int]) -> tuple[int, int | None]:
        """Height and width, or the shorter side alone."""
        value = self.get(name)
        value = (
            default if value is None else {"height": value, "width": value} if type(value) is int else value
        )
        names = (
            ("height", "width") if isinstance(value, Mapping) and "height" in value else ("shortest_edge",)
        )
        found = [value.get(each) if isinstance(value, Mapping) else None for each in names]
        sides = [each for each in found if type(each) is int and each > 0]
        if len(sides) != len(names):
            raise self.fault(name, "an object with height and width, or with shortest_edge")
        return sides[0], sides[1] if len(sides) > 1 else None

    def square(self, name: str, default: int) -> int:
        """The side of a size whose height and width are equal."""
        height, width = self.sides(name, {"height": default, "width": default})
        if height != width:
            raise self.fault(name, "an object with equal height and width")
        return height

    def check_on(self, *names: str) -> None:
        """Raise ModelLoadError naming the first of these flags, true by default, that is false."""
        for name in names:
            if not self.flag(name, default=True):
                raise self.fault(name, "true")

    def longest(self, name: str, default: int) -> int:
        """The `longest_edge` of a size."""
        value = self.get(name)
        found = default if value is None else value.get("longest_edge") if isinstance(value, dict) else None
        if type(found) is not int or found < 1:
            raise self.fault(name, "an object with a longest_edge")
        return found

    def number(self, name: str, default: float, *, or_zero: bool = False) -> float:
        value = self.get(name, default)
        if type(value) not in {int, float} or not (value > 0 or (or_zero and value == 0)):
            raise self.fault(name, "a positive number, or 0" if or_zero else "a positive number")
        return float(value)

    def flag(self, name: str, *, default: bool) -> bool:
        value = self.get(name)
        if value is not None and not isinstance(value, bool):
            raise self.fault(name, "true or false")
        return default if value is None else value

    def rgb(self, name: str, default: Rgb) -> Rgb:
        value = self.get(name)
        value = default if value is None else [value] * 3 if type(value) in {int, float} else value
        if not isinstance(value, list | tuple) or [type(v) in {int, float} for v in value] != [True] * 3:
            raise self.fault(name, "three numbers")
        red, green, blue = value
        return float(red), float(green), float(blue)


def read_pixels(
    fields: ProcessorFields, patch: int, smallest: int, largest: int, mean: Rgb, std: Rgb, *, old_names: bool
) -> PixelConfig:
    size = fields.get("size")
    size = {} if size is None else size
    if not isinstance(size, dict):
        raise fields.fault("size", "an object with shortest_edge and longest_edge")
    bounds = {"shortest_edge": smallest, "longest_edge": largest} | size
    if old_names:
        for old, new in (("min_pixels", "shortest_edge"), ("max_pixels", "longest_edge")):
            bounds[new] = bounds[new] if fields.get(old) is None else fields.get(old)
    low, high = bounds["shortest_edge"], bounds["longest_edge"]
    if type(low) is not int or type(high) is not int or not 0 < low <= high:
        raise fields.fault("size", "shortest_edge and longest_edge, positive and in this order")
    resample = fields.integer("resample", 3, 0)
    if resample >= NUM_FILTERS:
        raise fields.fault("resample", f"one of Pillow's filters, 0 to {NUM_FILTERS - 1}")
    deviation = fields.rgb("image_std", std)
    if not all(deviation):
        raise fields.fault("image_std", "not zero")
    return PixelConfig(
        min_pixels=low,
        max_pixels=high,
        patch_size=fields.integer("patch_size", patch),
        merge_size=fields.integer("merge_size", 2),
        temporal_patch_size=fields.integer("temporal_patch_size", 2),
        mean=fields.rgb("image_mean", mean),
        std=deviation,
        rescale_factor=fields.number("rescale_factor", 1 / 255),
        resample=resample,
        do_resize=fields.flag("do_resize", default=True),
        do_rescale=fields.flag("do_rescale", default=True),
        do_normalize=fields.flag("do_normalize", default=True),
    )


def _read_object(path: Path) -> dict[str, Any] | None:
    return read_json(path) if path.is_file() else None
