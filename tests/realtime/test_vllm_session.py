"""The flat dialect's laws: deltas join to `done`, every final commit is answered once, nothing is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.protocols.errors import InternalError
from sensorium.protocols.realtime.codec import ClientDecoder, encode_event
from sensorium.protocols.realtime.events import InputAudioBufferAppend
from sensorium.protocols.realtime.lifecycle import SessionResume
from sensorium.realtime.effects import Effect, Send
from sensorium.realtime.events import DrainStarted, SessionEvent
from sensorium.realtime.vllm_session import MAX_WAITING, FlatSession
from support.dialogs import Dialog

Event = dict[str, Any]


class FlatDialog(Dialog):
    """A `Dialog` whose client speaks the flat dialect; what it reads is in `received`."""

    def __init__(self, *, model: str | None = "small", **changes: Any) -> None:  # noqa: ANN401
        self.received: list[Event] = []
        self.finals: list[int] = []
        """How much had been told when each final commit was sent."""
        self.decoder = ClientDecoder()
        self.flat: FlatSession | None = None
        super().__init__(**changes)
        if model is not None:
            self.frame(type="session.update", model=model)
            self.received.clear()

    def _flat(self) -> FlatSession:
        if self.flat is None:
            self.flat = FlatSession(self.session)
        return self.flat

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                events = (effect.event,) if effect.instead is None else effect.instead
                self.received += [json.loads(encode_event(event)) for event in events]
        super().perform(effects)
        self._flat().check()

    def receive(self, event: SessionEvent) -> None:
        self.perform(self._flat().receive(event, now=self.now))

    def frame(self, **fields: object) -> list[Event]:
        """Send a frame; what came back at once."""
        event = self.decoder.decode(json.dumps(fields))
        assert not isinstance(event, InputAudioBufferAppend | SessionResume)
        before = len(self.received)
        self.perform(self._flat().receive(event, now=self.now))
        return self.received[before:]

    def start(self) -> list[Event]:
        """What clients of this dialect send before the audio."""
        return self.frame(type="input_audio_buffer.commit")

    def finish(self) -> list[Event]:
        """End the utterance."""
        self.finals.append(len(self.received))
        return self.frame(type="input_audio_buffer.commit", final=True)

    def joined_deltas(self) -> str:
        """All deltas joined."""
        return "".join(event["delta"] for event in self.received_of("transcription.delta"))

    def received_of(self, kind: str) -> list[Event]:
        return [event for event in self.received if event["type"] == kind]

    def answers(self) -> list[str]:
        """What final commits were answered with: texts, or codes of errors."""
        return [
            event["text"] if event["type"] == "transcription.done" else event["code"]
            for event in self.received
            if event["type"] != "transcription.delta"
        ]

    def check_laws(self) -> None:
        """No empty delta; each final commit has one answer; each `done` is the deltas since the last one."""
        text, waiting = "", 0
        for index, event in enumerate(self.received):
            waiting += self.finals.count(index)
            match event["type"]:
                case "transcription.delta":
                    assert event["delta"]
                    text += event["delta"]
                case "transcription.done":
                    assert waiting, "an answer to nothing"
                    assert event["text"] == text
                    text, waiting = "", waiting - 1
                case "error" if waiting:
                    text, waiting = "", waiting - 1
                case _:
                    pass
        assert waiting + self.finals.count(len(self.received)) == 0


def test_turns_of_an_utterance_are_joined() -> None:
    dialog = FlatDialog()
    assert dialog.start() == []
    dialog.speak(1000, reply="Set the lights.")
    dialog.silence(1000, reply="Set the lights.")
    assert dialog.joined_deltas() == "Set the lights."
    dialog.speak(1000, reply="Thank you.")
    dialog.finish()
    assert dialog.answers() == []
    dialog.answer("Thank you.")
    done = dialog.received[-1]
    assert done["text"] == "Set the lights. Thank you." == dialog.joined_deltas()
    assert done["usage"] == {
        "prompt_tokens": 14,
        "completion_tokens": 6,
        "total_tokens": 20,
        "prompt_tokens_details": None,
        "completion_tokens_details": None,
    }


def test_audio_before_the_answer_belongs_to_the_next_utterance() -> None:
    dialog = FlatDialog()
    dialog.speak(800)  # nobody has asked to start yet
    dialog.start()
    dialog.speak(800)
    dialog.finish()
    dialog.speak(800)  # another server would drop this
    dialog.finish()
    first, second = (event["item_id"] for event in dialog.of("committed"))
    while second in dialog.pending:
        dialog.answer("two", item_id=second)
    assert dialog.received == []
    while first in dialog.pending:
        dialog.answer("one", item_id=first)
    assert dialog.answers() == ["one", "two"]
    dialog.check_laws()


def test_audio_before_the_first_update_belongs_to_the_first_utterance() -> None:
    dialog = FlatDialog(model=None)
    dialog.speak(1000)
    dialog.silence(800)  # nothing has told the dialect yet; the turn is over, and not answered
    dialog.frame(type="session.update", model="small")
    dialog.received.clear()
    dialog.speak(1000)
    dialog.finish()
    while dialog.pending:
        dialog.answer("Late." if len(dialog.pending) == 1 else "Early.", item_id=next(iter(dialog.pending)))
    assert dialog.answers() == ["Early. Late."]
    dialog.check_laws()


@pytest.mark.parametrize("num_samples", [0, 1, 500, 1500, 4000])
def test_too_little_audio_is_answered_with_an_empty_text(num_samples: int) -> None:
    dialog = FlatDialog()
    dialog.start()
    if num_samples:
        dialog.append_audio(num_samples, 0.02)
    dialog.finish()
    dialog.finish()
    assert dialog.answers() == ["", ""]
    dialog.speak(1000, reply="Hello.")
    dialog.finish()
    dialog.answer("Hello.")
    assert dialog.answers() == ["", "", "Hello."]


def test_waiting_commits_are_bounded() -> None:
    dialog = FlatDialog()
    dialog.speak(1000)
    for _ in range(MAX_WAITING):
        assert dialog.finish() == []
    (refused,) = dialog.finish()
    assert refused["code"] == "too_many_commits"
    while dialog.pending:
        dialog.answer("Hello.")
    assert len(dialog.received_of("transcription.done")) == MAX_WAITING


def test_a_failure_before_the_commit_is_an_error_of_its_own() -> None:
    dialog = FlatDialog()
    dialog.speak(1000)
    dialog.answer("One")
    dialog.silence(300)
    dialog.fail(InternalError("broken"))
    dialog.silence(700)
    dialog.fail(InternalError("broken"))
    assert dialog.received == [{"type": "error", "error": "broken", "code": "processing_error"}]
    dialog.speak(1000, reply="Two")
    dialog.finish()
    dialog.answer("Two.")
    assert dialog.received[-1]["text"] == "Two."


def test_a_failure_after_the_commit_is_its_answer() -> None:
    dialog = FlatDialog()
    for _ in range(2):
        dialog.speak(200)
        dialog.silence(600)
    dialog.speak(200)
    dialog.finish()
    first, second, third = list(dialog.pending)
    dialog.answer("One.", item_id=first)
    dialog.fail(item_id=second)
    dialog.answer("Three.", item_id=third)
    assert dialog.answers() == ["processing_error"]
    assert dialog.joined_deltas() == "One."
    dialog.speak(200)
    dialog.finish()
    dialog.answer("Four.")
    assert dialog.answers() == ["processing_error", "Four."]


def test_a_contradicted_text_goes_on_behind_the_contradiction() -> None:
    dialog = FlatDialog()
    dialog.speak(1200, reply="set the light to ninety")
    assert dialog.joined_deltas().startswith("set the light")
    dialog.finish()
    dialog.answer("Set the lights to ninety percent.")
    assert dialog.received[-1]["text"].endswith(" percent.")
    assert "ninety" in dialog.received[-1]["text"]
    dialog.check_laws()


@pytest.mark.parametrize(
    ("first", "second", "joined"),
    [
        ("One.", "Two.", "One. Two."),
        ("你好。", "再见。", "你好。再见。"),
        ("안녕.", "네.", "안녕. 네."),
        ("안녕", "네", "안녕 네"),
        ("你好。", "Hello.", "你好。 Hello."),
    ],
)
def test_turns_are_joined_as_their_scripts_are_written(first: str, second: str, joined: str) -> None:
    dialog = FlatDialog()
    for text in (first, second):
        dialog.speak(1000, reply=text)
        dialog.silence(1000, reply=text)
    dialog.finish()
    assert dialog.received[-1]["text"] == joined
    dialog.check_laws()


def test_a_commit_needs_a_model() -> None:
    dialog = FlatDialog(model=None)
    (refused,) = dialog.frame(type="input_audio_buffer.commit", final=True)
    assert refused["code"] == "model_not_validated"
    (unknown,) = dialog.frame(type="session.update", model="nonexistent")
    assert unknown["code"] == "model_not_found"
    assert "nonexistent" in unknown["error"]
    (refused,) = dialog.start()
    assert refused["code"] == "model_not_validated"
    (updated,) = dialog.frame(type="session.update", model="other")
    assert updated["session"]["audio"]["input"]["transcription"]["model"] == "other"
    assert updated["session"]["audio"]["input"]["format"]["rate"] == 16_000
    (unknown,) = dialog.frame(type="session.update", model="nonexistent")
    assert unknown["type"] == "error"
    assert dialog.start() == []
    assert dialog.finish()[-1]["type"] == "transcription.done"


def test_an_empty_model_is_the_default_one() -> None:
    dialog = FlatDialog(model=None)
    (updated,) = dialog.frame(type="session.update", model="", language="de", prompt="Bach")
    transcription = updated["session"]["audio"]["input"]["transcription"]
    assert (transcription["model"], transcription["language"], transcription["prompt"]) == (
        "small",
        "de",
        "Bach",
    )


def test_another_language_than_the_models_is_refused() -> None:
    dialog = FlatDialog()
    (refused,) = dialog.frame(type="session.update", model="small", language="fr")
    assert refused["code"] == "unsupported_language"
    assert isinstance(refused["error"], str)


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ({"type": "session.update"}, "invalid_event"),
        ({"type": "session.update", "session": {}}, "invalid_event"),
        ({"type": "session.update", "model": "small", "include": ["x"]}, "invalid_event"),
        ({"type": "input_audio_buffer.commit", "final": "yes"}, "invalid_event"),
        ({"type": "input_audio_buffer.append", "audio": "?"}, "invalid_audio"),
        ({"type": "response.create"}, "unknown_event"),
        ({}, "unknown_event"),
    ],
)
def test_errors_are_flat(frame: dict[str, Any], code: str) -> None:
    dialog = FlatDialog()
    (refused,) = dialog.frame(**frame)
    assert refused["type"] == "error"
    assert refused["code"] == code
    assert isinstance(refused["error"], str)
    assert set(refused) == {"type", "error", "code"}


@pytest.mark.parametrize(
    "frame",
    [
        {"type": "session.update", "model": 5},
        {"type": "session.update", "model": "small", "language": 5},
        {"type": "session.update", "model": "small", "include": ["x"]},
        {"type": "input_audio_buffer.commit", "final": None},
    ],
)
def test_a_first_frame_that_is_refused_is_refused_flat(frame: dict[str, Any]) -> None:
    dialog = FlatDialog(model=None)
    (refused,) = dialog.frame(**frame)
    assert refused["code"] == "invalid_event"
    assert isinstance(refused["error"], str)
    (updated,) = dialog.frame(type="session.update", model="small")
    assert updated["session"]["audio"]["input"]["format"]["rate"] == 16_000


def test_the_other_dialect_passes_through() -> None:
    dialog = FlatDialog(model=None)
    dialog.frame(type="session.update", session={"type": "transcription"})
    dialog.speak(1000, reply="Hello.")
    dialog.commit()
    dialog.answer("Hello.")
    assert dialog.received == dialog.sent
    dialog.frame(type="session.update", model="small")
    assert dialog.received == dialog.sent


def test_the_end_of_the_session_is_said_flat() -> None:
    dialog = FlatDialog()
    dialog.speak(1000)
    dialog.answer("Half a")
    dialog.receive(DrainStarted())
    dialog.silence(600)
    while dialog.pending:
        dialog.answer("Half a sentence.")
    assert dialog.joined_deltas() == "Half a sentence."
    assert dialog.received[-1]["type"] == "error"
    assert dialog.received[-1]["code"] == "server_draining"
    assert dialog.close_code() == 1012


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ["start", "finish", "finish", "speak", "silence", "noise", "answer", "answer", "fail"]
        ),
        st.integers(0, 7),
    ),
    max_size=40,
)
TEXTS = ["One.", "One. Two", "Two three.", "", "你好。", "  x", "one two four", "One, two."]


@settings(deadline=None)
@given(actions=ACTIONS)
def test_every_final_commit_is_answered_once(actions: list[tuple[str, int]]) -> None:
    dialog = FlatDialog()
    for action, choice in [*actions, ("finish", 0)]:
        match action:
            case "start":
                dialog.start()
            case "finish":
                dialog.finish()
            case "speak":
                dialog.speak(200 * (1 + choice))
            case "silence":
                dialog.silence(200 * (1 + choice))
            case "noise":
                dialog.append_audio(1 + 300 * choice, 0.5)
            case _ if dialog.pending:
                item_id = list(dialog.pending)[choice % len(dialog.pending)]
                if action == "fail":
                    dialog.fail(item_id=item_id)
                else:
                    dialog.answer(TEXTS[choice], item_id=item_id)
            case _:
                pass
    while dialog.pending:
        dialog.answer("Rest.", item_id=next(iter(dialog.pending)))
    dialog.check_laws()
