"""Headless Chromium in tests, with a microphone and a camera that are files.

Debian's `chromium` is driven by playwright. Where either is missing the tests that ask for a browser are
skipped, and say what to install.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

import numpy as np
import pytest
import soundfile
from PIL import Image
from playwright.sync_api import Browser, Page, Playwright, Request, sync_playwright

DATA: Final = Path(__file__).parents[2] / "examples" / "data"
CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser")
SKIP: Final = "Chromium is not installed: apt-get install chromium"
LIGHTS: Final = "Set the kitchen lights to ninety percent."
"""What `kitchen_lights.wav` says."""
WAIT_MS: Final = 90_000
"""For what a slow machine may take; nothing waits so long where it works."""
ARGUMENTS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-fake-device-for-media-stream",
    "--host-resolver-rules=MAP speech.test 127.0.0.1",
)


@contextmanager
def chromium(microphone: Path | None = None, camera: Path | None = None, *more: str) -> Iterator[Browser]:
    """A browser whose microphone says a WAV file once, and whose camera shows a Y4M file again and again."""
    if CHROMIUM is None:
        pytest.skip(SKIP)
    arguments = [*ARGUMENTS, *more]
    if microphone is not None:
        arguments.append(f"--use-file-for-fake-audio-capture={microphone}%noloop")
    if camera is not None:
        arguments.append(f"--use-file-for-fake-video-capture={camera}")
    with sync_playwright() as playwright, _launched(playwright, arguments) as browser:
        yield browser


@contextmanager
def _launched(playwright: Playwright, arguments: list[str]) -> Iterator[Browser]:
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
    try:
        yield browser
    finally:
        browser.close()


@contextmanager
def opened(
    browser: Browser, url: str, *, width: int = 1440, allows_failures: bool = False, connects_to: str = ""
) -> Iterator[Page]:
    """A page. Fails at the end if it sent a request to another origin, broke a policy, or threw.

    `allows_failures`: of requests, which the browser's console lists as errors. `connects_to`: another origin
    that the page may send requests to.
    """
    page = new_page(browser, width=width)
    page.set_default_timeout(WAIT_MS)
    allowed = ["/".join(each.split("/", 3)[:3]) for each in (url, connects_to) if each]
    requested: list[str] = []
    faults: list[str] = []

    def note(request: Request) -> None:
        if not request.url.startswith((*allowed, "blob:", "data:")):
            requested.append(request.url)

    page.on("request", note)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.goto(url)
    try:
        yield page
    finally:
        page.context.close()
    assert not requested, requested
    serious = [each for each in faults if not (allows_failures and "Failed to load resource" in each)]
    serious = [each for each in serious if not (allows_failures and "WebSocket connection to" in each)]
    assert not serious, serious


def new_page(browser: Browser, *, width: int, height: int = 900, dark: bool = False) -> Page:
    """A page that may use the microphone and the camera."""
    scheme: Literal["dark", "light"] = "dark" if dark else "light"
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=scheme,
        permissions=["microphone", "camera"],
    )
    return context.new_page()


def delayed(speech: Path, folder: Path) -> Path:
    """A WAV file with a second of silence in front: a microphone takes a while to be opened."""
    samples, rate = soundfile.read(speech, dtype="int16")
    path = folder / speech.name
    soundfile.write(path, np.concatenate([np.zeros(rate, np.int16), samples]), rate)
    return path


def write_film(picture: Path, film: Path, *, num_frames: int = 20) -> Path:
    """A Y4M file (4:2:0, 10 frames a second) of one picture, for a camera."""
    image = Image.open(picture).convert("RGB").resize((640, 480))
    luma, blue, red = (np.asarray(band) for band in image.convert("YCbCr").split())
    frame = b"".join(band.tobytes() for band in (luma, blue[::2, ::2], red[::2, ::2]))
    head = b"YUV4MPEG2 W640 H480 F10:1 Ip A1:1 C420jpeg\n"
    film.write_bytes(head + (b"FRAME\n" + frame) * num_frames)
    return film
