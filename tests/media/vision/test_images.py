"""Images become exactly the patches of the reference processor, and hostile files an error that says why."""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps
from sensorium.media.vision.config import PixelConfig
from sensorium.media.vision.images import (
    ImageLimits,
    image_item,
    patch_item,
    prepare_image,
    read_image,
    smart_resize,
)
from sensorium.protocols.engine.messages import EncoderItem
from sensorium.protocols.errors import ClientError, MediaError, TooLargeError
from support.vision_files import PixelArray, picture, pixel_config, png, saved
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize as reference_resize

QWEN3 = pixel_config(65_536, 16_777_216, patch_size=16)
SMALL = PixelConfig(
    min_pixels=64 * 4,
    max_pixels=64 * 90,
    patch_size=4,
    merge_size=2,
    temporal_patch_size=2,
    mean=(0.48145466, 0.4578275, 0.40821073),
    std=(0.26862954, 0.26130258, 0.27577711),
)


def processor(config: PixelConfig) -> Any:  # noqa: ANN401 (untyped)
    return Qwen2VLImageProcessorPil(
        size={"shortest_edge": config.min_pixels, "longest_edge": config.max_pixels},
        patch_size=config.patch_size,
        merge_size=config.merge_size,
        temporal_patch_size=config.temporal_patch_size,
        image_mean=list(config.mean),
        image_std=list(config.std),
    )


def features(item: EncoderItem) -> npt.NDArray[np.float32]:
    return np.frombuffer(item.features.data, "<f4").reshape(item.features.shape)


def assert_as_reference(data: bytes, config: PixelConfig = SMALL) -> EncoderItem:
    (item,) = prepare_image(data, config).items
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    expected = processor(config)(images=upright, return_tensors="np")
    assert item.features.grid == tuple(expected["image_grid_thw"][0])
    np.testing.assert_array_equal(features(item), expected["pixel_values"])
    assert item.num_tokens == len(expected["pixel_values"]) // config.merge_size**2
    return item


@pytest.mark.parametrize(
    ("height", "width"),
    [(3, 3), (8, 8), (10, 7), (64, 64), (63, 65), (31, 500), (199, 3), (480, 640), (333, 77), (1, 1)],
)
@pytest.mark.parametrize("config", [QWEN3, SMALL], ids=["qwen3", "small"])
def test_sizes(height: int, width: int, config: PixelConfig) -> None:
    item = image_item(picture(height, width), config)
    expected = processor(config)(images=Image.fromarray(picture(height, width)), return_tensors="np")
    assert item.features.grid == tuple(expected["image_grid_thw"][0])
    np.testing.assert_array_equal(features(item), expected["pixel_values"])


def test_modes() -> None:
    rgb = Image.fromarray(picture(40, 50))
    alpha = Image.fromarray(picture(40, 50, seed=1)[:, :, 0])
    rgba = rgb.copy()
    rgba.putalpha(alpha)
    for data in (
        saved(rgb),
        saved(rgba),
        saved(rgb.convert("L")),
        saved(rgba.convert("LA")),
        saved(rgb.convert("1")),
        saved(rgb.quantize(17)),
        saved(rgb.quantize(17), transparency=3),
        saved(rgb.convert("CMYK"), "TIFF"),
        saved(rgb, "JPEG", quality=80),
        saved(rgb.convert("CMYK"), "JPEG"),
        saved(rgba, "WEBP", lossless=True),
        saved(rgb, "GIF"),
        saved(rgb, "BMP"),
        saved(rgb, "PPM"),
        saved(rgb, "AVIF"),
        saved(rgb, "JPEG2000"),
        saved(rgba, "ICO", sizes=[(32, 32)]),
        saved(rgba, "TGA"),
    ):
        assert_as_reference(data)


def test_grey_of_16_bits_is_scaled() -> None:
    """The reference shows all but the darkest as white."""
    grey = picture(40, 50)[:, :, 0]
    deep = Image.fromarray((grey.astype(np.uint16) << 8) + 77)
    for data in (saved(deep), saved(deep, "TIFF")):
        np.testing.assert_array_equal(read_image(data), np.stack([grey] * 3, axis=2))


@pytest.mark.parametrize(
    ("kind", "scale", "mode"),
    [("TIFF", 257, np.int32), ("PPM", 257, np.int32), ("TIFF", 1, np.int32), ("TIFF", 1 << 20, np.int32),
     ("TIFF", 1 / 255, np.float32), ("TIFF", 1, np.float32), ("TIFF", 257, np.float32)],
)  # fmt: skip
def test_grey_of_32_bits_and_fractions_is_scaled(kind: str, scale: float, mode: type) -> None:
    grey = picture(40, 50)[:, :, 0]
    grey[0, :2] = 0, 255
    found = read_image(saved(Image.fromarray((grey * np.float64(scale)).astype(mode)), kind))
    assert np.abs(found[:, :, 1].astype(int) - grey).max() <= 1
    strange = (grey / 255).astype(np.float32)
    strange[3, 3:6] = np.nan, np.inf, -np.inf
    assert read_image(saved(Image.fromarray(strange), "TIFF"))[3, 3:6].max() == 0


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "TIFF"])
def test_a_large_colour_profile_changes_nothing(kind: str) -> None:
    image = Image.fromarray(picture(40, 50))
    profile = np.random.default_rng(0).bytes(3_000_000)
    plain = read_image(saved(image, kind))
    np.testing.assert_array_equal(read_image(saved(image, kind, icc_profile=profile)), plain)
    np.testing.assert_array_equal(read_image(saved(image, kind, icc_profile=bytes(9_000_000))), plain)


def test_transparency_lies_on_what_is_asked_for() -> None:
    clear = Image.new("RGBA", (8, 8), (255, 255, 255, 0))
    clear.putpixel((0, 0), (1, 2, 3, 255))
    for data in (saved(clear), saved(clear, "WEBP", lossless=True), saved(clear.quantize(4))):
        found = read_image(data, background=(10, 20, 30))
        assert found[4, 4].tolist() == [10, 20, 30]
        assert found[0, 0].tolist() == [1, 2, 3]
        assert read_image(data)[4, 4].tolist() == [255, 255, 255]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_turns_the_picture(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = saved(Image.fromarray(picture(32, 80)), exif=exif)
    item = assert_as_reference(data)
    grid = item.features.grid
    assert grid is not None
    assert (grid[1] > grid[2]) == (orientation >= 5)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_broken_exif_does_not_hide_the_picture() -> None:
    plain = saved(Image.fromarray(picture(32, 80)), "JPEG")
    broken = saved(Image.fromarray(picture(32, 80)), "JPEG", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff")
    np.testing.assert_array_equal(read_image(broken), read_image(plain))


def test_an_animation_is_its_first_frame() -> None:
    frames = [Image.fromarray(picture(24, 24, seed)) for seed in range(3)]
    data = saved(frames[0], "WEBP", save_all=True, append_images=frames[1:], lossless=True)
    np.testing.assert_array_equal(read_image(data), picture(24, 24, 0))


@given(
    st.integers(1, 3000), st.integers(1, 3000), st.integers(1, 40), st.integers(1, 10**6), st.integers(1, 9)
)
def test_smart_resize_is_the_reference(height: int, width: int, factor: int, low: int, times: int) -> None:
    if max(height, width) > 200 * min(height, width):
        return
    ours = smart_resize(height, width, factor=factor, min_pixels=low, max_pixels=low * times)
    assert ours == reference_resize(height, width, factor, low, low * times)
    assert min(ours) >= factor
    assert ours[0] % factor == ours[1] % factor == 0


def test_patches_hold_every_pixel_once_in_merge_order() -> None:
    """Against the definition, index by index, in float64."""
    config = SMALL
    frames = [picture(16, 24, seed) for seed in (0, 1)]
    item = patch_item(frames, config, "video")
    assert item.features.grid == (1, 4, 6)
    values = features(item).reshape(24, 3, 2, 4, 4)
    row = 0
    for block_y in range(2):
        for block_x in range(3):
            for inner_y in range(2):
                for inner_x in range(2):
                    top, left = (block_y * 2 + inner_y) * 4, (block_x * 2 + inner_x) * 4
                    for time, frame in enumerate(frames):
                        tile = frame[top : top + 4, left : left + 4].astype(np.float64) / 255
                        expected = (tile - np.array(config.mean)) / np.array(config.std)
                        np.testing.assert_allclose(
                            values[row, :, time], expected.transpose(2, 0, 1), atol=1e-6
                        )
                    row += 1


def test_the_hash_covers_pixels_grid_and_modality() -> None:
    flat = np.zeros((16, 24, 3), np.uint8)
    items = [
        patch_item([flat], SMALL, "image"),
        patch_item([flat.transpose(1, 0, 2)], SMALL, "image"),
        patch_item([flat], SMALL, "video"),
        patch_item([flat + np.uint8(1)], SMALL, "image"),
        patch_item([flat, flat + np.uint8(1)], SMALL, "image"),
    ]
    assert items[0].features.shape == items[1].features.shape
    assert len({item.content_hash for item in items}) == len(items)
    assert patch_item([flat, flat], SMALL, "image").content_hash == items[0].content_hash


def refused(data: bytes, limits: ImageLimits | None = None) -> ClientError:
    with pytest.raises(ClientError) as caught:
        prepare_image(data, SMALL, limits)
    assert caught.value.param == "image"
    return caught.value


def test_limits_say_what_and_how_much() -> None:
    data = png(20, 30)
    assert f"{len(data)} bytes; the limit is 100" in refused(data, ImageLimits(max_bytes=100)).message
    error = refused(data, ImageLimits(max_pixels=599))
    assert isinstance(error, TooLargeError)
    assert "30 x 20 pixels (600); the limit is 599" in error.message
    assert prepare_image(data, SMALL, ImageLimits(max_pixels=600, max_bytes=len(data)))
    assert "2 x 9 pixels; it needs at least 3" in refused(png(9, 2)).message
    assert "804 x 4 pixels; one side may be at most 200" in refused(png(4, 804)).message
    assert prepare_image(png(4, 800), SMALL)
    with pytest.raises(MediaError, match="one side may be at most 200"):
        image_item(picture(4, 801), SMALL)
    assert "empty" in refused(b"").message


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes that says it has a lot of pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


@pytest.mark.parametrize("side", [9_000, 12_000, 60_000])
def test_a_decompression_bomb_is_refused_by_its_header(side: int) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        error = refused(bomb(side, side))
    assert not caught  # a client must not write to the server's log
    assert isinstance(error, TooLargeError)
    assert "limit" in error.message
    assert "64000000" in error.message


def decoded(data: bytes) -> PixelArray | None:
    """The pixels, or None where a client would get an error; anything else is a failure."""
    try:
        return read_image(data)
    except ClientError:
        return None


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "TIFF", "BMP", "AVIF", "QOI"])
def test_files_cut_off_anywhere_are_refused_or_whole(kind: str) -> None:
    image = Image.fromarray(picture(40, 50))
    data = saved(image, kind)
    whole = read_image(data)
    for end in range(0, len(data), max(1, len(data) // 40)):
        pixels = decoded(data[:end])
        assert pixels is None or pixels.shape == whole.shape
    assert decoded(data[:40]) is None


@given(st.binary(max_size=200), st.integers(0, 300))
def test_garbage_is_a_media_error(garbage: bytes, place: int) -> None:
    data = png(10, 10)
    decoded(data[:place] + garbage + data[place + len(garbage) :])
    assert refused(garbage).message


def test_postscript_is_never_opened() -> None:
    data = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 50 50\n%%EndComments\nshowpage\n"
    assert "not in a supported format" in refused(data).message


def test_without_resizing_sides_must_fit() -> None:
    fixed = pixel_config(1, 10**6, patch_size=4, do_resize=False)
    assert prepare_image(png(16, 24), fixed).items[0].features.grid == (1, 4, 6)
    with pytest.raises(MediaError, match=r"24 x 15 pixels; its sides must be multiples of 8"):
        prepare_image(png(15, 24), fixed)
