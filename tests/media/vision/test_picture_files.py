"""Picture files as people and attackers have them: without an end, turned by XMP, HEIC, and full of work."""

from __future__ import annotations

import io
import struct
import sys
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from sensorium.media.vision.image_cost import MAX_CHUNKS, MAX_SEGMENTS
from sensorium.media.vision.images import ImageLimits, measure_image, prepare_image, read_image
from sensorium.media.vision.live_frames import is_picture
from sensorium.protocols.errors import MediaError, TooLargeError
from support.heic_files import heic
from support.vision_files import picture, pixel_config, png, saved

END = b"\xff\xd9"
CONFIG = pixel_config(65_536, 16_777_216, patch_size=16)


def jpeg(**options: Any) -> bytes:  # noqa: ANN401 (Pillow's)
    return saved(Image.fromarray(picture(75, 90)), "JPEG", **options)


JPEGS = {
    "baseline": jpeg(),
    "progressive": jpeg(progressive=True),
    "full color": jpeg(quality=95, subsampling=0),
    "restart markers": jpeg(restart_marker_rows=1),
    "grey": saved(Image.fromarray(picture(75, 90)).convert("L"), "JPEG"),
    "profile and thumbnail": jpeg(comment=jpeg(quality=5), icc_profile=bytes(70_000)),
}


@pytest.mark.parametrize("tail", [b"", b"\xff", bytes(64), b"\r\n", b"\xff\xff"])
@pytest.mark.parametrize("kind", JPEGS)
def test_a_jpeg_without_its_end_marker_is_whole(kind: str, tail: bytes) -> None:
    whole = JPEGS[kind]
    found = read_image(whole.removesuffix(END) + tail)
    np.testing.assert_array_equal(found, read_image(whole))


@pytest.mark.parametrize("kind", JPEGS)
def test_a_jpeg_whose_pixels_are_cut_off_is_refused(kind: str) -> None:
    whole = JPEGS[kind]
    for cut in (4, 5, 8, 20, 100, len(whole) // 3):
        with pytest.raises(MediaError, match="damaged"):
            read_image(whole[:-cut])


def test_a_progressive_jpeg_that_ends_between_two_scans_is_refused() -> None:
    whole = JPEGS["progressive"]
    starts = [at for at in range(len(whole)) if whole.startswith(b"\xff\xda", at)]
    tables = [whole.rfind(b"\xff\xc4", 0, start) for start in starts]
    for end in tables[-3:]:
        with pytest.raises(MediaError, match="damaged"):
            read_image(whole[:end])


@pytest.mark.parametrize("kind", JPEGS)
def test_a_frame_without_an_end_marker_is_a_frame(kind: str) -> None:
    assert is_picture(JPEGS[kind])
    assert is_picture(JPEGS[kind].removesuffix(END))
    assert not is_picture(b"\xff\xd8\xff" + JPEGS[kind][100:])


XMP = """<x:xmpmeta xmlns:x='adobe:ns:meta/'><rdf:RDF xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#'>
<rdf:Description rdf:about='' xmlns:tiff='http://ns.adobe.com/tiff/1.0/' %s></rdf:RDF></x:xmpmeta>"""
WRITTEN = {
    "attribute": XMP % 'tiff:Orientation="6"/>',
    "single quotes": XMP % "tiff:Orientation='6'/>",
    "spaces": XMP % 'tiff:Orientation = "6"/>',
    "element": XMP % "><tiff:Orientation> 6 </tiff:Orientation></rdf:Description>",
    "another prefix": (XMP % "t:Orientation='6'/>").replace("xmlns:tiff", "xmlns:t"),
}


@pytest.mark.parametrize("kind", ["JPEG", "WEBP", "PNG", "AVIF", "TIFF"])
@pytest.mark.parametrize("written", WRITTEN)
def test_xmp_turns_the_picture(kind: str, written: str) -> None:
    image, packet = Image.fromarray(picture(20, 40)), WRITTEN[written]
    info = PngInfo()
    info.add_itxt("XML:com.adobe.xmp", packet)
    options: dict[str, dict[str, Any]] = {
        "PNG": {"pnginfo": info},
        "TIFF": {"tiffinfo": {700: packet.encode()}},
    }
    data = saved(image, kind, **options.get(kind, {"xmp": packet.encode()}))
    np.testing.assert_array_equal(read_image(data), np.rot90(read_image(saved(image, kind)), -1))


def test_exif_goes_before_xmp() -> None:
    exif = Image.Exif()
    exif[274] = 3
    image = Image.fromarray(picture(20, 40))
    data = saved(image, "WEBP", lossless=True, exif=exif.tobytes(), xmp=WRITTEN["attribute"].encode())
    np.testing.assert_array_equal(read_image(data), picture(20, 40)[::-1, ::-1])


def blocks() -> np.ndarray[Any, np.dtype[np.uint8]]:
    shown = np.zeros((128, 192, 3), np.uint8)
    shown[:64, :64], shown[64:, 128:], shown[:64, 128:] = (200, 30, 30), (30, 30, 200), (240, 240, 20)
    return shown


@pytest.mark.parametrize("quarter_turns", range(4))
def test_a_heic_of_tiles_is_put_together_and_turned(quarter_turns: int) -> None:
    data = heic(blocks(), quarter_turns=quarter_turns)
    expected = np.rot90(blocks(), quarter_turns)
    found = read_image(data)
    assert found.shape == expected.shape
    assert np.abs(found.astype(int) - expected).mean() < 2
    assert measure_image(data, CONFIG) == len(prepare_image(data, CONFIG).items[0].features.data)


@pytest.mark.parametrize("brand", [b"heic", b"heix", b"mif1"])
def test_heic_keeps_the_limits_of_pictures(brand: bytes) -> None:
    data = heic(blocks(), brand=brand)
    assert read_image(data).shape == (128, 192, 3)
    with pytest.raises(TooLargeError, match="192 x 128"):
        read_image(data, ImageLimits(max_pixels=1000))
    for cut in (30, 200, len(data) // 2, len(data) - 1):
        with pytest.raises(MediaError):
            read_image(data[:cut])


def test_heic_names_the_package_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pi_heif", None)
    with pytest.raises(MediaError, match=r"sensorium\[heif\]"):
        read_image(heic(blocks()))


def scans(count: int, height: int, width: int) -> bytes:
    """A progressive JPEG with its last scan repeated."""
    data = saved(Image.new("L", (width, height), 128), "JPEG", progressive=True)
    last = data[data.rfind(b"\xff\xda") : -2]
    return data[:-2] + last * count + END


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def in_png(inserted: bytes) -> bytes:
    data = png(16, 16)
    return data[:33] + inserted + data[33:]


def in_jpeg(inserted: bytes) -> bytes:
    data = jpeg()
    return data[:2] + inserted + data[2:]


def tiles_of_tiff(count: int, order: str) -> bytes:
    """A TIFF of so many tiles, all of which are one."""
    fields = [(256, count), (257, 16), (258, 8), (259, 1), (262, 1), (277, 1), (322, 16), (323, 16)]
    end = 8 + 2 + 12 * (len(fields) + 2) + 4
    mark = b"II*\0" if order == "<" else b"MM\0*"
    entries = [struct.pack(order + "HHII", tag, 4, 1, value) for tag, value in fields]
    entries += [
        struct.pack(order + "HHII", tag, 4, count, end + 4 * count * place)
        for place, tag in ((0, 324), (1, 325))
    ]
    head = mark + struct.pack(order + "IH", 8, len(entries)) + b"".join(entries) + bytes(4)
    return (
        head
        + struct.pack(order + "I", end + 8 * count) * count
        + struct.pack(order + "I", 256) * count
        + bytes(256)
    )


def icons(count: int) -> bytes:
    image = png(32, 32)
    entry = struct.pack("<BBBBHHII", 32, 32, 0, 0, 1, 32, len(image), 6 + 16 * count)
    return struct.pack("<HHH", 0, 1, count) + entry * count + image


LABORIOUS = {
    "scans of 8 megapixels": (scans(160, 2048, 4096), "166 scans; at 4096 x 2048 pixels the limit is 152"),
    "scans of a small one": (scans(400_000, 64, 64), "scans; at 64 x 64 pixels the limit is"),
    "segments": (
        in_jpeg(b"\xff\xfe\0\2" * (MAX_SEGMENTS + 1)),
        "JPEG has more than the limit of 2000 segments",
    ),
    "fill bytes": (in_jpeg(b"\xff" * (MAX_SEGMENTS + 1)), "JPEG has more than the limit of 2000 segments"),
    "unknown chunks": (
        in_png(chunk(b"abCd", b"") * (MAX_CHUNKS + 1)),
        "PNG has more than the limit of 20000 chunks",
    ),
    "texts": (
        in_png(chunk(b"tEXt", b"a\0b") * (MAX_CHUNKS + 1)),
        "PNG has more than the limit of 20000 chunks",
    ),
    "tiles": (tiles_of_tiff(60_000, "<"), "TIFF has more than the limit of 50000 strips or tiles"),
    "tiles, other order": (
        tiles_of_tiff(60_000, ">"),
        "TIFF has more than the limit of 50000 strips or tiles",
    ),
    "icons": (icons(300), "ICO has more than the limit of 256 pictures"),
}


@pytest.mark.parametrize("kind", LABORIOUS)
def test_work_that_the_size_does_not_show_is_refused_before_it_is_done(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: object) -> None:
        raise AssertionError("it was decoded")

    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", load)
    data, problem = LABORIOUS[kind]
    for opens in (read_image, lambda file: measure_image(file, CONFIG)):
        with pytest.raises(TooLargeError, match=problem):
            opens(data)


@pytest.mark.parametrize(
    "data",
    [
        scans(100, 64, 64),
        scans(20, 1024, 1024),
        in_jpeg(b"\xff\xfe\0\2" * 300),
        in_png(chunk(b"tEXt", b"a\0b") * 1000),
        icons(20),
        saved(Image.fromarray(picture(3000, 40)), "TIFF", tiffinfo={278: 1}),
    ],
)
def test_what_programs_write_is_within_the_limits(data: bytes) -> None:
    assert read_image(data).ndim == 3


def test_an_icon_of_another_size_writes_no_warning(recwarn: pytest.WarningsRecorder) -> None:
    image = png(40, 40)
    entry = struct.pack("<BBBBHHII", 16, 16, 0, 0, 1, 32, len(image), 22)
    assert read_image(io.BytesIO(struct.pack("<HHH", 0, 1, 1) + entry + image).getvalue()).shape == (
        40,
        40,
        3,
    )
    assert not recwarn.list
