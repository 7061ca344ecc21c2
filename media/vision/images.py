"""An image file as bytes → patches for a vision tower, equal to transformers' Qwen2VLImageProcessorPil.

Everything a file says of itself is checked against limits before its pixels are decoded; only formats of the
list are opened, so that Pillow's rare parsers (and EPS, which starts another program) never see a client's
bytes. Meant for a worker process, see `media/worker.py`. `patch_item` also serves `media/vision/video.py`.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from ...protocols.engine.messages import EncoderItem, MediaItems
from ...protocols.errors import MediaError, TooLargeError
from ..hashing import Modality, encoder_item
from . import fixed_point
from .config import WHITE, Background, PixelConfig
from .heif import is_heif, open_heif
from .image_cost import PNG, check_records, check_scans
from .jpeg import lacks_end, with_end

PixelArray = npt.NDArray[np.uint8]
FloatArray = npt.NDArray[np.float32]

FORMATS: Final = (
    *("PNG", "JPEG", "WEBP", "GIF", "AVIF", "BMP", "TIFF"),
    *("JPEG2000", "ICO", "PPM", "QOI", "TGA"),
    "HEIF",
)
"""Pillow's names of the formats that may be opened; JPEG covers MPO, and `media/vision/heif.py` reads
HEIF."""
MAX_RATIO: Final = 200
"""Longest side over shortest, as in the reference processor."""
_XMP_ORIENTATION: Final = re.compile(rb"\w:Orientation\s*(?:=\s*[\"']|>)\s*([1-8])\s*[\"'<]")
"""As an attribute in either quotes, or an element; the prefix is the file's own."""


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """What one image may cost. `max_pixels` is checked in the header, before anything is decoded.

    `min_side` refuses tracking pixels and other pictures that show nothing.
    """

    max_bytes: int = 20 * 1024 * 1024
    max_pixels: int = 64_000_000
    min_side: int = 3


def prepare_image(data: bytes, config: PixelConfig, limits: ImageLimits | None = None) -> MediaItems:
    """The first frame of an image file, upright, as features [patches, patch values] with grid (1, h, w).

    Raises TooLargeError or MediaError (param `image`) with a message that says what and how much.
    """
    return prepare_picture(read_image(data, limits, config.background), config)


def measure_image(data: bytes, config: PixelConfig, limits: ImageLimits | None = None) -> int:
    """Bytes of the features `prepare_image` will make, from the file's header. Raises as it does."""
    with _opened(data, limits or ImageLimits()) as image:
        return image_bytes(image.height, image.width, config)


def image_bytes(height: int, width: int, config: PixelConfig) -> int:
    """Bytes of the features of a picture of this size, in either orientation."""
    height, width = _new_size(height, width, config)
    return height * width * config.bytes_per_pixel * config.temporal_patch_size


def prepare_picture(pixels: PixelArray, config: PixelConfig) -> MediaItems:
    """A still, uint8 [height, width, 3]. Raises as `image_item`."""
    return MediaItems("image", (image_item(pixels, config),))


def image_item(pixels: PixelArray, config: PixelConfig) -> EncoderItem:
    """uint8 [height, width, 3] → one item; a still image fills a temporal patch by repetition.

    Raises MediaError (param `image`) if it is too long and narrow.
    """
    height, width = pixels.shape[:2]
    check_ratio(height, width, "image")
    return patch_item([resize(pixels, *_new_size(height, width, config), config)], config, "image")


def _new_size(height: int, width: int, config: PixelConfig) -> tuple[int, int]:
    """Raises TooLargeError for a picture that is not to be resized, and is larger than it may be."""
    if config.do_resize:
        least, most, factor = config.min_pixels, config.max_pixels, config.factor
        if config.lengthens_sides and min(height, width) < factor:
            scale = factor / min(height, width)
            height, width = int(height * scale), int(width * scale)
        return smart_resize(
            height, width, factor=factor, min_pixels=least, max_pixels=most, ceiling=config.ceiling
        )
    if height * width > config.max_pixels:
        raise _too_large(
            f"The image is {width} x {height} pixels ({width * height}); without resizing the limit is "
            f"{config.max_pixels} pixels."
        )
    return height, width


def read_image(data: bytes, limits: ImageLimits | None = None, background: Background = WHITE) -> PixelArray:
    """Decode to upright RGB, uint8 [height, width, 3]; what is transparent lies on `background`, in the
    reference white. Grey of 16 bits is scaled to 8, where the reference cuts it off. A JPEG of which only the
    end marker is missing is whole."""
    limits = limits or ImageLimits()
    if lacks_end(data):
        with _opened(data, limits):
            data = with_end(data)
    with _opened(data, limits) as image:
        return np.array(rgb(_upright(image), background))


def picture_size(data: bytes) -> tuple[int, int]:
    """(height, width) by the file's header, as it lies in the file. Raises as `read_image`."""
    with _opened(data, ImageLimits()) as image:
        return image.height, image.width


@contextmanager
def _opened(data: bytes, limits: ImageLimits) -> Iterator[Image.Image]:
    """The file with its header read and within limits; what goes wrong inside becomes MediaError."""
    if not data:
        raise _fault("The image file is empty.")
    if len(data) > limits.max_bytes:
        raise _too_large(f"The image has {len(data)} bytes; the limit is {limits.max_bytes} bytes.")
    Image.init()  # makes the rarer formats of the list known
    if is_heif(data):
        open_heif(data)
    check_records(data)
    known: list[str] = [each for each in FORMATS if each in Image.OPEN]
    try:
        with _quiet(), Image.open(io.BytesIO(_without_profile(data)), formats=known) as image:
            check_size(image.height, image.width, limits)
            check_scans(data, image.height, image.width)
            yield image
    except (MediaError, TooLargeError, MemoryError):
        raise
    except Image.DecompressionBombError as error:
        message = f"The image has more pixels than the limit of {limits.max_pixels}."
        raise _too_large(message) from error
    except UnidentifiedImageError as error:
        raise _fault(f"The image is not in a supported format ({', '.join(FORMATS)}).") from error
    except Exception as error:  # Pillow's readers raise whatever their parsing trips over
        message = f"The image file of {len(data)} bytes is damaged, cut off or of an unusual kind."
        raise _fault(message) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Pillow's warnings: limits are checked here, and clients write no logs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def check_size(height: int, width: int, limits: ImageLimits) -> None:
    """Raise if a picture of this size is not taken."""
    size = f"The image is {width} x {height} pixels"
    if width * height > limits.max_pixels:
        raise _too_large(f"{size} ({width * height}); the limit is {limits.max_pixels} pixels.")
    if min(width, height) < limits.min_side:
        raise _fault(f"{size}; it needs at least {limits.min_side} on each side.")
    check_ratio(height, width, "image")


def check_ratio(height: int, width: int, param: str) -> None:
    """Raise if a picture is too long and narrow."""
    if max(height, width) > MAX_RATIO * min(height, width):
        raise MediaError(
            f"The {param} is {width} x {height} pixels; one side may be at most {MAX_RATIO} times the other.",
            param=param,
        )


def _fault(message: str) -> MediaError:
    return MediaError(message, param="image")


def _too_large(message: str) -> TooLargeError:
    return TooLargeError(message, param="image")


def _upright(image: Image.Image) -> Image.Image:
    image.load()
    try:
        exif = image.getexif()
        if exif.get(ExifTags.Base.Orientation) not in range(1, 9):
            exif[ExifTags.Base.Orientation] = _xmp_orientation(image)
        return ImageOps.exif_transpose(image)
    except Exception:  # broken EXIF data must not hide a picture that decodes
        return image


def _xmp_orientation(image: Image.Image) -> int:
    """As EXIF counts it. Pillow reads fewer ways of writing it."""
    xmp = image.info.get("xmp") or image.info.get("XML:com.adobe.xmp") or b""
    packet = xmp.encode() if isinstance(xmp, str) else bytes(xmp)
    found = _XMP_ORIENTATION.search(packet.replace(b"\0", b""))  # it may be UTF-16
    return int(found[1]) if found else 1


def rgb(image: Image.Image, background: Background) -> Image.Image:
    """A picture of any mode in 8 bits; what is transparent lies on `background`."""
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return Image.fromarray(_grey(np.asarray(image))).convert("RGB")
    if "A" not in image.getbands() and image.info.get("transparency") is None:
        return image.convert("RGB")
    layer = image.convert("RGBA")
    plain = Image.new("RGBA", layer.size, (*background, 255))
    return Image.alpha_composite(plain, layer).convert("RGB")


def _grey(deep: npt.NDArray[Any]) -> PixelArray:
    """Grey of more than 8 bits, [height, width], as bytes. What has no largest value by its type has that of
    the fewest bits that hold it: 1.0 of fractions, 8 or 16 bits, or its own."""
    is_fraction = deep.dtype.kind == "f"
    grey = np.nan_to_num(deep.astype(np.float32), posinf=0.0, neginf=0.0).clip(min=0)
    most = float(grey.max())
    if is_fraction and most <= 1:
        white = 1.0
    elif most <= 255 and deep.dtype.itemsize > 2:
        white = 255.0
    else:
        white = max(most, 65_535.0)
    return np.floor(grey * (255.999 / white)).astype(np.uint8)


def _without_profile(data: bytes) -> bytes:
    """A PNG without its colour profile, which nobody reads and Pillow takes for a bomb if it is large."""
    if not data.startswith(PNG):
        return data
    kept: list[bytes] = []
    start, at = 0, len(PNG)
    while at + 12 <= len(data) and data[at + 4 : at + 8] != b"IDAT":
        end = at + 12 + int.from_bytes(data[at : at + 4])
        if data[at + 4 : at + 8] == b"iCCP":
            kept.append(data[start:at])
            start = end
        at = end
    return b"".join([*kept, data[start:]]) if kept else data


def smart_resize(
    height: int,
    width: int,
    *,
    factor: int,
    min_pixels: float,
    max_pixels: float,
    ceiling: int | None = None,
) -> tuple[int, int]:
    """(height, width) as multiples of `factor` of nearly the same shape, with an area within the bounds; the
    references round up to `min_pixels`, here not beyond `ceiling`."""
    new_height, new_width = (round(side / factor) * factor for side in (height, width))
    if new_height * new_width > max_pixels:
        shrink = math.sqrt(height * width / max_pixels)
        return (
            max(factor, math.floor(height / shrink / factor) * factor),
            max(factor, math.floor(width / shrink / factor) * factor),
        )
    if new_height * new_width < min_pixels:
        grow = math.sqrt(min_pixels / (height * width))
        new_height, new_width = (math.ceil(side * grow / factor) * factor for side in (height, width))
    if ceiling is None or new_height * new_width <= ceiling:
        return new_height, new_width
    return smart_resize(height, width, factor=factor, min_pixels=1, max_pixels=ceiling)


def resize(pixels: PixelArray, height: int, width: int, config: PixelConfig) -> PixelArray:
    """uint8 [h, w, 3] → [height, width, 3] by Pillow's filter, or as torchvision does it."""
    if config.first_longest is not None:
        first = even_sides(pixels.shape[0], pixels.shape[1], config.first_longest)
        pixels = _resized(pixels, *first, config)
    return _resized(pixels, height, width, config)


def _resized(pixels: PixelArray, height: int, width: int, config: PixelConfig) -> PixelArray:
    if pixels.shape[:2] == (height, width):
        return pixels
    if config.as_torchvision:
        return fixed_point.resize(pixels, height, width, config.resample)
    return np.array(Image.fromarray(pixels).resize((width, height), Image.Resampling(config.resample)))


def even_sides(height: int, width: int, longest: int) -> tuple[int, int]:
    """(height, width) whose longer side is `longest` and whose shorter one is even: the rule of Idefics 3."""
    ratio = width / height
    if width >= height:
        shorter = int(longest / ratio)
        return max(shorter + shorter % 2, 1), longest
    shorter = int(longest * ratio)
    return longest, max(shorter + shorter % 2, 1)


def patch_item(frames: Sequence[PixelArray], config: PixelConfig, modality: Modality) -> EncoderItem:
    """Frames of one temporal patch, uint8 [height, width, 3] of one size, → one item; the last is repeated.

    A patch's values are ordered (channel, time, y, x); patches are ordered by merge block, then inside it.
    Raises MediaError if no whole number of tokens covers the frames.
    """
    height, width = frames[0].shape[:2]
    if height % config.factor or width % config.factor:  # only where the model asks for no resizing
        raise MediaError(
            f"The {modality} is {width} x {height} pixels; its sides must be multiples of {config.factor}.",
            param=modality,
        )
    size, merge, depth = config.patch_size, config.merge_size, config.temporal_patch_size
    grid = (1, height // size, width // size)
    blocks = (grid[1] // merge, merge, size, grid[2] // merge, merge, size)
    out = np.empty((blocks[0], blocks[3], merge, merge, 3, depth, size, size), np.float32)
    tables = _value_tables(config)
    for channel in range(3):
        for time in range(depth):
            if time < len(frames):
                plane = tables[channel][frames[time][:, :, channel]]
                out[:, :, :, :, channel, time] = plane.reshape(blocks).transpose(0, 3, 1, 4, 2, 5)
            else:
                out[:, :, :, :, channel, time] = out[:, :, :, :, channel, time - 1]
    rows = grid[1] * grid[2]
    features = out.reshape(rows, 3 * depth * size * size)
    return encoder_item(features, modality=modality, grid=grid, num_tokens=rows // merge**2)


def plane_values(picture: PixelArray, config: PixelConfig) -> FloatArray:
    """uint8 [height, width, 3] → float32 [3, height, width]."""
    tables = _value_tables(config)
    return np.stack([tables[channel][picture[:, :, channel]] for channel in range(3)])


def _value_tables(config: PixelConfig) -> FloatArray:
    """[3, 256]: what each byte becomes, rounded where the reference rounds."""
    if config.as_torchvision:
        return fixed_point.value_table(
            config.mean,
            config.std,
            config.rescale_factor,
            do_rescale=config.do_rescale,
            do_normalize=config.do_normalize,
        )
    values = np.arange(256, dtype=np.float32)
    if config.do_rescale:
        values = (np.arange(256, dtype=np.float64) * config.rescale_factor).astype(np.float32)
    tables = np.tile(values, (3, 1))
    if config.do_normalize:
        mean, std = (np.array(each, np.float32)[:, None] for each in (config.mean, config.std))
        tables = (tables - mean) / std
    return tables
