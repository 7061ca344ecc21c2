"""What opening files costs: against the same libraries in a plain loop, by seeking, and the second time.

    python examples/benchmarks/bench_media.py rates     # sound, pictures and clips, ours against the library
    python examples/benchmarks/bench_media.py seek      # 32 pictures of a 10-minute clip against all of them
    python examples/benchmarks/bench_media.py once      # a 12-megapixel photo asked about twice

Everything runs on one core of this process but `once`, which asks a server of a random vision model. Files
are made here: noise and tones, a moving pattern; `--minutes` shortens them.
"""

from __future__ import annotations

import argparse
import base64
import io
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import av
import httpx
import numpy as np
import soxr
from bench_live_sound import encoded
from PIL import Image
from sensorium.media.audio.decode import decode_audio
from sensorium.media.vision.images import PixelArray, read_image
from sensorium.media.vision.video_container import VideoLimits
from sensorium.media.vision.video_file import list_pictures, read_pictures

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.server import make_config, running_server
from support.vl_folder import VlShape, make_vl_folder

REPEATS = 3
SHAPE = VlShape(patch_size=16, max_positions=4096, image_size=(65_536, 2**18))
"""Small, so that its own time is; a picture comes to 256 tokens."""


def best(work: Callable[[], object]) -> float:
    """Seconds of the quickest of some runs."""
    times = []
    for _ in range(REPEATS):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def sound(container: str, codec: str, seconds: float, rate: int) -> bytes:
    """A tone in noise as a file."""
    values = np.random.default_rng(0).normal(0, 0.1, int(seconds * rate)).astype(np.float32)
    values += 0.3 * np.sin(np.arange(len(values), dtype=np.float32) * (2 * np.pi * 220 / rate))
    return encoded(values, container, codec, rate, {})


def clip(seconds: float, fps: int, height: int, width: int) -> bytes:
    """A pattern that moves, as H.264 with a key picture every 250."""
    buffer = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
    whole = np.array(Image.fromarray(noise).resize((width, height)))
    with av.open(buffer, "w", format="mp4") as file:
        stream = file.add_stream("libx264", rate=Fraction(fps), options={"preset": "ultrafast", "g": "250"})
        stream.height, stream.width, stream.pix_fmt = height, width, "yuv420p"
        for number in range(int(seconds * fps)):
            frame = av.VideoFrame.from_ndarray(np.roll(whole, 4 * number, axis=1), format="rgb24")
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    return buffer.getvalue()


def photo(height: int, width: int, kind: str, detail: int = 4) -> bytes:
    """A picture as a file; its colours change every `detail` pixels."""
    noise = np.random.default_rng(0).integers(0, 256, (height // detail, width // detail, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).resize((width, height)).save(buffer, kind, quality=90)
    return buffer.getvalue()


def library_sound(data: bytes, rate: int) -> None:
    """Decode and resample in a loop."""
    with av.open(io.BytesIO(data)) as file:
        blocks = [frame.to_ndarray() for frame in file.decode(audio=0)]
    joined = np.concatenate(blocks, axis=1)[0]
    scale = np.float32(1 / 32768) if joined.dtype == np.int16 else np.float32(1)
    soxr.resample(joined.astype(np.float32) * scale, rate, 16_000)


def rates(minutes: float) -> None:
    """Ours against the library, the same work on the same files."""
    seconds = 60 * minutes
    formats = (("mp3", "libmp3lame", 44_100), ("ogg", "libopus", 48_000), ("flac", "flac", 44_100))
    for container, codec, rate in formats:
        file = sound(container, codec, seconds, rate)
        report(f"{seconds:.0f} s of {codec}", partial(decode_audio, file), partial(library_sound, file, rate))
    photos = [photo(1080, 1920, "JPEG")] * 20
    report("20 JPEG files of 1080p", lambda: list(map(read_image, photos)), lambda: list(map(plain, photos)))
    data = clip(min(seconds, 60), 30, 1080, 1920)

    def each_second() -> None:
        pictures = list_pictures(data, VideoLimits())
        wanted = list(range(0, len(pictures.stamps), 30))
        read_pictures(data, pictures, wanted, VideoLimits(), shrunk)

    report("1080p H.264 at 1 fps", each_second, lambda: library_clip(data, 30))


def report(what: str, ours: Callable[[], object], library: Callable[[], object]) -> None:
    """Time both and print a line."""
    one, other = best(ours), best(library)
    print(f"{what}: {one:.2f} s, the library {other:.2f} s: {other / one:.2f} of its rate", flush=True)


def shrunk(picture: PixelArray) -> PixelArray:
    """What is kept of a frame here."""
    return picture[::8, ::8].copy()


def plain(data: bytes) -> PixelArray:
    """Pillow alone."""
    return np.array(Image.open(io.BytesIO(data)).convert("RGB"))


def library_clip(data: bytes, step: int) -> int:
    """All pictures decoded with one thread, every `step`-th converted."""
    count = 0
    with av.open(io.BytesIO(data)) as file:
        file.streams.video[0].codec_context.thread_count = 1
        for number, frame in enumerate(file.decode(video=0)):
            if number % step == 0:
                shrunk(frame.to_ndarray(format="rgb24"))
                count += 1
    return count


def seek(minutes: float) -> None:
    """32 pictures, evenly spread, against all pictures decoded."""
    data = clip(60 * minutes, 25, 360, 640)
    limits = VideoLimits()

    def ours() -> None:
        pictures = list_pictures(data, limits)
        wanted = [int(place) for place in np.linspace(0, len(pictures.stamps) - 1, 32)]
        assert None not in read_pictures(data, pictures, wanted, limits, shrunk)

    few, every = best(ours), best(lambda: library_clip(data, 10**9))
    print(f"{minutes:g} min of H.264: 32 pictures {few:.2f} s, all {every:.2f} s: {few / every:.2f} of it")


def once(_: float) -> None:
    """Ask about a photo twice, then by its name alone."""
    with (
        TemporaryDirectory() as place,
        running_server(make_config(str(make_vl_folder(Path(place) / "vl", shape=SHAPE)))) as server,
    ):
        for kind in ("JPEG", "PNG"):
            data = photo(3000, 4000, kind, 4 if kind == "JPEG" else 100)
            url = f"data:image/{kind.lower()};base64,{base64.b64encode(data).decode()}"
            whole = {"type": "image_url", "image_url": {"url": url}, "uuid": kind}
            named = {"type": "image_url", "image_url": None, "uuid": kind}
            lines: list[str] = []
            for part in (whole, whole, whole, named, named):
                message = {"role": "user", "content": [part, {"type": "text", "text": f"{len(lines)}?"}]}
                body = {"messages": [message], "max_tokens": 1, "temperature": 0}
                before, began = server.service.media.statistics().num_jobs, time.perf_counter()
                httpx.post(f"{server.api}/chat/completions", json=body, timeout=120).raise_for_status()
                jobs = server.service.media.statistics().num_jobs - before
                lines.append(f"{1000 * (time.perf_counter() - began):.0f} ms ({jobs} jobs)")
            size = f"a {kind} of 12 megapixels, {len(data) / 1e6:.1f} MB"
            print(f"{size}: {', '.join(lines)}; the last two by its uuid", flush=True)


def main() -> None:
    """Read the options and go."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("rates", "seek", "once"))
    parser.add_argument("--minutes", type=float, default=10.0)
    options = parser.parse_args()
    {"rates": rates, "seek": seek, "once": once}[options.what](options.minutes)


if __name__ == "__main__":
    main()
