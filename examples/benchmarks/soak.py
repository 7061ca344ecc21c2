"""One live session for a long time: the engine's work, memory and latency, minute by minute.

    python examples/training/make_demo_audio.py --turns 300 --output /tmp/talk.wav
    sensorium serve & python examples/benchmarks/soak.py /tmp/talk.wav --minutes 30 [--pid SERVER]

The recording is spoken over and over at real-time pace. A minute that is as cheap as the first says that a
session costs the same however old it is. With the server's process id its memory is shown as well (Linux).
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path

from sensorium.client import Client, Completed, SpeechStopped
from sensorium.client.audio import Audio, read_wav, varied
from sensorium.client.bench.report import table
from sensorium.client.bench.statistics import percentile
from sensorium.client.metrics import work_between

SHOWN = ("windows", "encoder tokens", "prefill tokens", "decode tokens", "engine steps", "device s")


class Minutes:
    """What each minute of audio cost."""

    def __init__(self, client: Client, pid: int | None) -> None:
        self._client = client
        self._pid = pid
        self._before = client.metrics()
        self.rows: list[list[str]] = []
        self.final_s: list[float] = []
        self.num_turns = 0

    def end(self, audio_s: float) -> None:
        """A minute is over, `audio_s` of audio long."""
        after = self._client.metrics()
        work = work_between(self._before, after, audio_s)
        self._before = after
        costs = [f"{work.per_audio_s[name]:.4g}" for name in SHOWN] if work else ["–"] * len(SHOWN)
        latency = f"{1000 * percentile(self.final_s, 95):.0f}" if self.final_s else "–"
        memory = "–" if self._pid is None else f"{resident_mib(self._pid):.0f}"
        self.rows.append([str(len(self.rows) + 1), str(self.num_turns), *costs, latency, memory])
        print("  ".join(self.rows[-1]), flush=True)
        self.final_s, self.num_turns = [], 0


def resident_mib(pid: int) -> float:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def spoken(audio: Audio, minutes: Minutes, num_minutes: int) -> Iterator[bytes]:
    """The recording again and again, no two times with the same bytes."""
    passes = (varied(audio, number).chunks() for number in itertools.count())
    sent_s = minute_s = 0.0
    for chunk in itertools.chain.from_iterable(passes):
        yield chunk
        seconds = len(chunk) / audio.format.bytes_per_second
        sent_s, minute_s = sent_s + seconds, minute_s + seconds
        if minute_s >= 60:
            minutes.end(minute_s)
            minute_s = 0.0
        if sent_s >= 60 * num_minutes:
            return


def main() -> None:
    """Speak and listen."""
    parser = argparse.ArgumentParser(description="One live session for a long time.")
    parser.add_argument("recording", type=Path)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--minutes", type=int, default=30)
    parser.add_argument("--pid", type=int, help="the server's process id")
    arguments = parser.parse_args()
    audio = read_wav(arguments.recording)
    stopped: dict[str, float] = {}
    with Client(arguments.url) as client, client.realtime(sample_rate=audio.rate) as session:
        minutes = Minutes(client, arguments.pid)
        for event in session.transcribe(spoken(audio, minutes, arguments.minutes), speed=1.0):
            match event:
                case SpeechStopped(item_id=item_id):
                    stopped[item_id] = time.monotonic()
                case Completed(item_id=item_id):
                    minutes.final_s.append(time.monotonic() - stopped.pop(item_id, time.monotonic()))
                    minutes.num_turns += 1
                case _:
                    pass
    print(table(["minute", "turns", *SHOWN, "final p95 ms", "RSS MiB"], minutes.rows))


if __name__ == "__main__":
    main()
