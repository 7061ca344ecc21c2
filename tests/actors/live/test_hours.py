"""Two hours of one live session in virtual time: nothing grows, every turn is answered, no word is lost.

The session is the real one, from bytes to events; the model and the voice activity are scripted, so that
hours take seconds. The real engine's side of it: `tests/actors/speech/test_qwen3_asr_cost.py`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import numpy as np
import trio
from sensorium.actors.live.connection import Line
from sensorium.actors.live.outbox import Outbox
from sensorium.actors.live.session import SessionActor
from sensorium.actors.live.session_metrics import SessionMeter
from sensorium.actors.telemetry.metrics import Metrics
from sensorium.protocols.transcription.transcript import Transcript
from sensorium.realtime.config import RealtimeModel, SessionConfig
from sensorium.realtime.replay import Replay
from support.fake_sessions import TOKEN, FakeModel, FakeTurn
from support.footprint import Footprint, footprint
from support.sounds import inline_sound
from support.vad_streams import loudness_vad
from trio.testing import MockClock

HOURS = 2
RATE = 16_000
FRAME = 20_480
"""Samples of one binary frame, 1.28 s: three pieces for the session."""
WORD = 6_400
"""Somebody who speaks says a word every 400 ms."""


class ListenerTurn(FakeTurn):
    """Hears the words that begin in it and are not silent; a word is its number."""

    async def hypothesis(
        self, end: int, *, final: bool, is_pushed: bool = False, is_queued: bool = False
    ) -> Transcript:
        whole = await super().hypothesis(end, final=final)
        first = -(-self._start // WORD)
        samples = self._read(self._start, end)
        words = [place for place in range(first, -(-end // WORD)) if samples[place * WORD - self._start]]
        return Transcript(text=" ".join(map(str, words)), language="en", duration=whole.duration)


class Client:
    """Reads everything, and keeps only counts and the newest words."""

    closed_cleanly = False
    went_away = False

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.words: list[int] = []

    async def receive(self) -> str | bytes | None:
        await trio.sleep_forever()

    async def send(self, frame: str) -> None:
        await trio.lowlevel.checkpoint()
        event = json.loads(frame)
        self.counts[event["type"].rpartition(".")[2]] += 1
        assert event["type"] != "error", event
        if event["type"].endswith("transcription.completed"):
            self.words += map(int, event["transcript"].split())

    async def close(self, code: int, reason: str) -> None:
        raise AssertionError((code, reason))


def speech() -> Iterator[tuple[bool, str]]:
    """Frames, for ever: is somebody speaking, and what the client does behind it."""
    while True:
        for _ in range(8):  # sentences and pauses
            yield from ((True, "") for _ in range(4))
            yield from ((False, "") for _ in range(2))
        yield from ((True, "") for _ in range(60))  # 77 s without a pause
        yield from ((False, "") for _ in range(3))
        yield from ((True, "") for _ in range(3))
        yield True, "commit"
        yield from ((False, "") for _ in range(20))
        yield False, "look"


async def test_hours_of_talk_leave_nothing_behind(autojump_clock: MockClock) -> None:
    model, metrics, client = FakeModel(0.07, ListenerTurn), Metrics(), Client()
    session = SessionActor(
        SessionConfig(model="fake", models=(RealtimeModel("fake"),), force_turn_s=30.0),
        {"fake": model},
        loudness_vad,
        inline_sound,
        SessionMeter(metrics),
        Replay(max_events=200, max_bytes=50_000),
        resume_token=TOKEN,
    )
    line = Line(client, Outbox(max_events=1000, max_bytes=1_000_000, send_timeout_s=5.0), session)
    sound = np.full(FRAME, 1_000, "<i2").tobytes()
    silence = bytes(2 * FRAME)
    sizes: list[Footprint] = []
    spoken: list[int] = []
    num_received = 0
    async with trio.open_nursery() as nursery:
        session.delivery.line = line
        nursery.start_soon(session.run)
        nursery.start_soon(line.outbox.run, client.send, client.close)
        await session.take(json.dumps(update()), line)
        for is_speech, deed in speech():
            await session.take(sound if is_speech else silence, line)
            if is_speech:
                spoken += range(-(-num_received // WORD), -(-(num_received + FRAME) // WORD))
            num_received += FRAME
            await trio.sleep(FRAME / RATE)
            if deed == "commit":
                await session.take('{"type": "input_audio_buffer.commit"}', line)
            if deed == "look":
                assert (model.num_held, session.turns.num_held) == (0, 0)
                sizes.append(footprint(session, leave_out=(client, model, metrics, line)))
                # Everything said since the last look was answered: no word twice, none lost.
                assert client.words == spoken
                client.words.clear()
                spoken.clear()
                if num_received > HOURS * 3600 * RATE:
                    break
        nursery.cancel_scope.cancel()
    assert len(sizes) > 40
    assert client.counts["completed"] == client.counts["committed"] > 10 * len(sizes)
    # Of as many looks as there are before a block of audio comes and goes, the largest.
    early, late = sizes[:16], sizes[-16:]
    assert max(each.num_objects for each in late) <= max(each.num_objects for each in early) + 10
    assert max(each.num_bytes for each in late) <= 1.02 * max(each.num_bytes for each in early)
    assert max(size.num_bytes for size in sizes) < 2_000_000


def update() -> dict[str, object]:
    """16 kHz, detection on."""
    audio = {"format": {"type": "audio/pcm", "rate": RATE}, "turn_detection": {"type": "server_vad"}}
    return {"type": "session.update", "session": {"type": "transcription", "audio": {"input": audio}}}
