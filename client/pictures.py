"""A frame or a picture as a file that can be sent: paths and bytes as they are, images and arrays as JPEG.

Knows no sessions. Images of Pillow are encoded by themselves; arrays need Pillow, which comes with
`sensorium[serve]`. Read next: `client/realtime/conversation_machine.py`.
"""

from __future__ import annotations

import base64
import io
import os
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from .errors import PictureError

MAX_SIDE: Final = 1024
"""Pixels of the longer side of what we encode ourselves: servers make frames smaller still."""
_QUALITY: Final = 90
_KINDS: Final = {b"\xff\xd8\xff": "jpeg", b"\x89PNG\r\n\x1a\n": "png"}


@runtime_checkable
class PillowImage(Protocol):
    """What is used of a `PIL.Image.Image`."""

    def convert(self, mode: str, /) -> Any:  # noqa: ANN401 (another image)
        """The same in another mode."""

    def getbands(self) -> tuple[str, ...]:
        """What its pixels are made of."""


@runtime_checkable
class PixelArray(Protocol):
    """What is used of a NumPy array: rows x columns x 3 of uint8, red first, or rows x columns of grey."""

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """NumPy's protocol, version 3."""


Picture: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | PillowImage | PixelArray


def picture_file(picture: object, *, max_side: int = MAX_SIDE) -> bytes:
    """A JPEG, PNG or WebP file; what is no file yet is made one of at most `max_side` pixels a side.

    Raises PictureError for what is none, OSError for an unreadable path.
    """
    match picture:
        case bytes() | bytearray() | memoryview():
            data, name = bytes(picture), "the picture"
        case str() | os.PathLike():
            data, name = Path(picture).read_bytes(), os.fspath(picture)
        case PillowImage():
            return _encoded(picture, max_side)
        case PixelArray():
            return _encoded(_image_of(picture), max_side)
        case _:
            kind = type(picture).__name__
            raise PictureError(f"a picture is {kind}: expected a path, bytes, a PIL image or a uint8 array")
    if _kind(data) is None:
        raise PictureError(f"{name} is not a JPEG, PNG or WebP file")
    return data


def data_uri(data: bytes) -> str:
    """A picture's file as a `data:` URI."""
    return f"data:image/{_kind(data) or 'jpeg'};base64,{base64.b64encode(data).decode()}"


def _kind(data: bytes) -> str | None:
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "webp"
    return next((kind for start, kind in _KINDS.items() if data.startswith(start)), None)


def _encoded(image: PillowImage, max_side: int) -> bytes:
    rgb, file = _opaque(image), io.BytesIO()
    rgb.thumbnail((max_side, max_side))
    rgb.save(file, "JPEG", quality=_QUALITY)
    return file.getvalue()


def _opaque(image: Any) -> Any:  # noqa: ANN401 (images)
    """Upright RGB on white, as a server reads a file with an orientation or with transparency."""
    from PIL import Image, ImageOps

    upright = ImageOps.exif_transpose(image)
    if "A" not in upright.getbands() and upright.info.get("transparency") is None:
        return upright.convert("RGB")
    layer = upright.convert("RGBA")
    white = Image.new("RGBA", layer.size, (255, 255, 255, 255))
    return Image.alpha_composite(white, layer).convert("RGB")


def _image_of(array: PixelArray) -> PillowImage:
    try:
        from PIL import Image
    except ImportError:
        raise PictureError("arrays need the package pillow: pip install pillow") from None
    try:
        image = Image.fromarray(array)
    except (TypeError, ValueError, KeyError) as error:
        raise PictureError(
            f"the array is not a picture: {error}; expected rows x columns x 3 of uint8"
        ) from None
    return image
