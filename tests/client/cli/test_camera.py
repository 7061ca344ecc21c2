"""Films, cameras and screens as frames. ffmpeg's test picture, drawn in real time, stands in for devices."""

from __future__ import annotations

import sys
import time
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from sensorium.client.cli import camera
from sensorium.client.cli.camera import CAMERA, SCREEN, frames
from sensorium.client.errors import PictureError
from support.audio_files import plain_wav, tone
from support.vision_files import movie, picture

PICTURE = "testsrc=size=64x48:rate=20,realtime"


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A camera, and a screen whose name the environment knows."""
    monkeypatch.setattr(camera, "_CAMERAS", {sys.platform: ("lavfi", PICTURE)})
    monkeypatch.setattr(camera, "_SCREENS", {sys.platform: ("lavfi", "")})
    monkeypatch.setenv("DISPLAY", PICTURE)


def film(path: Path, num_frames: int, fps: int) -> str:
    path.write_bytes(movie([picture(48, 64, seed) for seed in range(num_frames)], fps=fps))
    return str(path)


def test_a_film_is_held_back_to_its_own_pace(tmp_path: Path) -> None:
    waits: list[float] = []
    source = film(tmp_path / "film.mp4", 30, 10)
    began = time.monotonic()
    shown = list(frames(source, max_fps=2.0, speed=5.0, wait=waits.append))
    took_s = time.monotonic() - began
    assert [at for at, _ in shown] == [0, 500, 1000, 1500, 2000, 2500]
    assert {np.asarray(image).shape for _, image in shown} == {(48, 64, 3)}
    # Nobody waited, so each frame is told to wait until its place in the film, five times as fast.
    assert len(waits) == 5
    for wait_s, (at, _) in zip(waits, shown[1:], strict=True):
        assert at / 5000 - took_s <= wait_s <= at / 5000


@pytest.mark.slow
@pytest.mark.parametrize("source", [CAMERA, SCREEN])
def test_a_cameras_frames_are_of_now(devices: None, source: str) -> None:
    began = time.monotonic()
    shown = [(at, time.monotonic() - began) for at, _ in islice(frames(source, max_fps=10.0), 6)]
    times = [at for at, _ in shown]
    assert times == sorted(set(times))
    assert times[-1] >= 300, "twenty a second are there, ten are asked for"
    assert all(at <= 1000 * now_s for at, now_s in shown)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("no-such-film.mp4", "no such film: no-such-film.mp4"),
        ("/dev/video97", r"cannot open /dev/video97 .*is a camera there, and may you read it\?"),
        (__file__, "cannot open"),
    ],
)
def test_what_cannot_be_shown_is_said_at_once(source: str, words: str) -> None:
    with pytest.raises(PictureError, match=words):
        next(frames(source, max_fps=2.0))


def test_a_platform_without_cameras_and_a_screen_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setattr(camera, "_SCREENS", {sys.platform: ("lavfi", "")})
    with pytest.raises(PictureError, match="DISPLAY is not set"):
        next(frames(SCREEN, max_fps=2.0))
    monkeypatch.setattr(camera, "_CAMERAS", {})
    with pytest.raises(PictureError, match=f"no camera is known on {sys.platform}"):
        next(frames(CAMERA, max_fps=2.0))


def test_a_file_without_pictures(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(plain_wav(tone(0.1)))
    with pytest.raises(PictureError, match="has no pictures"):
        next(frames(str(path), max_fps=2.0))
