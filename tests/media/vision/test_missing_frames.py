"""Pictures whose packets are gone are counted and named; pauses are told as they are."""

from __future__ import annotations

import io
from dataclasses import replace

import av
import numpy as np
import pytest
from sensorium.media.vision.config import VideoConfig
from sensorium.media.vision.images import PixelArray
from sensorium.media.vision.video import prepare_video
from sensorium.media.vision.video_container import VideoLimits
from sensorium.media.vision.video_file import list_pictures, read_pictures
from support.vision_files import grey_steps, movie, picture, pixel_config, uneven

LIMITS = VideoLimits()
CONFIG = VideoConfig(pixels=pixel_config(4096, 48 * 64 * 60, patch_size=4))


def level(picture: PixelArray) -> float:
    """Of a picture of `grey_steps`: its number, modulo 64."""
    return float(picture.mean()) / 4


def emptied(data: bytes, start: float, end: float) -> bytes:
    """With zeros between two shares of its length."""
    first, last = (round(share * len(data)) for share in (start, end))
    return data[:first] + bytes(last - first) + data[last:]


@pytest.mark.parametrize(
    ("container", "codec"),
    [("matroska", "libx264"), ("matroska", "mpeg4"), ("webm", "libvpx-vp9"), ("flv", "flv")],
)
def test_pictures_without_packets_are_named_in_files_without_an_index(container: str, codec: str) -> None:
    options = {"g": "12"} | ({"bf": "2", "sc_threshold": "0"} if codec == "libx264" else {})
    data = emptied(movie(grey_steps(160), container=container, codec=codec, options=options), 0.3, 0.7)
    pictures = list_pictures(data, LIMITS)
    assert len(pictures.stamps) == 160
    assert pictures.is_even
    assert pictures.times_s[-1] == pytest.approx(15.9)
    assert 40 < len(pictures.lost) < 150
    wanted = [0, 80, 159]
    first, middle, last = read_pictures(data, pictures, wanted, LIMITS, lambda picture: picture)
    assert first is not None
    assert first[0] == 0
    assert middle is None or middle[0] > 80, "it says which picture stands in"
    assert last is not None
    assert abs(level(last[1]) - 159 % 64) < 1.6
    video = prepare_video(data, replace(CONFIG, num_frames=8))
    replaced = {round(each.wanted_s, 1) for each in video.replaced}
    assert {6.8, 9.1} <= replaced, "two of the eight lie in the damage"
    assert not replaced & {0.0, 15.9}


def test_in_mp4_the_index_names_what_is_destroyed() -> None:
    whole = movie([picture(96, 128, seed) for seed in range(60)], codec="mpeg4", options={"g": "6"})
    data = emptied(whole, 0.3, 0.7)
    assert list_pictures(data, LIMITS).stamps == list_pictures(whole, LIMITS).stamps
    video = prepare_video(data, replace(CONFIG, num_frames=6))
    assert [each for each in video.replaced if 2.0 < each.wanted_s < 4.0]


def test_a_pause_between_whole_pictures_is_no_loss() -> None:
    """A recorder of a screen writes nothing while nothing changes, and a player goes on showing the last."""
    stamps = [*range(0, 2000, 100), *range(9000, 11_000, 100)]
    pictures = list_pictures(uneven(stamps), LIMITS)
    assert not pictures.lost
    assert [round(1000 * time) for time in pictures.times_s] == stamps


@pytest.mark.parametrize("per_picture", [1, 8])
def test_sound_in_a_pause_of_the_pictures_is_no_loss(per_picture: int) -> None:
    """Its packets account for the bytes."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="matroska") as file:
        stream = file.add_stream("libx264", rate=10, options={"bf": "0", "g": "5"})
        stream.height, stream.width, stream.pix_fmt = 48, 64, "yuv420p"
        sound = file.add_stream("pcm_s16le", rate=8000, layout="mono")
        for index in range(60):
            if not 20 <= index < 40:
                frame = av.VideoFrame.from_ndarray(grey_steps(60)[index], format="rgb24")
                frame.pts = index
                file.mux(stream.encode(frame))
            for part in range(per_picture):
                noise = np.full((1, 800 // per_picture), index, np.int16)
                samples = av.AudioFrame.from_ndarray(noise, format="s16", layout="mono")
                samples.rate, samples.pts = 8000, index * 800 + part * (800 // per_picture)
                file.mux(sound.encode(samples))
        file.mux(stream.encode(None))
    pictures = list_pictures(buffer.getvalue(), LIMITS)
    assert len(pictures.stamps) == 40
    assert not pictures.lost
