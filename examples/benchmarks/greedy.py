"""What one caller may rightly ask for, in amounts that fill a machine: rows of `attack.py`.

Each function asks without end, with the attacker's key. What is refused counts as answered: a bound may well
be what keeps others whole.
"""

from __future__ import annotations

import base64
import io
import itertools
import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import Any, Final
from urllib.parse import urlsplit

import av
import httpx
import numpy as np
from bench_lanes import TALK
from PIL import Image
from sensorium.client.audio import Audio, read_wav, wav_bytes

ATTACKER: Final = "key-of-the-attacker"
VISION: Final = "tiny-qwen3-vl"
"""The model that is asked about text, pictures and video."""
_RATE: Final = 16_000
_FRAME_S: Final = 0.005
_PAUSE_S: Final = 0.2
"""After a refusal, as a client does that knows how to wait."""


def authorization(key: str) -> dict[str, str]:
    """The header that shows a key."""
    return {"Authorization": f"Bearer {key}"}


def connect(url: str) -> socket.socket:
    """A connection to the server."""
    address = urlsplit(url)
    return socket.create_connection((address.hostname, address.port), timeout=30)


def web_socket(url: str) -> socket.socket:
    """A live session of the attacker's, its handshake done."""
    raw = connect(url)
    nonce = base64.b64encode(os.urandom(16)).decode()
    raw.sendall(
        f"GET /v1/realtime HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nUpgrade: websocket\r\n"
        f"Authorization: Bearer {ATTACKER}\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {nonce}\r\n"
        "Sec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    raw.recv(4096)
    return raw


def files(url: str) -> None:
    """20 files of five minutes of noise at a time."""

    def send(client: httpx.Client, number: int) -> int:
        noise = np.random.default_rng(number).normal(0.0, 2000.0, 300 * _RATE).astype("<i2")
        file = wav_bytes(Audio(noise.tobytes(), _RATE))
        return client.post("/v1/audio/transcriptions", files={"file": ("noise.wav", file)}).status_code

    _forever(url, 20, send)


def scans(url: str) -> None:
    """40 questions at a time about pictures of 64 megapixels in 2,000 progressive scans: 440 KB each."""
    _forever(url, 40, lambda client, number: _chat(client, "image_url", "image/jpeg", scanned(number)))


def regexes(url: str) -> None:
    """20 answers at a time in regular expressions that take 2^24 states."""

    def send(client: httpx.Client, number: int) -> int:
        pattern = f"(a|b)*a(a|b){{24}}{number}"
        body = {"model": VISION, "prompt": "x", "max_tokens": 64, "structured_outputs": {"regex": pattern}}
        return client.post("/v1/completions", json=body).status_code

    _forever(url, 20, send)


def frames(url: str) -> None:
    """20 live sessions that are spoken in frames of five milliseconds."""
    step = 2 * int(24_000 * _FRAME_S)
    audio = read_wav(TALK)
    samples = np.frombuffer(audio.pcm, "<i2")
    at = np.arange(0, len(samples), audio.rate / 24_000)
    pcm = np.interp(at, np.arange(len(samples)), samples).astype("<i2").tobytes()
    cut = [
        b"\x82\xfe" + step.to_bytes(2, "big") + bytes(4) + pcm[i : i + step]
        for i in range(0, len(pcm) - step, step)
    ]
    while True:
        with suppress(OSError):
            sockets = [web_socket(url) for _ in range(20)]
            for each in sockets:
                threading.Thread(target=_drain, args=(each,), daemon=True).start()
            began = time.monotonic()
            for number in itertools.count():
                for place, each in enumerate(sockets):
                    each.sendall(cut[(number + 97 * place) % len(cut)])
                time.sleep(max(0.0, began + number * _FRAME_S - time.monotonic()))


def completions(url: str) -> None:
    """40 questions of 3,000 words at a time, each with eight answers of up to 4,000 tokens."""

    def send(client: httpx.Client, number: int) -> int:
        body = {
            "model": VISION,
            "prompt": f"{number} " + "word " * (number % 3000),
            "n": 8,
            "max_tokens": 4000,
            "ignore_eos": True,
        }
        return client.post("/v1/completions", json=body).status_code

    _forever(url, 40, send)


def pictures(url: str) -> None:
    """Three questions at a time, each about 16 pictures of noise."""

    def send(client: httpx.Client, number: int) -> int:
        chance = np.random.default_rng(number)
        noise = [chance.integers(0, 255, (512, 512, 3), np.uint8) for _ in range(16)]
        return _chat(client, "image_url", "image/jpeg", *(_jpeg(Image.fromarray(each)) for each in noise))

    _forever(url, 3, send)


def video(url: str) -> None:
    """Eight questions at a time about a video of 60,000 frames."""
    film()

    def send(client: httpx.Client, number: int) -> int:
        return _chat(client, "video_url", "video/mp4", film() + number.to_bytes(8, "big"))

    _forever(url, 8, send)


KINDS: Final[dict[str, Callable[[str], None]]] = {
    each.__name__: each for each in (files, scans, regexes, frames, completions, pictures, video)
}


def scanned(number: int, *, side: int = 8000, num_scans: int = 2000) -> bytes:
    """A progressive JPEG, grey and flat, whose last scan comes again and again."""
    data = _jpeg(Image.new("L", (side, side), number % 256), progressive=True)
    last = data.rindex(b"\xff\xda")
    return data[:last] + data[last:-2] * num_scans + data[-2:]


@cache
def film(num_frames: int = 60_000) -> bytes:
    """A minute of MPEG-4 video, 64 pixels square."""
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("mpeg4", rate=1000)
        stream.width = stream.height = 64
        noise = np.random.default_rng(0).integers(0, 255, (8, 64, 64, 3), np.uint8)
        pictures = [av.VideoFrame.from_ndarray(each) for each in noise]
        for number in range(num_frames):
            pictures[number % 8].pts = number
            container.mux(stream.encode(pictures[number % 8]))
        container.mux(stream.encode())
    return file.getvalue()


def _forever(url: str, num_at_once: int, send: Callable[[httpx.Client, int], int]) -> None:
    """So many requests at any time, each with a number of its own."""
    numbers = itertools.count()

    def one(_: int) -> None:
        with httpx.Client(base_url=url, headers=authorization(ATTACKER), timeout=None) as client:
            for number in numbers:
                status = 0
                with suppress(httpx.HTTPError):
                    status = send(client, number)
                if status != 200:
                    time.sleep(_PAUSE_S)

    with ThreadPoolExecutor(num_at_once) as threads:
        list(threads.map(one, range(num_at_once)))


def _chat(client: httpx.Client, kind: str, media_type: str, *contents: bytes) -> int:
    parts: list[dict[str, Any]] = [
        {"type": kind, kind: {"url": f"data:{media_type};base64,{base64.b64encode(each).decode()}"}}
        for each in contents
    ]
    messages = [{"role": "user", "content": [*parts, {"type": "text", "text": "What is it?"}]}]
    body = {"model": VISION, "messages": messages, "max_tokens": 16}
    return client.post("/v1/chat/completions", json=body).status_code


def _jpeg(picture: Image.Image, *, progressive: bool = False) -> bytes:
    file = io.BytesIO()
    picture.save(file, "JPEG", progressive=progressive)
    return file.getvalue()


def _drain(raw: socket.socket) -> None:
    with suppress(OSError):
        while raw.recv(1 << 16):
            pass
