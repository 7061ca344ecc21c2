"""Sessions that hear several channels apart: whose turn is whose, what commits do, what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.protocols.realtime.conversation_session import DialogueAudioPatch, DialoguePatch
from sensorium.protocols.realtime.events import SessionUpdate
from sensorium.protocols.realtime.session import FormatPatch, InputPatch
from sensorium.protocols.realtime.vllm_events import FlatUpdate
from sensorium.realtime.dialogue.config import DialogueConfig
from sensorium.realtime.effects import ConfigureAudio, ResetVoiceActivity
from sensorium.realtime.vllm_session import FlatSession
from support.dialogs import Dialog

STEREO = {"format": {"type": "audio/pcm", "rate": 16_000, "channels": 2}, "multichannel": True}


def stereo(*, detection: bool = True, **changes: object) -> Dialog:
    dialog = Dialog(detection=detection, **changes)
    dialog.update(STEREO)
    dialog.read()
    return dialog


def refusal(dialog: Dialog) -> tuple[Any, Any]:
    (event,) = [event for event in dialog.read() if event["type"] != "session.updated"]
    return event["error"]["code"], event["error"]["param"]


def test_each_channel_has_its_own_turns_and_every_event_says_which() -> None:
    dialog = stereo()
    dialog.together(1000, True, False, reply="hello")
    dialog.together(1000, True, True, reply="hello")
    dialog.together(1500, False, True, reply="both")
    dialog.together(1500, False, False, reply="end")
    sent = [event for event in dialog.sent if not event["type"].startswith("session.")]
    assert {event["channel"] for event in sent} == {0, 1}
    first, second = ([event for event in sent if event["channel"] == channel] for channel in (0, 1))
    for events in (first, second):
        kinds = [event["type"].rpartition(".")[2] for event in events]
        assert [kinds.count(kind) for kind in ("speech_started", "speech_stopped", "completed")] == [1, 1, 1]
    starts = [events[0]["audio_start_ms"] for events in (first, second)]
    assert starts[0] < 100 < 600 < starts[1] < 1100, "one timeline"
    assert dialog.text(first[0]["item_id"]) != "" != dialog.text(second[0]["item_id"])


def test_one_channel_says_nothing_of_channels() -> None:
    dialog = Dialog()
    dialog.speak(500, "x")
    dialog.silence(1000, "x")
    assert dialog.of("completed")
    assert not any("channel" in event for event in dialog.sent)
    assert "multichannel" not in dialog.sent[0]["session"]["audio"]["input"]


def test_a_commit_ends_every_turn_and_is_refused_only_where_none_can_end() -> None:
    dialog = stereo(detection=False)
    dialog.commit()
    assert refusal(dialog) == ("input_audio_buffer_commit_empty", None)
    dialog.together(500, True, False, reply="x")
    dialog.commit()
    for item in list(dialog.pending):
        dialog.answer("said", item_id=item)
    committed = dialog.of("committed")
    assert [event["channel"] for event in committed] == [0, 1]
    assert [event["previous_item_id"] for event in committed] == [None, None], "a list for each channel"
    assert {event["channel"] for event in dialog.of("completed")} == {0, 1}


def test_a_flush_answers_for_each_channel_and_a_clear_once() -> None:
    dialog = stereo()
    dialog.together(500, False, True, reply="x")
    dialog.client({"type": "input_audio_buffer.flush"})
    flushed = [event for event in dialog.read() if event["type"].endswith("flushed")]
    assert [(event["channel"], event["item_id"] is None) for event in flushed] == [(0, True), (1, False)]
    dialog.together(500, True, True, reply="x")
    dialog.clear()
    assert dialog.names().count("cleared") == 1
    reset = [effect.channel for effect in dialog.effects if isinstance(effect, ResetVoiceActivity)]
    assert reset == [0, 1]


def test_the_number_of_channels_may_change_until_audio_comes() -> None:
    dialog = stereo()
    dialog.update({"format": {"type": "audio/pcm", "channels": 3}})
    configured = [effect for effect in dialog.effects if isinstance(effect, ConfigureAudio)]
    assert [effect.num_channels for effect in configured] == [1, 2, 3]
    shown = dialog.read()[-1]["session"]["audio"]["input"]
    assert (shown["format"]["channels"], shown["multichannel"]) == (3, True)
    assert dialog.session.admit(6) is None
    dialog.update({"multichannel": None})
    assert refusal(dialog) == ("channels_are_fixed", "session.audio.input.multichannel")
    dialog.update({"format": {"type": "audio/pcmu", "channels": 3}})
    assert dialog.names() == ["session.updated"], "another encoding of as many"


def test_each_channel_takes_a_place() -> None:
    dialog = Dialog()
    dialog.num_free = 1
    dialog.update({"format": {"type": "audio/pcm", "channels": 3}, "multichannel": True})
    assert refusal(dialog) == ("too_many_sessions", "session.audio.input.multichannel")
    dialog.update(STEREO)
    assert dialog.names() == ["session.updated"]
    dialog.num_free = 0
    dialog.update({"multichannel": False})
    assert dialog.names() == ["session.updated"], "fewer may always be"


@pytest.mark.parametrize(
    ("patch", "param"),
    [
        ({"format": {"type": "audio/pcm", "channels": 9}}, "session.audio.input.format.channels"),
        ({"format": {"type": "audio/pcm", "channels": 0}}, "session.audio.input.format.channels"),
        ({"format": {"type": "audio/webm"}, "multichannel": True}, "session.audio.input.format.channels"),
        ({"multichannel": "yes"}, "session.audio.input.multichannel"),
    ],
)
def test_what_is_no_number_of_channels(patch: dict[str, Any], param: str) -> None:
    dialog = Dialog()
    dialog.update(patch)
    code, named = refusal(dialog)
    assert (code, named) == ("invalid_value", param)


def test_a_session_that_answers_hears_one_channel() -> None:
    dialog = Dialog(dialogue=DialogueConfig(model="m"))
    patch = InputPatch(format=FormatPatch("audio/pcm", channels=2), multichannel=True)
    dialog.receive(SessionUpdate(DialoguePatch(audio=DialogueAudioPatch(patch))))
    assert refusal(dialog) == ("unsupported_parameter", "session.audio.input.multichannel")
    patch = msgspec.structs.replace(patch, multichannel=False)
    dialog.receive(SessionUpdate(DialoguePatch(audio=DialogueAudioPatch(patch))))
    assert dialog.names() == ["session.updated"], "mixed"


def test_the_flat_dialect_knows_no_channels() -> None:
    dialog = stereo()
    flat = FlatSession(dialog.session)
    dialog.perform(flat.receive(FlatUpdate(model="small"), now=0.0))
    assert dialog.read()[-1]["error"]["code"] == "unsupported_event"
    assert not flat.is_flat


@settings(max_examples=40, deadline=None)
@given(
    script=st.lists(
        st.tuples(
            st.integers(50, 900), st.booleans(), st.booleans(), st.sampled_from(["", "commit", "clear"])
        ),
        max_size=10,
    ),
    detection=st.booleans(),
)
def test_channels_do_not_know_of_each_other(
    script: list[tuple[int, bool, bool, str]], detection: bool
) -> None:
    """A channel's events are those of a session that hears it alone."""
    both = stereo(detection=detection)
    alone = [Dialog(detection=detection) for _ in range(2)]
    for ms, *speaking, command in script:
        both.together(ms, *speaking, reply="a word")
        for dialog, speaks in zip(alone, speaking, strict=True):
            dialog.together(ms, speaks, reply="a word")
        if command == "clear":
            for dialog in (both, *alone):
                dialog.clear()
    both.together(2000, False, False, reply="a word")
    for dialog in alone:
        dialog.together(2000, False, reply="a word")
    for channel, dialog in enumerate(alone):
        assert transcripts(both, channel) == transcripts(dialog, None)


def transcripts(dialog: Dialog, channel: int | None) -> list[tuple[Any, ...]]:
    return [
        (event["type"], event.get("audio_start_ms"), event.get("audio_end_ms"), event.get("delta"))
        for event in dialog.sent
        if "item_id" in event and event.get("channel") == channel
    ]
