"""One live session for hours, and visitors: work, latency, memory and descriptors, minute by minute.

    sensorium serve tiny-whisper --encoder-memory 64MiB & python examples/benchmarks/soak.py \
        examples/data/conversation.wav --minutes 120 --pause-s 30 --visit-s 15 --pid $!

The recording is spoken over and over at real-time pace: a minute that is as cheap as the first says that a
session costs the same however old it is. Visitors come and go: one sends a file, the next opens a session,
speaks the first seconds of the recording and leaves. Memory that a visitor leaves behind shows as a slope,
which is printed with its standard error. Caches grow until they are full: small ones, and a warm-up, keep
them out of the slope.
"""

from __future__ import annotations

import argparse
import itertools
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from sensorium.client import Client, Completed, SpeechStopped
from sensorium.client.audio import Audio, read_wav, silence, varied, wav_bytes
from sensorium.client.bench.report import table
from sensorium.client.bench.statistics import percentile
from sensorium.client.metrics import work_between

SHOWN: Final = ("windows", "encoder tokens", "prefill tokens", "decode tokens", "engine steps", "device s")
VISIT_AUDIO_S: Final = 4


@dataclass(frozen=True)
class Usage:
    """What a server's processes hold. MiB; seconds of processor time."""

    server_mib: float = 0.0
    models_mib: float = 0.0
    decoders_mib: float = 0.0
    num_descriptors: int = 0
    """Of the server and of the models' process; a decode process is replaced after some files."""
    cpu_s: float = 0.0
    """Of the server and of the models' process."""


def usage(pid: int) -> Usage:
    """Of the server's process and its children, now."""
    models = [child for child in children(pid) if "engine_process" in command_line(child)]
    decoders = [child for child in children(pid) if "spawn_main" in command_line(child)]
    return Usage(
        resident_mib(pid),
        sum(map(resident_mib, models)),
        sum(map(resident_mib, decoders)),
        sum(len(os.listdir(f"/proc/{each}/fd")) for each in (pid, *models)),
        sum(map(processor_s, (pid, *models))),
    )


def children(pid: int) -> list[int]:
    """Processes that any thread of `pid` has started, and that have not ended."""
    paths = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in paths for child in path.read_text().split()]


def command_line(pid: int) -> str:
    """Its arguments; empty where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def resident_mib(pid: int) -> float:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def processor_s(pid: int) -> float:
    """Processor time of all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def slope(values: Sequence[float]) -> tuple[float, float]:
    """By least squares, change for each step of the sequence, and its standard error.

    Neighbouring values are alike, so that there are fewer independent ones than values: the error grows by
    the correlation r of each residual with the next, to √((1 + r) / (1 - r)) of that of independent ones.
    """
    times = np.arange(len(values), dtype=float) - (len(values) - 1) / 2
    observed = np.asarray(values, dtype=float)
    spread = float(times @ times)
    rate = float(times @ observed) / spread
    residuals = observed - observed.mean() - rate * times
    square = float(residuals @ residuals)
    error = float(np.sqrt(square / (len(values) - 2) / spread))
    correlation = float(residuals[1:] @ residuals[:-1]) / square if square else 0.0
    correlation = min(max(correlation, 0.0), 0.99)
    return rate, error * float(np.sqrt((1 + correlation) / (1 - correlation)))


class Minutes:
    """What each minute of audio cost."""

    def __init__(self, client: Client, pid: int | None) -> None:
        self._client = client
        self._pid = pid
        self._before = client.metrics()
        self.rows: list[list[str]] = []
        self.usages: list[Usage] = [] if pid is None else [usage(pid)]
        self.final_s: list[float] = []
        self.all_final_s: list[float] = []
        self.num_turns = 0

    def end(self, audio_s: float) -> None:
        """A minute is over, `audio_s` of audio long."""
        after = self._client.metrics()
        work = work_between(self._before, after, audio_s)
        self._before = after
        costs = [f"{work.per_audio_s[name]:.4g}" for name in SHOWN] if work else ["–"] * len(SHOWN)
        latency = f"{1000 * percentile(self.final_s, 95):.0f}" if self.final_s else "–"
        held = ["–"] * 4
        if self._pid is not None:
            self.usages.append(now := usage(self._pid))
            memory = (now.server_mib, now.models_mib, now.decoders_mib)
            held = [*(f"{each:.1f}" for each in memory), str(now.num_descriptors)]
        self.rows.append([str(len(self.rows) + 1), str(self.num_turns), *costs, latency, *held])
        print("  ".join(self.rows[-1]), flush=True)
        self.all_final_s += self.final_s
        self.final_s, self.num_turns = [], 0


@dataclass
class Visits:
    """Files, and sessions of one turn, one every so often, each with another's samples."""

    url: str
    audio: Audio
    every_s: float
    counts: Counter[str] = field(default_factory=Counter)
    file_s: list[float] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Come and go until `is_over`."""
        for number in itertools.count():
            if self.is_over.wait(self.every_s):
                return
            visit = (self._send_file, self._speak)[number % 2]
            try:
                self.counts[visit(varied(self.audio, number))] += 1
            except Exception as error:  # one failure must not end hours of measurement: it is counted
                self.counts[f"{type(error).__name__}: {error}"] += 1

    def _send_file(self, audio: Audio) -> str:
        began = time.monotonic()
        with Client(self.url) as client:
            text = client.transcribe(wav_bytes(audio)).text
        self.file_s.append(time.monotonic() - began)
        return "files" if text else "files without text"

    def _speak(self, audio: Audio) -> str:
        with (
            Client(self.url) as client,
            client.realtime(sample_rate=audio.rate, turn_detection=None) as session,
        ):
            events = session.transcribe(audio.chunks(), speed=None)
            finals = [event.transcript for event in events if isinstance(event, Completed)]
        return "sessions" if any(finals) else "sessions without text"


def spoken(audio: Audio, pause_s: float, minutes: Minutes, num_minutes: int) -> Iterator[bytes]:
    """The recording and a pause again and again, no two times with the same bytes."""
    pause = Audio(silence(pause_s, audio.rate), audio.rate)
    passes = ((*varied(audio, number).chunks(), *pause.chunks()) for number in itertools.count())
    minute_s = 0.0
    for chunk in itertools.chain.from_iterable(passes):
        yield chunk
        minute_s += len(chunk) / audio.format.bytes_per_second
        if minute_s >= 60:
            minutes.end(minute_s)
            minute_s = 0.0
        if len(minutes.rows) == num_minutes:
            return


def print_report(minutes: Minutes, visits: Visits, warm_up: int, took_s: float) -> None:
    """The rows, then slopes behind the warm-up and what visitors met."""
    headers = ["minute", "turns", *SHOWN, "final p95 ms", "server MiB", "models MiB", "decoders MiB", "fds"]
    print(table(headers, minutes.rows))
    finals, files = minutes.all_final_s, visits.file_s
    shares = (50, 95, 100)
    print(
        f"{len(finals)} turns, final p50, p95, most ms:",
        *(f"{1000 * percentile(finals, share):.0f}" for share in shares),
    )
    print(
        f"visitors: {dict(visits.counts)}, file p50, p95, most ms:",
        *(f"{1000 * percentile(files, share):.0f}" for share in shares),
    )
    kept = minutes.usages[warm_up:]
    if len(kept) < 3:
        return
    for name, values in {
        "server MiB": [each.server_mib for each in kept],
        "models MiB": [each.models_mib for each in kept],
        "descriptors": [float(each.num_descriptors) for each in kept],
    }.items():
        rate, error = slope(values)
        print(
            f"{name}: {values[0]:.1f} at minute {warm_up}, {values[-1]:.1f} at the end, "
            f"{60 * rate:+.2f} ± {60 * error:.2f} an hour (standard error)"
        )
    cpu_s = minutes.usages[-1].cpu_s - minutes.usages[0].cpu_s
    print(f"processor: {100 * cpu_s / took_s:.1f} % of a core")


def main() -> None:
    """Speak and listen."""
    parser = argparse.ArgumentParser(description="One live session for a long time.")
    parser.add_argument("recording", type=Path)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--minutes", type=int, default=30)
    parser.add_argument("--pid", type=int, help="the server's process id: its memory is shown (Linux)")
    parser.add_argument("--pause-s", type=float, default=0.0, help="silence after each time, in seconds")
    parser.add_argument("--visit-s", type=float, help="seconds from one visitor to the next (default: none)")
    parser.add_argument("--warm-up", type=int, default=15, help="minutes that the slopes leave out")
    arguments = parser.parse_args()
    audio = read_wav(arguments.recording)
    first = audio.pcm[: VISIT_AUDIO_S * audio.format.bytes_per_second]
    visits = Visits(arguments.url, Audio(first, audio.rate), arguments.visit_s or 0.0)
    stopped: dict[str, float] = {}
    began = time.monotonic()
    with Client(arguments.url) as client, client.realtime(sample_rate=audio.rate) as session:
        minutes = Minutes(client, arguments.pid)
        sound = spoken(audio, arguments.pause_s, minutes, arguments.minutes)
        visiting = threading.Thread(target=visits.run)
        if arguments.visit_s:
            visiting.start()
        try:
            for event in session.transcribe(sound, speed=1.0):
                match event:
                    case SpeechStopped(item_id=item_id):
                        stopped[item_id] = time.monotonic()
                    case Completed(item_id=item_id):
                        minutes.final_s.append(time.monotonic() - stopped.pop(item_id, time.monotonic()))
                        minutes.num_turns += 1
                    case _:
                        pass
        finally:
            visits.is_over.set()
            if arguments.visit_s:
                visiting.join()
            print_report(minutes, visits, arguments.warm_up, time.monotonic() - began)


if __name__ == "__main__":
    main()
