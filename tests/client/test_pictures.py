"""Frames as files: what can be sent is sent as it is, what is pixels is encoded, the rest is refused by
name."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sensorium.client import PictureError
from sensorium.client.pictures import MAX_SIDE, data_uri, picture_file
from support.vision_files import png


def test_files_are_sent_as_they_are(tmp_path: Path) -> None:
    data = png(8, 8, 1)
    path = tmp_path / "picture.png"
    path.write_bytes(data)
    assert picture_file(data) == picture_file(memoryview(data)) == picture_file(path) == data
    assert picture_file(str(path)) == data
    assert data_uri(data).startswith("data:image/png;base64,")


def test_webp_is_told_from_sound() -> None:
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "WEBP")
    assert data_uri(picture_file(file.getvalue())).startswith("data:image/webp;")
    with pytest.raises(PictureError, match="not a JPEG, PNG or WebP"):
        picture_file(b"RIFF\0\0\0\0WAVEfmt ")


@pytest.mark.parametrize(
    "picture",
    [
        Image.new("RGBA", (3000, 20), (200, 30, 10, 255)),
        np.full((20, 3000, 3), (200, 30, 10), np.uint8),
        np.full((20, 3000), 90, np.uint8),
    ],
)
def test_pixels_become_a_jpeg_of_a_bounded_size(picture: object) -> None:
    opened = Image.open(io.BytesIO(picture_file(picture)))
    assert (opened.format, opened.width) == ("JPEG", MAX_SIDE)
    red = opened.convert("RGB").getpixel((5, 2))
    assert isinstance(red, tuple)
    assert abs(red[0] - (90 if isinstance(picture, np.ndarray) and picture.ndim == 2 else 200)) < 8


def test_an_image_is_upright_and_on_white_as_its_file_is_to_a_server() -> None:
    taken = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6  # turned to the right to be seen
    Image.new("RGB", (40, 20)).save(taken, "JPEG", exif=exif)
    assert Image.open(io.BytesIO(picture_file(Image.open(taken)))).size == (20, 40)
    clear = Image.open(io.BytesIO(picture_file(Image.new("RGBA", (8, 8), (0, 0, 0, 0)))))
    assert clear.getpixel((4, 4)) == (255, 255, 255)


@pytest.mark.parametrize(
    ("picture", "named"),
    [
        (b"", "not a JPEG"),
        (b"GIF89a", "not a JPEG"),
        (7, "int"),
        (None, "NoneType"),
        (np.zeros((4, 4, 7), np.uint8), "array"),
    ],
)
def test_what_is_no_picture_is_named(picture: object, named: str) -> None:
    with pytest.raises(PictureError, match=named):
        picture_file(picture)
