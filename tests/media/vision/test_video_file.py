"""Pictures of a file: at their own times, the same by seeking as by decoding all, around what is damaged."""

from __future__ import annotations

import io
from dataclasses import replace

import av
import numpy as np
import pytest
from sensorium.media.vision.config import VideoConfig
from sensorium.media.vision.images import PixelArray
from sensorium.media.vision.video import prepare_video, sample_pictures
from sensorium.media.vision.video_container import VideoLimits
from sensorium.media.vision.video_file import list_pictures, read_pictures
from sensorium.protocols.engine.messages import MediaItems, Replaced
from support.vision_files import grey_steps, movie, picture, pixel_config, uneven, without

LIMITS = VideoLimits()
CONFIG = VideoConfig(pixels=pixel_config(4096, 48 * 64 * 60, patch_size=4))
GROUPS = {"g": "12", "bf": "2"}


def film(num_frames: int, container: str = "mp4", codec: str = "libx264") -> bytes:
    """10 pictures a second, frame i of grey 4·i (at most 240), a key picture every 12."""
    options = GROUPS if codec == "libx264" else {"g": "12"}
    return movie(grey_steps(num_frames), container=container, codec=codec, options=options)


def level(picture: PixelArray) -> float:
    """Of a picture of `grey_steps`: its number, modulo 64."""
    return float(picture.mean()) / 4


def mean_levels(video: MediaItems) -> list[float]:
    means = [np.frombuffer(item.features.data, "<f4").mean() for item in video.items]
    return [float((mean + 1) * 127.5 / 4) for mean in means]


@pytest.mark.parametrize(
    ("container", "codec"),
    [("mp4", "libx264"), ("matroska", "libx264"), ("webm", "libvpx-vp9"), ("mp4", "mpeg4"), ("avi", "mpeg4")],
)
def test_seeking_shows_what_decoding_all_shows(container: str, codec: str) -> None:
    data = film(60, container, codec)
    pictures = list_pictures(data, LIMITS)
    assert len(pictures.stamps) == 60
    assert bool(pictures.keys) == (container != "avi")
    for wanted in ([0, 59], [5, 30, 31, 58], [23, 24, 47], list(range(0, 60, 7)), [40]):
        found = read_pictures(data, pictures, wanted, LIMITS, lambda picture: picture)
        whole = read_pictures(data, replace(pictures, keys=()), wanted, LIMITS, lambda picture: picture)
        for place, one, other in zip(wanted, found, whole, strict=True):
            assert one is not None
            assert other is not None
            assert one[0] == other[0] == place
            assert np.array_equal(one[1], other[1])
            assert abs(level(one[1]) - place) < 1.6


def test_a_hole_is_told_as_it_is() -> None:
    """Nothing decodes from 2.5 s to 3.9 s; pictures before and behind it keep their times."""
    data = without(film(60), 24, 39)
    video = prepare_video(data, CONFIG)
    np.testing.assert_allclose(mean_levels(video), [10 * time for time in video.times_s], atol=1.0)
    assert len(video.times_s) >= 4
    assert video.replaced
    wanted = [each.wanted_s for each in video.replaced]
    assert all(2.3 < time < 4.9 for time in wanted)
    assert all(each.shown_s is None or each.shown_s > each.wanted_s for each in video.replaced)


def test_what_is_damaged_is_replaced_before_the_next_that_is_wanted() -> None:
    pictures = list_pictures(film(60), LIMITS)
    data = without(film(60), 12, 12 + 10)  # up to the next key picture but one frame
    found = read_pictures(data, pictures, [11, 14, 30], LIMITS, lambda picture: picture)
    assert [None if each is None else each[0] for each in found] == [11, 24, 30]
    found = read_pictures(data, pictures, [11, 14, 17, 30], LIMITS, lambda picture: picture)
    assert [None if each is None else each[0] for each in found] == [11, None, 24, 30]
    for each in found:
        assert each is None or abs(level(each[1]) - each[0]) < 0.8


def test_with_one_key_picture_what_follows_damage_is_what_there_is() -> None:
    data = movie(grey_steps(40), codec="mpeg4", options={"g": "100"})
    pictures = list_pictures(data, LIMITS)
    found = read_pictures(without(data, 10, 14), pictures, [5, 12, 30], LIMITS, lambda picture: picture)
    assert found[0] is not None
    assert found[2] is not None
    assert (found[0][0], found[2][0]) == (5, 30)


def test_intact_files_replace_nothing() -> None:
    assert prepare_video(film(60), CONFIG).replaced == ()


def test_uneven_rates_are_looked_at_evenly_in_time() -> None:
    """One picture a second for 8 s, then 24 in the last one."""
    stamps = [*range(0, 8000, 1000), *range(8000, 9000, 41)]
    data = uneven(stamps)
    pictures = list_pictures(data, LIMITS)
    assert [round(1000 * time) for time in pictures.times_s] == stamps
    assert not pictures.is_even
    chosen = sample_pictures(pictures, replace(CONFIG, num_frames=10))
    assert chosen[:8] == list(range(8))
    video = prepare_video(data, replace(CONFIG, num_frames=10))
    times = [stamps[place] / 1000 for place in chosen]
    times += times[-1:] * (len(times) % 2)
    expected = [(one + other) / 2 for one, other in zip(times[::2], times[1::2], strict=True)]
    np.testing.assert_allclose(video.times_s, expected, atol=0.002)


def test_a_rate_that_is_not_the_pictures_own_is_not_believed() -> None:
    """A recorder states a rate (here 1000 a second), or none, whatever its camera or screen does."""
    every_second = prepare_video(uneven(range(0, 12_000, 1000)), CONFIG)
    assert every_second.times_s == (0.5, 2.5, 4.5, 6.5, 8.5, 10.5)
    stamps = [*range(0, 2000, 50), *range(2000, 12_000, 500)]
    data = uneven(stamps)
    assert len(prepare_video(data, replace(CONFIG, fps=1.0)).items) == 6
    assert prepare_video(data, replace(CONFIG, fps=1.0)).times_s[-1] > 10


def test_an_edit_list_says_where_it_begins() -> None:
    """What lies before is decoded and not shown."""
    data = bytearray(film(60))
    place = data.index(b"elst")
    scale = data.index(b"mdhd")
    units = int.from_bytes(data[scale + 16 : scale + 20], "big")
    begin = int.from_bytes(data[place + 16 : place + 20], "big")
    data[place + 16 : place + 20] = (begin + 2 * units).to_bytes(4, "big")
    pictures = list_pictures(bytes(data), LIMITS)
    assert len(pictures.stamps) == 40
    found = read_pictures(bytes(data), pictures, [0, 39], LIMITS, lambda picture: picture)
    assert [round(level(each[1])) for each in found if each is not None] == [20, 59]
    assert pictures.times_s[0] == 0


def test_the_map_names_each() -> None:
    video = prepare_video(without(film(40), 0, 11), replace(CONFIG, num_frames=4))
    assert video.replaced[0].wanted_s == 0
    assert video.replaced[0] in (Replaced(0.0, 1.2), Replaced(0.0, 1.1))


@pytest.mark.parametrize(
    ("container", "codec"),
    [("mpegts", "libx264"), ("mpegts", "mpeg2video"), ("flv", "libx264"), ("flv", "flv")],
)
def test_transport_streams_and_flash_are_video(container: str, codec: str) -> None:
    data = film(30, container, codec)
    pictures = list_pictures(data, LIMITS)
    assert len(pictures.stamps) == 30
    assert pictures.times_s[-1] == pytest.approx(2.9)
    shown = read_pictures(data, pictures, [0, 13, 29], LIMITS, lambda picture: picture)
    assert [None if each is None else round(level(each[1])) for each in shown] == [0, 13, 29]


@pytest.mark.parametrize(
    ("height", "width", "matrix", "expected"),
    [
        (720, 1280, None, "bt709"),
        (1280, 720, None, "bt709"),
        (720, 1280, "smpte170m", "bt601"),
        (480, 640, None, "bt601"),
        (480, 640, "bt709", "bt709"),
    ],
)
def test_colours_without_a_matrix_are_of_hd_or_sd(
    height: int, width: int, matrix: str | None, expected: str
) -> None:
    """What was coded by BT.601 shows as it was only where it is read so."""
    red = np.full((height, width, 3), (200, 40, 40), np.uint8)
    options = {"preset": "ultrafast"} | ({"x264-params": f"colormatrix={matrix}"} if matrix else {})
    data = movie([red], codec="libx264", options=options)
    ((_, shown),) = [
        each
        for each in read_pictures(data, list_pictures(data, LIMITS), [0], LIMITS, lambda each: each)
        if each
    ]
    colour = {"bt601": (200, 40, 40), "bt709": (212, 54, 36)}[expected]
    assert np.abs(shown[5, 5].astype(int) - colour).max() <= 4


@pytest.mark.parametrize("codec", ["mpeg4", "libx264", "mjpeg"])
@pytest.mark.parametrize(("start", "end"), [(0.3, 0.7), (0.5, 0.6), (0.2, 0.6)])
def test_after_damage_an_avi_goes_on_at_its_own_times(codec: str, start: float, end: float) -> None:
    frames = [picture(48, 64, 1) // 2 + np.uint8(2 * index) for index in range(60)]
    pixel_format = "yuvj420p" if codec == "mjpeg" else "yuv420p"
    options = {"g": "3"} | ({"bf": "0"} if codec == "libx264" else {})
    whole = movie(frames, container="avi", codec=codec, options=options, pixel_format=pixel_format)
    with av.open(io.BytesIO(whole)) as file:
        as_coded = [frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)]
    damaged = bytearray(whole)
    body = whole.index(b"movi"), whole.rindex(b"idx1")
    first, last = (body[0] + round((body[1] - body[0]) * share) for share in (start, end))
    damaged[first:last] = bytes(last - first)
    pictures = list_pictures(bytes(damaged), LIMITS)
    assert len(pictures.stamps) == 60
    assert pictures.times_s[-1] == pytest.approx(5.9)
    wanted = [0, 32, 59]
    shown = read_pictures(bytes(damaged), pictures, wanted, LIMITS, lambda picture: picture)
    for place in (0, 2):
        found = shown[place]
        assert found is not None
        assert found[0] == wanted[place]
        assert found[1].mean() == pytest.approx(as_coded[wanted[place]].mean(), abs=0.5)
    lost = shown[1]
    assert lost is None or lost[0] > 32, "it says which picture stands in"
