"""Frames of a film, a camera or the screen, through PyAV where it is installed (`sensorium[serve]`).

Knows no sessions. A film is shown at the pace it was filmed; a camera's frames come as they are there. Read
next: `client/cli/watch.py`.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from ..errors import PictureError
from ..pictures import PillowImage

CAMERA: Final = "camera"
SCREEN: Final = "screen"
_CAMERAS: Final = {
    "linux": ("v4l2", "/dev/video0"),
    "darwin": ("avfoundation", "0"),
    "win32": ("dshow", "video=Integrated Camera"),
}
_SCREENS: Final = {
    "linux": ("x11grab", ""),
    "darwin": ("avfoundation", "Capture screen 0"),
    "win32": ("gdigrab", "desktop"),
}
_DISPLAY: Final = "DISPLAY"


def frames(
    source: str, *, max_fps: float, speed: float = 1.0, wait: Callable[[float], object] = time.sleep
) -> Iterator[tuple[int, PillowImage]]:
    """Milliseconds since the first frame, and the frame, at most so many a second.

    `source` is a path or an address that ffmpeg reads, `camera`, `screen`, or a device (`/dev/video1`). A
    film is held back to `speed` times its own pace by `wait`. Raises PictureError, before the first frame if
    there is no such camera or film.
    """
    kind, place = _device(source)
    try:
        av = importlib.import_module("av")
    except ImportError as error:
        raise PictureError(
            f"films and cameras need the package av ({error}); install it with `pip install av pillow`"
        ) from None
    if kind is None and "://" not in source and not Path(source).is_file():
        raise PictureError(f"no such film: {source}")
    try:
        film = av.open(place, format=kind)
    except (OSError, ValueError) as error:
        what = source if kind is None else f"{source} ({place})"
        reason = getattr(error, "strerror", None) or str(error)
        raise PictureError(f"cannot open {what}: {reason}{_advice(source)}") from None
    with film:
        if not film.streams.video:
            raise PictureError(f"{source} has no pictures")
        yield from _shown(film, max_fps, None if kind else speed, wait)


def _shown(
    film: Any,  # noqa: ANN401 (PyAV's container)
    max_fps: float,
    speed: float | None,
    wait: Callable[[float], object],
) -> Iterator[tuple[int, PillowImage]]:
    began, first_s, due_s = time.monotonic(), None, 0.0
    for frame in film.decode(video=0):
        now_s = time.monotonic() - began
        if speed is None or frame.time is None:
            seconds = now_s
        else:
            first_s = frame.time if first_s is None else first_s
            seconds = frame.time - first_s
        if seconds < due_s:
            continue
        due_s = max(due_s + 1 / max_fps, seconds)
        if speed is not None and seconds / speed > now_s:
            wait(seconds / speed - now_s)
        yield round(seconds * 1000), frame.to_image()


def _device(source: str) -> tuple[str | None, str]:
    """ffmpeg's name for what is no film, and where it is."""
    if source in (CAMERA, SCREEN):
        known = (_CAMERAS if source == CAMERA else _SCREENS).get(sys.platform)
        if known is None:
            raise PictureError(f"no {source} is known on {sys.platform}; name a film")
        kind, place = known
        return kind, place or os.environ.get(_DISPLAY) or _no_screen()
    if source.startswith("/dev/"):
        return "v4l2", source
    return None, source


def _no_screen() -> str:
    raise PictureError(f"no screen: {_DISPLAY} is not set; name a film or a camera")


def _advice(source: str) -> str:
    if source == CAMERA or source.startswith("/dev/"):
        return "; is a camera there, and may you read it? Name a film, or another device: /dev/video1"
    return ""
