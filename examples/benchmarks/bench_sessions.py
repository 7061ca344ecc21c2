"""How many paced live sessions one process carries: the whole server, but an engine that answers at once.

    python examples/benchmarks/bench_sessions.py --sessions 250 --seconds 20 [--append-ms 100] [--profile F]
    python examples/benchmarks/bench_sessions.py --sessions 100 --silent 1900 --seconds 60

WebSocket, codec, session, resampler and voice activity are the server's own, pinned to one core; the clients
are another process, on the other cores. Each session speaks 24 kHz PCM16 in base64, at the pace of a clock,
each at its own place of the same recording. `--silent` more sessions are open meanwhile: each is opened
before, sends 5 s of silence, then nothing. The loop may be late by a few milliseconds: where it is not, and
speech is noticed as soon as with one session, there is room for more.
"""

from __future__ import annotations

import argparse
import base64
import cProfile
import json
import math
import os
import pstats
import random
import resource
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import soundfile
import soxr
import trio
from sensorium.actors.config.server import ListenConfig, RealtimeConfig, ServerConfig
from sensorium.actors.fetching.dns import Names
from sensorium.actors.http.api_keys import ApiKeys
from sensorium.actors.http.service import ServedModel, Service
from sensorium.actors.live.container_decoder import SoundActor
from sensorium.actors.live.voice_activity import VoiceActivityActor
from sensorium.actors.media_decoding.memory_budget import MediaBudget
from sensorium.actors.media_decoding.worker_pool import DecoderPool
from sensorium.actors.server import application
from sensorium.actors.speech.model import FILE, LiveStream, ReadAudio
from sensorium.actors.telemetry.metrics import Metrics
from sensorium.actors.text.media_urls import AddressBook
from sensorium.actors.transport.connection_limits import Guard, connection_limits
from sensorium.actors.transport.listener import open_listener, serve_connections
from sensorium.media.speech.voice_activity import VoiceActivityModel
from sensorium.media.transcript.range_answer import Samples
from sensorium.protocols.engine.messages import Lane
from sensorium.protocols.engine.statistics import SpeechStatistics
from sensorium.protocols.transcription.streaming import ChunkDelay
from sensorium.protocols.transcription.transcript import Task, TimedSegment, Transcript, TranscriptionOptions
from websockets.frames import Frame, Opcode

RATE = 24_000
RECORDING = Path(__file__).resolve().parents[1] / "data" / "kitchen_lights.wav"
WARM_UP_S = 4.0
LOOP_STEP_S = 0.005
SILENT_PER_S = 20
"""Silent sessions opened in a second."""
SILENCE_S = 5
_WHOSE = {"MainThread": "loop", "Trio": "voice activity", "voice": "voice activity"}
PREFIX_MS = 300
"""The server's default padding in front of speech."""


class StubModel:
    """Understands one more word per second, in no time."""

    languages: tuple[str, ...] = ("en",)
    spells_numbers: bool = False
    supports_left_context: bool = False
    delays: tuple[ChunkDelay, ...] = ()
    takes_hints: bool = True
    tasks: tuple[Task, ...] = ("transcribe",)

    def check(self, options: TranscriptionOptions) -> None:
        """Anything goes."""

    def statistics(self) -> SpeechStatistics:
        """Nothing is counted."""
        return SpeechStatistics(
            speech_s=0.0,
            wordless_s=0.0,
            num_words=0,
            num_words_without_speech=0,
            num_retranscribed=0,
            retranscribed_s=0.0,
        )

    async def transcribe(
        self,
        samples: Samples,
        options: TranscriptionOptions,
        *,
        lane: Lane = FILE,
        on_delta: Callable[[str], None] | None = None,
        on_segment: Callable[[TimedSegment], None] | None = None,
    ) -> Transcript:
        """As `live`."""
        return _transcript(len(samples))

    def live(
        self,
        read: ReadAudio,
        options: TranscriptionOptions,
        *,
        start: int,
        before: Sequence[int] = (),
        spoken: str | None = None,
        caller: str = "",
        delay_ms: int | None = None,
        nursery: trio.Nursery | None = None,
    ) -> StubTurn:
        """A turn."""
        return StubTurn(read, start)

    def stream(
        self,
        read: ReadAudio,
        options: TranscriptionOptions,
        *,
        start: int,
        nursery: trio.Nursery,
        caller: str = "",
        delay_ms: int | None = None,
    ) -> LiveStream:
        """It does not stream."""
        raise NotImplementedError


class StubTurn:
    """Reads the audio it is asked about, as a real one does."""

    def __init__(self, read: ReadAudio, start: int) -> None:
        self._read = read
        self._start = self._end = start

    async def hypothesis(
        self, end: int, *, final: bool, is_pushed: bool = False, is_queued: bool = False
    ) -> Transcript:
        """At once."""
        await trio.lowlevel.checkpoint()
        if end > self._end:
            self._read(self._end, end)
            self._end = end
        return _transcript(end - self._start)

    def close(self) -> None:
        """There is nothing to give back."""


def _transcript(num_samples: int) -> Transcript:
    seconds = num_samples / 16_000
    text = " ".join(f"word{index}" for index in range(math.ceil(seconds)))
    return Transcript(text=text, language="en", duration=seconds)


def main() -> None:
    """Run the server here and the clients beside it, or be the clients."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sessions", type=int, default=250)
    parser.add_argument("--seconds", type=float, default=20.0, help="measured, after a warm-up")
    parser.add_argument("--append-ms", type=int, default=100)
    parser.add_argument("--silent", type=int, default=0, help="further sessions, which stay open")
    parser.add_argument("--profile", type=Path, help="write the loop's profile there (slows it)")
    parser.add_argument("--clients", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.clients:
        trio.run(be_clients, arguments)
        return
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[0]})
    profile = cProfile.Profile(time.thread_time) if arguments.profile else None
    if profile is not None:
        profile.runcall(trio.run, be_server, arguments, set(cores[1:] or cores))
        pstats.Stats(profile).dump_stats(arguments.profile)
    else:
        trio.run(be_server, arguments, set(cores[1:] or cores))


async def be_server(arguments: argparse.Namespace, client_cores: set[int]) -> None:
    """Serve, and print what it cost."""
    config = ServerConfig(
        models=("tiny-whisper",),
        listen=ListenConfig(port=0),
        realtime=RealtimeConfig(max_sessions=arguments.sessions + arguments.silent + 1),
    )
    media, metrics, budget, keys = DecoderPool(), Metrics(), MediaBudget(), ApiKeys(config.listen)
    engine: Any = None  # nobody asks the stub's
    models = {"stub": ServedModel("stub", engine, 0, transcription=StubModel())}
    async with trio.open_nursery() as nursery:
        await nursery.start(media.run)
        voice_activity = VoiceActivityActor(VoiceActivityModel())
        await nursery.start(voice_activity.run)
        sound = SoundActor()
        await nursery.start(sound.run)
        service = Service(
            config,
            models,
            media.handle,
            budget,
            AddressBook(budget),
            Names(),
            voice_activity.open_vad_stream,
            sound.open_sound,
            metrics,
            keys,
        )
        await nursery.start(service.sessions.run)
        listener = open_listener("127.0.0.1", 0)
        closed = trio.Event()

        async def listen() -> None:
            await serve_connections(
                application(service),
                listener,
                guard=Guard(connection_limits(0, 0, idle_s=30.0)),
                max_message_bytes=config.realtime.max_message_bytes,
                send_timeout_s=20.0,
                stop=closed,
                grace_s=0.5,
            )

        nursery.start_soon(listen)
        command = [sys.executable, __file__, "--clients", f"127.0.0.1:{listener.getsockname()[1]}"]
        before_bytes = memory_bytes()
        for name in ("sessions", "silent", "seconds", "append_ms"):
            command += [f"--{name.replace('_', '-')}", str(getattr(arguments, name))]
        process = await trio.lowlevel.open_process(
            command,
            stdout=subprocess.PIPE,
            preexec_fn=lambda: os.sched_setaffinity(0, client_cores),
        )
        while len(service.sessions) < arguments.sessions + arguments.silent:  # noqa: ASYNC110 (another process makes it true)
            await trio.sleep(0.1)
        await trio.sleep(WARM_UP_S / 2)
        lags: list[float] = []
        before, start = thread_seconds(), time.monotonic()
        with trio.move_on_after(arguments.seconds):
            while True:
                due = trio.current_time() + LOOP_STEP_S
                await trio.sleep_until(due)
                lags.append(trio.current_time() - due)
        wall, held = time.monotonic() - start, memory_bytes()
        used = {name: seconds - before.get(name, 0.0) for name, seconds in thread_seconds().items()}
        assert process.stdout is not None
        report = b""
        async for chunk in process.stdout:
            report += chunk
        await process.wait()
        _print_report(arguments, json.loads(report), lags, used, wall)
        per_session = (held - before_bytes) / (arguments.sessions + arguments.silent)
        print(f"memory: {held / 1e6:.0f} MB, {per_session / 1e3:.0f} KB per open session")
        nursery.cancel_scope.cancel()


def thread_seconds() -> dict[str, float]:
    """CPU seconds of every thread of this process so far, by what it does."""
    found: dict[str, float] = defaultdict(float)
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    for path in Path("/proc/self/task").iterdir():
        name = names.get(int(path.name), "others")
        nanoseconds = int((path / "schedstat").read_text().split()[0])
        found[_WHOSE.get(name.split()[0], name)] += nanoseconds / 1e9
    return found


def memory_bytes() -> int:
    """Of this process, resident."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _print_report(
    arguments: argparse.Namespace,
    clients: dict[str, Any],
    lags: Sequence[float],
    used: dict[str, float],
    wall: float,
) -> None:
    appends = arguments.sessions * wall * 1000 / arguments.append_ms
    print(f"{arguments.sessions} sessions, appends of {arguments.append_ms} ms, {wall:.0f} s")
    print(f"loop lag: {_spread([1000 * lag for lag in lags])} ms")
    for name, seconds in sorted(used.items(), key=lambda item: -item[1]):
        if seconds > 0.01 * wall:
            print(f"{name}: {seconds / wall:.0%} of a core, {1e6 * seconds / appends:.0f} µs per append")
    print(f"speech to speech_started: {_spread(clients['noticed_ms'])} ms ({len(clients['noticed_ms'])})")
    print(f"clients were late by: {_spread(clients['late_ms'])} ms; errors: {clients['num_errors']}")
    print(f"events: {clients['events']}")


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "none"
    p50, p99 = np.percentile(values, [50, 99])
    return f"p50 {p50:.1f}, p99 {p99:.1f}, max {max(values):.1f}"


class Client:
    """One paced session on a bare socket: frames are made beforehand, so that clients cost little."""

    noticed_ms: ClassVar[list[float]] = []
    late_ms: ClassVar[list[float]] = []
    events: ClassVar[Counter[str]] = Counter()
    num_errors = 0

    def __init__(
        self, frames: Sequence[bytes], append_ms: int, end: float, num_frames: float = math.inf
    ) -> None:
        self._frames = frames
        self._num_frames = num_frames
        self._append_ms = append_ms
        self._end = end
        self._began = math.inf
        self._measured_from = 0.0
        self._welcome = trio.Event()

    async def run(self, host: str, port: int) -> None:
        """Speak until the end."""
        stream = await trio.open_tcp_stream(host, port)
        await stream.send_all(
            f"GET /v1/realtime HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen, stream)
            await self._welcome.wait()
            await self._speak(stream)
            nursery.cancel_scope.cancel()

    async def _speak(self, stream: trio.SocketStream) -> None:
        index = random.randrange(len(self._frames))
        self._began = trio.current_time()
        self._measured_from = self._began + WARM_UP_S
        due = self._began
        num_sent = 0
        while due < self._end:
            if num_sent == self._num_frames:
                await trio.sleep_until(self._end)
                return
            num_sent += 1
            due += self._append_ms / 1000
            await trio.sleep_until(due)
            if due > self._measured_from:
                self.late_ms.append(1000 * (trio.current_time() - due))
            await stream.send_all(self._frames[index % len(self._frames)])
            index += 1

    async def _listen(self, stream: trio.SocketStream) -> None:
        data = bytearray()
        async for chunk in stream:
            data += chunk
            if data.startswith(b"HTTP/"):
                _, found, rest = data.partition(b"\r\n\r\n")
                data = rest if found else data
            while (size := _frame_size(data)) is not None:
                self._take_audio(bytes(data[size[0] : size[1]]))
                del data[: size[1]]

    def _take_audio(self, payload: bytes) -> None:
        name = payload[:160].partition(b'"type":"')[2].partition(b'"')[0].decode()
        Client.events[name.rpartition(".")[2] or "other"] += 1
        Client.num_errors += name == "error"
        self._welcome.set()
        now = trio.current_time()
        if name.endswith("speech_started") and now > self._measured_from:
            start_ms = json.loads(payload)["audio_start_ms"] + PREFIX_MS
            self.noticed_ms.append(1000 * (now - self._began) - start_ms)


def _frame_size(data: bytearray) -> tuple[int, int] | None:
    """Where the payload of the server's first frame begins and ends; None while it is not all there."""
    if len(data) < 2 or data.startswith(b"HTTP/"):
        return None
    start, length = 2, data[1]
    if length >= 126:
        width = 2 if length == 126 else 8
        start, length = 2 + width, int.from_bytes(data[2 : 2 + width], "big")
    return (start, start + length) if len(data) >= start + length else None


def append_frames(append_ms: int) -> list[bytes]:
    """The recording with a pause behind it, as frames to send."""
    samples, rate = soundfile.read(RECORDING, dtype="float32")
    wave = soxr.resample(samples, rate, RATE)
    wave = np.concatenate((wave, np.zeros(2 * RATE, np.float32)))
    size = RATE * append_ms // 1000
    return [append_frame(wave[start : start + size]) for start in range(0, len(wave) - size, size)]


def append_frame(wave: np.ndarray) -> bytes:
    """The WebSocket frame that appends it."""
    pcm = (np.clip(wave, -1, 1) * 32_767).astype("<i2")
    event = b'{"type":"input_audio_buffer.append","audio":"' + base64.b64encode(pcm.tobytes()) + b'"}'
    return Frame(Opcode.TEXT, event).serialize(mask=True)


async def be_clients(arguments: argparse.Namespace) -> None:
    """All sessions; what they saw goes to standard output."""
    host, _, port = arguments.clients.partition(":")
    frames = append_frames(arguments.append_ms)
    ramp_s = WARM_UP_S / 2
    silent_s = arguments.silent / SILENT_PER_S
    end = trio.current_time() + silent_s + SILENCE_S + WARM_UP_S + ramp_s + arguments.seconds
    silence = [append_frame(np.zeros(RATE * arguments.append_ms // 1000, np.float32))]
    num_silent = SILENCE_S * 1000 // arguments.append_ms
    async with trio.open_nursery() as nursery:
        for _ in range(arguments.silent):
            nursery.start_soon(Client(silence, arguments.append_ms, end, num_silent).run, host, int(port))
            await trio.sleep(1 / SILENT_PER_S)
        await trio.sleep(SILENCE_S if arguments.silent else 0)
        for _ in range(arguments.sessions):
            nursery.start_soon(Client(frames, arguments.append_ms, end).run, host, int(port))
            await trio.sleep(ramp_s / arguments.sessions)
    found = {
        "noticed_ms": Client.noticed_ms,
        "late_ms": Client.late_ms,
        "num_errors": Client.num_errors,
        "events": Client.events,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
