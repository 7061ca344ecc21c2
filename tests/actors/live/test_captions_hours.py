"""Six hours of captions in virtual time: no turn, nothing grows, words are in order and their times right.

The session is the real one from bytes to events, with the real engine and its scheduler; what is fake is the
runner, whose words are the numbers that the sound says (`support/numbered_words.py`). Every few minutes somebody
else takes the stream's slot of states, so that it is fed again.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from itertools import count

import trio
from msgspec import structs
from sensorium.actors.live.connection import Line
from sensorium.actors.live.outbox import Outbox
from sensorium.actors.live.session import SessionActor
from sensorium.actors.live.session_metrics import SessionMeter
from sensorium.actors.speech.model import LIVE_PARTIAL
from sensorium.actors.telemetry.metrics import Metrics
from sensorium.protocols.engine.messages import TransduceRequest
from sensorium.realtime.config import RealtimeModel, SessionConfig
from sensorium.realtime.replay import Replay
from support.fake_engine import fed
from support.fake_sessions import TOKEN
from support.fake_transducer import chunk_of
from support.footprint import Footprint, footprint
from support.numbered_words import DELAYS, ROW, NumberSpeech, sound_of
from support.sounds import inline_sound
from support.vad_streams import loudness_vad
from trio.testing import MockClock

HOURS = 6
RATE = 16_000
ROWS = 24
"""Of one binary frame, 1.92 s."""
SILENCE_MS, LONGEST_MS = 800, 10_000


class Client:
    """Reads everything, and keeps only counts, the newest words with their places, and what is open."""

    closed_cleanly = False
    went_away = False

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.words: list[tuple[int, int]] = []
        """Numbers, and milliseconds of the session at which they were said."""
        self.shown = ""
        """Of the item that is not completed."""
        self.starts: dict[str, int] = {}
        self.longest_ms = 0

    async def receive(self) -> str | bytes | None:
        await trio.sleep_forever()

    async def send(self, frame: str) -> None:
        await trio.lowlevel.checkpoint()
        event = json.loads(frame)
        kind = event["type"].rpartition(".")[2]
        self.counts[kind] += 1
        assert kind != "error", event
        if kind == "delta":
            self.shown += event["delta"]
        elif kind == "committed":
            self.starts[event["item_id"]] = event["audio_start_ms"]
            self.longest_ms = max(self.longest_ms, event["audio_end_ms"] - event["audio_start_ms"])
        elif kind == "completed":
            assert event["transcript"] == self.shown
            self.shown, start_ms = "", self.starts.pop(event["item_id"])
            assert " ".join(word["word"] for word in event["words"]) == event["transcript"]
            self.words += [
                (int(word["word"]), start_ms + round(1_000 * word["start"])) for word in event["words"]
            ]

    async def close(self, code: int, reason: str) -> None:
        raise AssertionError((code, reason))


def rows() -> Iterator[int]:
    """What is said in each row, for ever: sentences of words of 320 ms, pauses, and speech without a pause."""
    rng, numbers = random.Random(7), count(1)
    while True:
        num_words = rng.choice((1, 5, 12, 30, 100))
        for _ in range(num_words):
            yield next(numbers) % 999_000
            yield from (0,) * rng.choice((2, 3, 8))
        yield from (0,) * rng.choice((10, 20, 60, 400))


def update() -> dict[str, object]:
    """16 kHz, captions."""
    audio = {
        "format": {"type": "audio/pcm", "rate": RATE},
        "turn_detection": {
            "type": "captions",
            "silence_duration_ms": SILENCE_MS,
            "max_segment_ms": LONGEST_MS,
        },
        "transcription": {"timestamp_granularities": ["word"], "delay": "medium"},
    }
    return {"type": "session.update", "session": {"type": "transcription", "audio": {"input": audio}}}


async def take_slot(speech: NumberSpeech, request: TransduceRequest) -> None:
    """Somebody else speaks for a moment."""
    async with speech.engine.placed() as place, place.run(request) as run:
        await run.feed(chunk_of((0.0, 0.0), is_last=True))
        await run.outcome()


async def test_six_hours_of_captions(autojump_clock: MockClock) -> None:
    speech, metrics, client = NumberSpeech(num_slots=1), Metrics(), Client()
    session = SessionActor(
        SessionConfig(model="numbers", models=(RealtimeModel("numbers", delays=DELAYS, takes_hints=False),)),
        {"numbers": speech.speech},
        loudness_vad,
        inline_sound,
        SessionMeter(metrics),
        Replay(max_events=200, max_bytes=50_000),
        resume_token=TOKEN,
    )
    line = Line(client, Outbox(max_events=1000, max_bytes=1_000_000, send_timeout_s=5.0), session)
    said = rows()
    spoken: list[tuple[int, int]] = []
    sizes: list[Footprint] = []
    num_rows = num_lost = 0
    async with trio.open_nursery() as nursery:
        await nursery.start(speech.engine.run)
        session.delivery.line = line
        nursery.start_soon(session.run)
        nursery.start_soon(line.outbox.run, client.send, client.close)
        await session.take(json.dumps(update()), line)
        for turn in count(1):
            numbers = [next(said) for _ in range(ROWS)]
            spoken += [(number, 80 * (num_rows + at)) for at, number in enumerate(numbers) if number]
            num_rows += ROWS
            await session.take(sound_of(numbers).tobytes(), line)
            await trio.sleep(ROWS * ROW / RATE)
            if turn % 150 == 0:  # every 288 s
                await take_slot(speech, structs.replace(fed(f"other-{turn}"), lane=LIVE_PARTIAL))
                num_lost += 1
            if turn % 500 == 0:  # every 16 minutes
                num_held = spoken.index(client.words[-1]) + 1
                assert client.words == spoken[:num_held]
                assert len(spoken) - num_held < 100, "what is not over yet"
                del spoken[:num_held]
                client.words.clear()
                sizes.append(footprint(session, leave_out=(client, speech.engine, metrics, line)))
                assert session.captions.num_tracked == 1
                if num_rows * ROW > HOURS * 3600 * RATE:
                    break
        statistics = speech.engine.statistics()
        nursery.cancel_scope.cancel()
    assert client.counts["speech_started"] == client.counts["failed"] == 0
    assert client.counts["completed"] > 1_000
    assert client.longest_ms < LONGEST_MS + 1_000 + SILENCE_MS
    assert statistics.num_state_evictions >= num_lost
    # Fed again was at most the longest segment each time; all else was computed once.
    assert speech.runner.num_rows <= num_rows + num_lost * (LONGEST_MS + 3_000) // 80
    early, late = sizes[:6], sizes[-6:]
    assert max(each.num_objects for each in late) <= max(each.num_objects for each in early) + 200
    assert max(each.num_bytes for each in sizes) < 2_000_000
