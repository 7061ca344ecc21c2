"""Six hours of captions in virtual time: no turn, nothing grows, words are in order and their times right.

The session's machine, its audio, its streams and the engine with its scheduler are real; what is fake is the
runner, whose words are the numbers that the sound says (`support/numbered_words.py`). Every few minutes
another request takes the stream's slot of states, so that it is fed again.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count

import msgspec
import pytest
import trio
from msgspec import structs
from sensorium.actors.live.audio_store import AudioStore
from sensorium.actors.live.captions import LiveCaptions, Outcome
from sensorium.actors.speech.model import LIVE_PARTIAL
from sensorium.actors.speech.streaming import feed
from sensorium.protocols.engine.messages import TransduceRequest
from sensorium.protocols.realtime.codec import decode_client_event
from sensorium.protocols.realtime.events import (
    ConversationItemInputAudioTranscriptionCompleted,
    ConversationItemInputAudioTranscriptionDelta,
    InputAudioBufferCommitted,
    ServerEvent,
    SessionUpdate,
)
from sensorium.realtime.config import RealtimeModel, SessionConfig
from sensorium.realtime.effects import (
    ConfigureTranscription,
    ContinueStream,
    Effect,
    EndStream,
    ForgetBefore,
    Send,
    Transcribe,
)
from sensorium.realtime.events import AudioAppended, SessionEvent
from sensorium.realtime.session import Session
from support.fake_engine import fed
from support.fake_transducer import chunk_of
from support.footprint import Footprint, footprint
from support.numbered_words import DELAYS, ROW, NumberSpeech, sound_of
from trio.testing import MockClock

HOURS = 6
RATE = 16_000
ROWS = 112
"""That come together, nine seconds."""
SILENCE_MS, LONGEST_MS = 800, 10_000
UPDATE = {
    "turn_detection": {"type": "captions", "silence_duration_ms": SILENCE_MS, "max_segment_ms": LONGEST_MS},
    "transcription": {"timestamp_granularities": ["word"], "delay": "medium"},
}


class Captions:
    """A session without bytes and sockets: the machine, what carries its effects out, and what it says."""

    def __init__(self, speech: NumberSpeech, nursery: trio.Nursery) -> None:
        numbers = count()
        models = (RealtimeModel("numbers", delays=DELAYS, takes_hints=False),)
        config = SessionConfig(model="numbers", models=models)
        self.machine = Session(config, lambda prefix: f"{prefix}_{next(numbers)}")
        self.store = AudioStore()
        self.live = LiveCaptions({"numbers": speech.speech}, "numbers", self._report, session_id="session")
        self._nursery = nursery
        self.counts: Counter[type] = Counter()
        self.words: list[tuple[int, int]] = []
        """Numbers, and milliseconds of the session at which they were said."""
        self.shown = ""
        """Of the item that is not completed."""
        self._starts: dict[str, int] = {}
        self.longest_ms = 0
        self._perform(self.machine.open(now=trio.current_time(), created=0))

    def receive(self, event: SessionEvent) -> None:
        """Report something to the session."""
        self._perform(self.machine.receive(event, now=trio.current_time()))
        self.machine.check()

    def append(self, numbers: Sequence[int]) -> None:
        """What is said in the next rows."""
        self.store.append((sound_of(numbers) / 32_768).astype("f4"))
        self.receive(AudioAppended(len(numbers) * ROW))

    async def _report(self, outcome: Outcome) -> None:
        self.receive(outcome)

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(event):
                    self._read(event)
                case ConfigureTranscription(model, options, delay_ms):
                    self.live.configure(model, options, delay_ms)
                case ContinueStream():
                    self.live.start(effect, self._nursery, self.store.copy)
                case EndStream(stream_id):
                    self.live.end(stream_id)
                case ForgetBefore(sample):
                    self.store.forget_before(sample)
                case Transcribe():
                    raise AssertionError("there are no turns")
                case _:
                    pass

    def _read(self, event: ServerEvent) -> None:
        self.counts[type(event)] += 1
        match event:
            case ConversationItemInputAudioTranscriptionDelta():
                self.shown += event.delta
            case InputAudioBufferCommitted(audio_start_ms=int(start_ms), audio_end_ms=int(end_ms)):
                self._starts[event.item_id] = start_ms
                self.longest_ms = max(self.longest_ms, end_ms - start_ms)
            case ConversationItemInputAudioTranscriptionCompleted():
                assert event.transcript == self.shown
                self.shown, start_ms = "", self._starts.pop(event.item_id)
                assert isinstance(event.words, list)
                assert " ".join(word.word for word in event.words) == event.transcript
                self.words += [(int(word.word), start_ms + round(1_000 * word.start)) for word in event.words]
            case _:
                pass


def rows() -> Iterator[int]:
    """What is said in each row, for ever: sentences, pauses, and speech without a pause."""
    rng, numbers = random.Random(7), count(1)
    while True:
        for _ in range(rng.choice((1, 5, 12, 30, 100))):
            yield next(numbers) % 999_000
            yield from (0,) * rng.choice((2, 3, 8))
        yield from (0,) * rng.choice((10, 20, 60, 400))


async def take_slot(speech: NumberSpeech, request: TransduceRequest) -> None:
    """Another request runs for a moment."""
    async with speech.engine.placed() as place, place.run(request) as run:
        await run.feed(chunk_of((0.0, 0.0), is_last=True))
        await run.outcome()


async def test_six_hours_of_captions(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "_INLINE_SAMPLES", 1 << 20)  # time would go on while a thread works
    speech, said = NumberSpeech(num_slots=1), rows()
    spoken: list[tuple[int, int]] = []
    sizes: list[Footprint] = []
    num_rows = num_lost = num_completed = 0
    async with trio.open_nursery() as nursery:
        await nursery.start(speech.engine.run)
        captions = Captions(speech, nursery)
        body = {"type": "transcription", "audio": {"input": UPDATE}}
        update = decode_client_event(
            msgspec.json.encode({"type": "session.update", "session": body}).decode()
        )
        assert isinstance(update, SessionUpdate)
        captions.receive(update)
        for turn in count(1):
            numbers = [next(said) for _ in range(ROWS)]
            spoken += [(number, 80 * (num_rows + at)) for at, number in enumerate(numbers) if number]
            num_rows += ROWS
            captions.append(numbers)
            await trio.sleep(ROWS * ROW / RATE)
            if turn % 35 == 0:  # every 314 s
                await take_slot(speech, structs.replace(fed(f"other-{turn}"), lane=LIVE_PARTIAL))
                num_lost += 1
            if turn % 115 == 0:  # every 17 minutes
                num_held = spoken.index(captions.words[-1]) + 1
                assert captions.words == spoken[:num_held]
                assert len(spoken) - num_held < 100, "what is not over yet"
                del spoken[:num_held]
                captions.words.clear()
                held = (captions.machine, captions.live, captions.store)
                sizes.append(footprint(held, leave_out=(captions, speech.engine, nursery)))
                assert captions.live.num_tracked == 1
                if num_rows * ROW > HOURS * 3600 * RATE:
                    break
        num_completed = captions.counts[ConversationItemInputAudioTranscriptionCompleted]
        assert num_completed == captions.counts[InputAudioBufferCommitted] > 1_000
        assert captions.longest_ms < LONGEST_MS + SILENCE_MS + 1_000
        assert speech.engine.statistics().num_state_evictions >= num_lost
        nursery.cancel_scope.cancel()
    # Fed again was at most the longest segment each time; all else was computed once.
    assert num_rows < speech.runner.num_rows <= num_rows + num_lost * (LONGEST_MS + 3_000) // 80
    early, late = sizes[:6], sizes[-6:]
    assert max(each.num_objects for each in late) <= max(each.num_objects for each in early) + 200
    assert max(each.num_bytes for each in sizes) < 3_000_000
