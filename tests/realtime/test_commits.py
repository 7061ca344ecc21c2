"""Commits by the client: each is answered, whatever there is to commit."""

from __future__ import annotations

import pytest
from sensorium.protocols.realtime.events import InputAudioBufferCommit
from sensorium.protocols.shared.audio_format import ms_to_samples
from sensorium.realtime.conversation import MAX_PENDING
from support.dialogs import COMMITTED, Dialog


@pytest.mark.parametrize("detection", [True, False])
def test_commit_of_nothing_or_too_little_is_an_error_that_keeps_the_session(detection: bool) -> None:
    dialog = Dialog(detection=detection)
    dialog.commit(event_id="mine")
    (event,) = dialog.read()
    assert event["type"] == "error"
    assert event["error"]["code"] == "input_audio_buffer_commit_empty"
    assert event["error"]["event_id"] == "mine"
    dialog.append_audio(1599, 0.02)
    dialog.commit()
    assert dialog.names() == ["error"]
    dialog.append_audio(1, 0.02)
    dialog.commit()
    assert dialog.names()[:3] == COMMITTED, "the audio of the refused commit was kept"


@pytest.mark.parametrize("detection", [True, False])
def test_a_second_commit_is_answered_by_an_empty_item(detection: bool) -> None:
    dialog = Dialog(detection=detection)
    dialog.speak(320)
    dialog.commit()
    dialog.read()
    dialog.commit()
    assert dialog.names() == COMMITTED, "answers stay in order"
    dialog.answer("hi")
    if dialog.pending:
        dialog.answer("hi")
    assert [event["transcript"] for event in dialog.of("completed")] == ["hi", ""]
    assert not dialog.of("error")
    dialog.clear()
    dialog.read()
    dialog.commit()
    assert dialog.names() == ["error"], "that was no second commit"


def test_commit_after_the_detector_committed_is_answered_without_the_model() -> None:
    dialog = Dialog()
    dialog.speak(320)
    dialog.silence(256)
    dialog.answer("hi")
    dialog.silence(400)
    dialog.read()
    dialog.commit()
    assert dialog.names() == [*COMMITTED, "completed"]
    assert dialog.of("completed")[1]["transcript"] == ""
    assert not dialog.pending


def test_an_empty_item_has_the_fields_that_were_asked_for() -> None:
    dialog = Dialog()
    dialog.update({"transcription": {"timestamp_granularities": ["word"]}})
    dialog.silence(320)
    dialog.commit()
    assert dialog.of("completed")[0]["words"] == []


def test_commit_just_after_another_while_nobody_speaks_is_no_error() -> None:
    dialog = Dialog()
    dialog.speak(320)
    dialog.commit()
    dialog.silence(64)
    dialog.commit()
    assert not dialog.of("error")
    assert len(dialog.of("committed")) == 2


def test_commits_that_need_no_audio_are_bounded() -> None:
    dialog = Dialog()
    dialog.speak(320)
    for _ in range(MAX_PENDING):
        dialog.receive(InputAudioBufferCommit())
    dialog.speak(320)
    dialog.read()
    dialog.commit()
    (refused,) = dialog.read()
    assert refused["error"]["code"] == "too_many_commits"
    dialog.client({"type": "input_audio_buffer.flush"})
    assert dialog.names() == ["speech_stopped", *COMMITTED, "input_audio_buffer.flushed"]
    while dialog.pending:
        dialog.answer("hi", item_id=next(iter(dialog.pending)))
    assert len(dialog.of("completed")) == MAX_PENDING + 1


@pytest.mark.parametrize("first_is_answered", [True, False])
def test_where_the_clients_turn_begins_does_not_follow_what_is_pending(first_is_answered: bool) -> None:
    dialog = Dialog()
    dialog.speak(320)
    dialog.silence(640, "first" if first_is_answered else None)
    dialog.silence(1984)
    dialog.speak(64)
    dialog.commit()
    begun = dialog.of("committed")[1]
    assert begun["audio_start_ms"] == 320 + 640 + 1984 - 300
    dialog.silence(1984)
    dialog.update({"turn_detection": None})
    dialog.silence(100)
    dialog.commit()
    assert dialog.of("committed")[2]["audio_start_ms"] >= begun["audio_end_ms"] + 1984 - 300 - 32


def test_commit_in_mid_speech_ends_the_turn_there() -> None:
    dialog = Dialog()
    dialog.speak(320)
    dialog.commit()
    assert dialog.names() == ["speech_started", "speech_stopped", *COMMITTED]
    assert dialog.question().end_sample == dialog.num_samples
    dialog.speak(320)
    assert dialog.names() == ["speech_started"]
    assert dialog.of("speech_started")[1]["audio_start_ms"] >= 320


@pytest.mark.parametrize("outcome", ["answered before", "answered after", "failed after"])
def test_commit_in_a_pause_asks_again_about_all_of_the_buffer(outcome: str) -> None:
    dialog = Dialog()
    dialog.speak(320)
    dialog.silence(256)
    if outcome == "answered before":
        early = dialog.answer("early")
    dialog.silence(64)
    dialog.commit()
    if outcome == "answered after":
        early = dialog.answer("early")
    elif outcome == "failed after":
        early = dialog.fail()
    assert early.final
    assert not dialog.of("completed") + dialog.of("failed")
    assert early.end_sample < dialog.question().end_sample == dialog.num_samples
    dialog.answer("exact")
    assert dialog.of("completed")[0]["transcript"] == "exact"


def test_commit_of_a_word_just_begun_is_transcribed() -> None:
    dialog = Dialog()
    dialog.silence(512)
    dialog.speak(64)
    dialog.commit()
    assert dialog.names() == COMMITTED
    assert dialog.question().end_sample == dialog.num_samples
    assert dialog.question().start_sample <= ms_to_samples(512 - 300)
