"""A scripted conversation with the pure session machine: audio by the millisecond, answers when told.

The dialog plays client and actor at once: wire frames go through the codec, `Transcribe` effects wait in
`pending` until the script answers them, and everything sent is kept in `sent`. Every effect is checked on the
way (numbering, one question per item, nothing asked about forgotten audio, transcripts that are the final
answer about exactly the committed audio).
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import msgspec
from sensorium.protocols.engine.messages import ItemId
from sensorium.protocols.errors import InternalError, SensoriumError
from sensorium.protocols.realtime.codec import decode_client_event, encode_event
from sensorium.protocols.realtime.events import InputAudioBufferAppend
from sensorium.protocols.realtime.lifecycle import SessionResume
from sensorium.protocols.shared.audio_format import ms_to_samples, samples_to_ms
from sensorium.protocols.transcription.transcript import Transcript
from sensorium.realtime.effects import (
    Close,
    Effect,
    FindCut,
    ForgetBefore,
    ForgetItem,
    Send,
    Transcribe,
)
from sensorium.realtime.events import (
    AudioAppended,
    CutFound,
    HypothesisFailed,
    HypothesisReady,
    SessionEvent,
    SpeechScored,
)
from sensorium.realtime.session import RealtimeModel, Session, SessionConfig
from sensorium.realtime.turns.detector import FRAME_SAMPLES

COMMITTED = ["committed", "added", "done"]
"""What follows every commit that is not refused."""

SHORT_NAMES = {
    "conversation.item.input_audio_transcription.delta": "delta",
    "conversation.item.input_audio_transcription.completed": "completed",
    "conversation.item.input_audio_transcription.failed": "failed",
    "conversation.item.input_audio_transcription.segment": "segment",
    "conversation.item.added": "added",
    "conversation.item.done": "done",
    "input_audio_buffer.committed": "committed",
    "input_audio_buffer.cleared": "cleared",
    "input_audio_buffer.speech_started": "speech_started",
    "input_audio_buffer.speech_stopped": "speech_stopped",
    "input_audio_buffer.backpressure": "backpressure",
}


def config(**changes: object) -> SessionConfig:
    """Two models; the first speaks three languages, the second any."""
    models = (RealtimeModel("small", ("en", "de", "es"), supports_left_context=True), RealtimeModel("other"))
    return msgspec.convert({"model": "small", "models": models} | changes, SessionConfig)


def make_transcript(text: str, *, language: str = "en") -> Transcript:
    """A hypothesis with nothing but text."""
    return Transcript(
        text, language, duration=1.0, num_input_tokens=7, num_output_tokens=3, num_audio_tokens=6
    )


class Dialog:
    """One session and its history."""

    def __init__(self, *, detection: bool = True, **changes: object) -> None:
        self._ids: Counter[str] = Counter()
        self.num_free = 8
        """Channels that there is room for."""
        self.session = Session(config(**changes), self._new_id, has_room=lambda num: num <= self.num_free)
        self.now = 0.0
        self.sent: list[dict[str, Any]] = []
        self.effects: list[Effect] = []
        self.pending: dict[ItemId, Transcribe] = {}
        self.answered: dict[ItemId, Transcribe] = {}
        """The newest question of each item that got an answer."""
        self._forgotten: Counter[int] = Counter()
        """By channel."""
        self._cleared = 0
        self.num_samples = 0
        self._scored = 0
        self._scores: list[tuple[float, ...]] = []
        """The voice activity of all frames, of each channel."""
        self._seq = 0
        self._num_read = 0
        self.closed: Close | None = None
        self.perform(self.session.open(now=self.now, created=1_700_000_000))
        if not detection:
            self.update({"turn_detection": None})
        self.read()

    def _new_id(self, prefix: str) -> str:
        self._ids[prefix] += 1
        return f"{prefix}_{self._ids[prefix]}"

    def perform(self, effects: list[Effect]) -> None:
        """Play the actor."""
        for effect in effects:
            assert self.closed is None, f"{effect} after Close"
            self.effects.append(effect)
            match effect:
                case Send():
                    data = json.loads(encode_event(effect.event))
                    self._seq += 1
                    assert data["server_event_seq"] == self._seq
                    assert data["event_id"] == f"event_{self._seq}"
                    self.sent.append(data)
                    if data["type"].endswith("transcription.completed"):
                        self._check_completed(data)
                case Transcribe():
                    before = self.pending.get(effect.item_id)
                    assert before is None or (effect.final and not before.final)
                    starts = (*effect.before, effect.start_sample)
                    assert list(starts) == sorted(set(starts))
                    assert self._forgotten[effect.channel] <= starts[0]
                    assert before is None or effect.before == before.before
                    assert (
                        not effect.before or effect.start_sample < self._cleared or starts[0] >= self._cleared
                    )
                    assert effect.start_sample < effect.end_sample <= self.num_samples
                    self.pending[effect.item_id] = effect
                case ForgetItem():
                    self.pending.pop(effect.item_id, None)
                case ForgetBefore():
                    assert effect.sample > self._forgotten[effect.channel]
                    self._forgotten[effect.channel] = effect.sample
                case FindCut():
                    self.receive(CutFound(self._best_cut(effect), effect.channel))
                case Close():
                    self.closed = effect
                case _:
                    pass
        self.session.check()

    @property
    def forgotten(self) -> int:
        """Where the audio begins that a session of one channel may still ask for."""
        return self._forgotten[0]

    def _best_cut(self, cut: FindCut) -> int:
        """The middle of the frame that is least like speech, the latest of several."""
        assert self._forgotten[cut.channel] <= cut.after < cut.before <= self._scored
        frames = range(-(-cut.after // FRAME_SAMPLES), cut.before // FRAME_SAMPLES)
        least = min(reversed(frames), key=lambda frame: self._scores[frame][cut.channel])
        return least * FRAME_SAMPLES + FRAME_SAMPLES // 2

    def _check_completed(self, completed: dict[str, Any]) -> None:
        """The transcript is the final answer about exactly the committed audio."""
        question = self.answered.get(ItemId(completed["item_id"]))
        if question is None:
            assert completed["transcript"] == ""
            return
        (committed,) = (event for event in self.of("committed") if event["item_id"] == question.item_id)
        assert question.final
        assert samples_to_ms(question.start_sample) == committed["audio_start_ms"]
        assert samples_to_ms(question.end_sample) == committed["audio_end_ms"]

    def close_code(self) -> int | None:
        """The code of the `Close`, None while the session is open."""
        return None if self.closed is None else self.closed.code

    def receive(self, event: SessionEvent) -> None:
        """Report something to the session."""
        self.perform(self.session.receive(event, now=self.now))

    def client(self, frame: dict[str, Any] | str) -> None:
        """Send a wire frame (anything but an append)."""
        event = decode_client_event(frame if isinstance(frame, str) else json.dumps(frame))
        assert not isinstance(event, InputAudioBufferAppend | SessionResume)
        self.receive(event)

    def update(self, audio_input: dict[str, Any] | None = None, **session: object) -> None:
        """Send a session.update."""
        body: dict[str, Any] = {"type": "transcription", **session}
        if audio_input is not None:
            body["audio"] = {"input": audio_input}
        self.client({"type": "session.update", "session": body})

    def commit(self, **fields: object) -> None:
        """Send a commit."""
        self.client({"type": "input_audio_buffer.commit", **fields})

    def clear(self) -> None:
        """Send a clear."""
        self._cleared = self.num_samples
        self.client({"type": "input_audio_buffer.clear"})

    def append_audio(self, num_samples: int, *probabilities: float) -> None:
        """Append samples at once to every channel, then score the frames they complete."""
        self.now += num_samples / 16_000
        self.num_samples += num_samples
        for channel, _ in enumerate(probabilities):
            self.receive(AudioAppended(num_samples, channel))
        while self._scored + FRAME_SAMPLES <= self.num_samples:
            self._scored += FRAME_SAMPLES
            self._scores.append(probabilities)
            for channel, probability in enumerate(probabilities):
                self.receive(SpeechScored(self._scored, probability, channel))

    def speak(self, ms: float, reply: str | None = None) -> None:
        """Speech in real-time chunks of one frame; questions are answered with `reply`, if given."""
        self._stream(ms, 0.95, reply=reply)

    def silence(self, ms: float, reply: str | None = None) -> None:
        """Silence in real-time chunks of one frame; questions are answered with `reply`, if given."""
        self._stream(ms, 0.02, reply=reply)

    def together(self, ms: float, *speaking: bool, reply: str | None = None) -> None:
        """Who speaks on which channel."""
        self._stream(ms, *(0.95 if speaks else 0.02 for speaks in speaking), reply=reply)

    def _stream(self, ms: float, *probabilities: float, reply: str | None) -> None:
        remaining = ms_to_samples(ms)
        while remaining > 0:
            chunk = min(FRAME_SAMPLES, remaining)
            self.append_audio(chunk, *probabilities)
            remaining -= chunk
            while reply is not None and self.pending:
                self.answer(reply, item_id=next(iter(self.pending)))

    def question(self) -> Transcribe:
        """The only question in flight."""
        (question,) = self.pending.values()
        return question

    def answer(self, text: str | Transcript, *, item_id: str | None = None) -> Transcribe:
        """Answer the question in flight (of `item_id`, if there are several)."""
        question = self.question() if item_id is None else self.pending[ItemId(item_id)]
        self.answered[question.item_id] = self.pending.pop(question.item_id)
        transcript = make_transcript(text) if isinstance(text, str) else text
        self.receive(HypothesisReady(*_key(question), transcript))
        return question

    def fail(self, error: SensoriumError | None = None, *, item_id: str | None = None) -> Transcribe:
        """Let the question in flight fail."""
        question = self.question() if item_id is None else self.pending[ItemId(item_id)]
        del self.pending[question.item_id]
        self.receive(HypothesisFailed(*_key(question), error or InternalError("broken")))
        return question

    def wait(self, seconds: float) -> None:
        """Let time pass; the deadline is called when it is due."""
        self.now += seconds
        if self.now >= self.session.deadline:
            self.perform(self.session.on_deadline(now=self.now))

    def read(self) -> list[dict[str, Any]]:
        """What was sent since the last read."""
        new, self._num_read = self.sent[self._num_read :], len(self.sent)
        return new

    def names(self) -> list[str]:
        """Short names of what was sent since the last read."""
        return [SHORT_NAMES.get(event["type"], event["type"]) for event in self.read()]

    def of(self, name: str) -> list[dict[str, Any]]:
        """All events of a short name."""
        return [event for event in self.sent if SHORT_NAMES.get(event["type"], event["type"]) == name]

    def text(self, item_id: str) -> str:
        """The item's deltas, joined."""
        return "".join(event["delta"] for event in self.of("delta") if event["item_id"] == item_id)


def _key(question: Transcribe) -> tuple[ItemId, int, int, bool]:
    return question.item_id, question.start_sample, question.end_sample, question.final
