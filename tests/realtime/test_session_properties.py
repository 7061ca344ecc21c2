"""Whatever comes in whatever order: every commit answered once and in order, text that only grows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sensorium.protocols.engine.messages import ItemId
from sensorium.protocols.errors import InternalError
from sensorium.protocols.realtime.codec import decode_client_event
from sensorium.protocols.realtime.events import InputAudioBufferAppend
from sensorium.protocols.realtime.lifecycle import SessionResume
from sensorium.protocols.shared.audio_format import samples_to_ms
from sensorium.realtime.effects import Transcribe
from sensorium.realtime.events import AudioRefused, DrainStarted, HypothesisReady
from support.dialogs import Dialog, make_transcript

WORDS = ("one", "two", "three", "東", "京", ".")
texts = st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join)

updates = st.fixed_dictionaries(
    {},
    optional={
        "turn_detection": st.one_of(
            st.none(),
            st.fixed_dictionaries(
                {"type": st.just("server_vad")},
                optional={
                    "silence_duration_ms": st.sampled_from([0, 64, 200, 500, 1500]),
                    "prefix_padding_ms": st.sampled_from([0, 300, 2000]),
                    "threshold": st.floats(0, 1),
                },
            ),
            st.just({"type": "semantic_vad"}),
        ),
        "transcription": st.sampled_from(
            [
                None,
                {"language": "de"},
                {"model": "none"},
                {"model": "other"},
                {"delay": "minimal"},
                {"languages": ["en", "de"]},
                {"keywords": ["Kiel"]},
                {"keyword_boost": 4},
                {"utterance_end_ms": 500},
                {"utterance_end_ms": 1000},
                {"utterance_end_ms": None},
                {"left_context_ms": 2_000},
                {"left_context_ms": 24_000},
                {"left_context_ms": 0},
            ]
        ),
        "format": st.sampled_from([None, {"type": "audio/pcmu"}, {"type": "audio/pcm", "rate": 1}]),
    },
)
garbage = st.one_of(
    st.text(max_size=30),
    st.dictionaries(st.text(max_size=8), st.none() | st.integers() | st.text(max_size=8), max_size=3).map(
        json.dumps
    ),
    st.sampled_from(
        [json.dumps({"type": name}) for name in ("response.create", "session.update", "nonsense")]
    ),
)


class SessionMachine(RuleBasedStateMachine):
    """A client and an engine that do anything they may."""

    def __init__(self) -> None:
        super().__init__()
        self.dialog = Dialog(
            force_turn_s=8.0,
            max_turn_s=20.0,
            max_backlog_ms=30_000,
            idle_s=60.0,
            max_finals_in_flight=2,
            max_session_s=500.0,
        )
        self.late: list[Transcribe] = []

    def is_open(self) -> bool:
        return self.dialog.closed is None

    def is_pending(self) -> bool:
        return self.is_open() and bool(self.dialog.pending)

    def is_admitted(self, num_bytes: int) -> bool:
        refused = self.dialog.session.admit(num_bytes)
        self.dialog.perform(refused or [])
        return refused is None

    def pick(self, data: st.DataObject) -> ItemId:
        item_id: ItemId = data.draw(st.sampled_from(sorted(self.dialog.pending)))
        self.late.append(self.dialog.pending[item_id])
        return item_id

    @rule(
        chunks=st.lists(
            st.tuples(st.integers(0, 9000), st.sampled_from([0.0, 0.4, 0.95]) | st.floats(0, 1)), max_size=6
        )
    )
    def append_audio(self, chunks: list[tuple[int, float]]) -> None:
        for num_samples, probability in chunks:
            if self.is_admitted(num_samples * 3):
                self.dialog.append_audio(num_samples, probability)

    @rule(ms=st.sampled_from([320, 960, 3000]))
    def speak(self, ms: int) -> None:
        if self.is_admitted(ms * 48):
            self.dialog.speak(ms)

    @rule(ms=st.sampled_from([224, 640, 1600]))
    def silence(self, ms: int) -> None:
        if self.is_admitted(ms * 48):
            self.dialog.silence(ms)

    @rule()
    def commit(self) -> None:
        num_before = sum(len(self.dialog.of(name)) for name in ("committed", "error"))
        self.dialog.commit()
        answers = sum(len(self.dialog.of(name)) for name in ("committed", "error")) - num_before
        assert answers == 1 or not self.is_open()

    @rule()
    def flush(self) -> None:
        num_errors = len(self.dialog.of("error"))
        self.dialog.client({"type": "input_audio_buffer.flush"})
        assert len(self.dialog.of("error")) == num_errors or not self.is_open()
        if self.is_open():
            flushed = self.dialog.of("input_audio_buffer.flushed")[-1]["item_id"]
            committed = [event["item_id"] for event in self.dialog.of("committed")]
            assert flushed is None or flushed == committed[-1]

    @rule()
    def clear(self) -> None:
        self.dialog.clear()

    @rule(audio_input=updates)
    def update(self, audio_input: dict[str, Any]) -> None:
        self.dialog.update(audio_input)

    @rule(frame=garbage)
    def send_garbage(self, frame: str) -> None:
        event = decode_client_event(frame)
        assert not isinstance(event, InputAudioBufferAppend | SessionResume)
        self.dialog.receive(event)

    @rule()
    def refuse_audio(self) -> None:
        self.dialog.receive(AudioRefused(InternalError("bad bytes")))

    @precondition(is_pending)
    @rule(data=st.data(), text=texts)
    def answer(self, data: st.DataObject, text: str) -> None:
        self.dialog.answer(text, item_id=self.pick(data))

    @precondition(is_pending)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        self.dialog.fail(item_id=self.pick(data))

    @precondition(lambda self: bool(self.late))
    @rule(data=st.data(), text=texts)
    def answer_late(self, data: st.DataObject, text: str) -> None:
        old = data.draw(st.sampled_from(self.late))
        if self.dialog.pending.get(old.item_id) != old:
            num_sent = len(self.dialog.sent)
            self.dialog.receive(
                HypothesisReady(
                    old.item_id, old.start_sample, old.end_sample, old.final, make_transcript(text)
                )
            )
            assert len(self.dialog.sent) == num_sent or not self.is_open()

    @rule(seconds=st.sampled_from([0.1, 5.0, 40.0]))
    def wait(self, seconds: float) -> None:
        self.dialog.wait(seconds)

    @precondition(lambda self: len(self.dialog.sent) > 40)
    @rule()
    def drain(self) -> None:
        self.dialog.receive(DrainStarted())

    @invariant()
    def items_are_answered_once_in_order(self) -> None:
        committed = [event["item_id"] for event in self.dialog.of("committed")]
        answered = [
            event["item_id"]
            for event in self.dialog.sent
            if event["type"].endswith(("transcription.completed", "transcription.failed"))
        ]
        assert len(set(committed)) == len(committed)
        assert answered == committed[: len(answered)]

    @invariant()
    def utterances_end_in_order(self) -> None:
        before = ("", -1)
        for event in self.dialog.of("input_audio_buffer.utterance_ended"):
            item_id, end_ms = event["item_id"], event["last_word_end_ms"]
            assert end_ms > before[1] or (end_ms == before[1] and item_id != before[0])
            assert end_ms < samples_to_ms(self.dialog.num_samples)
            before = item_id, end_ms

    @invariant()
    def speech_starts_and_stops_alternate_on_the_timeline(self) -> None:
        item_id, time, speaking = "", 0, False
        for event in self.dialog.sent:
            if event["type"] == "input_audio_buffer.speech_started":
                assert not speaking
                assert event["audio_start_ms"] >= time or event["item_id"] == item_id
                item_id, time, speaking = event["item_id"], event["audio_start_ms"], True
            elif event["type"] == "input_audio_buffer.speech_stopped":
                assert speaking
                assert event["item_id"] == item_id
                assert event["audio_end_ms"] >= time
                time, speaking = event["audio_end_ms"], False

    def teardown(self) -> None:
        """Let everything be answered: nothing may be left over."""
        dialog = self.dialog
        if self.is_open():
            dialog.silence(1000)
            if self.is_open():
                dialog.clear()
        while self.is_pending():
            dialog.answer("one two", item_id=next(iter(dialog.pending)))
        dialog.session.check()
        assert dialog.session.conversation.num_tracked == 0
        assert not dialog.pending
        answered = dialog.of("completed") + dialog.of("failed")
        assert len(answered) == len(dialog.of("committed"))
        num_corrected = 0
        for event in dialog.of("completed"):
            num_corrected += event["transcript"] != dialog.text(event["item_id"])
        assert num_corrected == dialog.session.conversation.num_corrected
        assert len({event["event_id"] for event in dialog.sent}) == len(dialog.sent)


TestSessionMachine = SessionMachine.TestCase
TestSessionMachine.settings = settings(
    max_examples=50, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.mark.parametrize("left_context_ms", [0, 24_000])
@pytest.mark.parametrize("detection", [True, False])
def test_a_long_session_keeps_no_state(detection: bool, left_context_ms: int) -> None:
    dialog = Dialog(detection=detection, max_session_s=1e6)
    dialog.update({"transcription": {"left_context_ms": left_context_ms}})
    for number in range(150):
        dialog.silence(300, "")
        dialog.speak(500, f"turn number {number}")
        dialog.silence(600, f"turn number {number}")
        if not detection:
            dialog.commit()
            dialog.silence(32, f"turn number {number}")
    assert dialog.session.conversation.num_tracked == 0
    assert len(dialog.of("completed")) == 150
    assert dialog.num_samples - dialog.forgotten < (3 + left_context_ms / 1000) * 16_000
