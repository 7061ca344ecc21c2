"""What live sound in containers costs: streams that one core decodes, by container.

Each stream is sent as a browser's recorder does, a piece every `--every` milliseconds, and decoded in turn
with the others by the code that a decode process runs (`media/streams/worker.py`), states and all. Prints
seconds of sound per second of the processor, which is live streams per core.

    python examples/benchmarks/bench_live_sound.py --streams 50
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
import soundfile
import soxr
from sensorium.media.streams.worker import Request, decode_batch

RECORDING = Path(__file__).parents[1] / "data" / "conversation.wav"
FRAGMENTED = {"movflags": "frag_keyframe+empty_moov+default_base_moof", "frag_duration": "250000"}
KINDS = {
    "WebM, Opus": ("webm", "libopus", 48_000, {}),
    "Ogg, Opus": ("ogg", "libopus", 48_000, {"page_duration": "250000"}),
    "MP4, AAC": ("mp4", "aac", 48_000, FRAGMENTED),
    "MP3": ("mp3", "libmp3lame", 44_100, {}),
    "FLAC": ("flac", "flac", 16_000, {}),
    "ADTS, AAC": ("adts", "aac", 44_100, {}),
}


def encoded(samples: np.ndarray, container: str, codec: str, rate: int, options: dict[str, str]) -> bytes:
    """A recording in a container."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container, options=options) as file:
        stream = file.add_stream(codec, rate=rate, layout="mono")
        resampler = av.AudioResampler(format=stream.codec_context.format.name, layout="mono", rate=rate)
        frame = av.AudioFrame.from_ndarray(samples[None], format="fltp", layout="mono")
        frame.sample_rate = rate
        for converted in (*resampler.resample(frame), *resampler.resample(None)):
            file.mux(stream.encode(converted))
        file.mux(stream.encode(None))
    return buffer.getvalue()


def pieces(data: bytes, duration_s: float, every_ms: int) -> Iterator[bytes]:
    """The stream as it would come."""
    step = max(1, round(len(data) * every_ms / 1000 / duration_s))
    yield from (data[at : at + step] for at in range(0, len(data), step))


def cost_s(data: bytes, duration_s: float, num_streams: int, every_ms: int) -> float:
    """Seconds of the processor for that many streams side by side."""
    began = time.process_time()
    for piece in pieces(data, duration_s, every_ms):
        batch = decode_batch(
            [Request(n, "auto", 1, b"", piece, is_end=False) for n in range(num_streams)], (), b""
        )
        waiting = [n for n, answer in enumerate(batch.answers or ()) if answer.has_more]
        while waiting:
            more = decode_batch([Request(n, "auto", 1, b"", b"", is_end=False) for n in waiting], (), b"")
            waiting = [n for n, answer in zip(waiting, more.answers or (), strict=True) if answer.has_more]
    spent = time.process_time() - began
    decode_batch((), range(num_streams), b"")
    return spent


def main() -> None:
    """Measure each container."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--streams", type=int, default=50, help="side by side")
    parser.add_argument("--every", type=int, default=250, help="milliseconds between the pieces of a stream")
    arguments = parser.parse_args()
    speech, rate = soundfile.read(RECORDING, dtype="float32")
    duration_s = len(speech) / rate
    print(f"{arguments.streams} streams of {duration_s:.0f} s, a piece every {arguments.every} ms\n")
    print("| container | ms of processor per second of sound | live streams per core |\n|---|---|---|")
    for name, (container, codec, target, options) in KINDS.items():
        data = encoded(soxr.resample(speech, rate, target), container, codec, target, options)
        spent = cost_s(data, duration_s, arguments.streams, arguments.every)
        seconds = arguments.streams * duration_s
        print(f"| {name} | {1000 * spent / seconds:.2f} | {seconds / spent:.0f} |")


if __name__ == "__main__":
    main()
