"""A flush ends the turn at once, and is answered by `flushed` whatever there is."""

from __future__ import annotations

import pytest
from sensorium.protocols.shared.audio_format import ms_to_samples
from support.dialogs import COMMITTED, Dialog

FLUSHED = "input_audio_buffer.flushed"


def flush(dialog: Dialog) -> str | None:
    """Send one; the item it committed."""
    dialog.client({"type": "input_audio_buffer.flush", "event_id": "mine"})
    item_id: str | None = next(e for e in reversed(dialog.sent) if e["type"] == FLUSHED)["item_id"]
    return item_id


def test_in_mid_speech_the_turn_is_final_in_one_question() -> None:
    dialog = Dialog()
    dialog.speak(320)
    assert flush(dialog) == "item_1"
    assert dialog.names() == ["speech_started", "speech_stopped", *COMMITTED, FLUSHED]
    assert dialog.question().final
    assert dialog.question().end_sample == dialog.num_samples
    dialog.answer("now")
    assert dialog.names() == ["delta", "completed"]
    dialog.speak(320)
    assert dialog.of("speech_started")[1]["audio_start_ms"] >= 320


@pytest.mark.parametrize("was_answered", [True, False])
def test_in_a_pause_what_was_asked_about_is_the_turn(was_answered: bool) -> None:
    dialog = Dialog()
    dialog.speak(320)
    dialog.silence(288)
    question = dialog.question()
    if was_answered:
        dialog.answer("done.")
    assert flush(dialog) == "item_1"
    if not was_answered:
        assert dialog.question() == question
        dialog.answer("done.")
    assert dialog.of("completed")[0]["transcript"] == "done."
    assert dialog.of("committed")[0]["audio_end_ms"] == 320 + 200
    dialog.speak(320)
    assert dialog.of("speech_started")[1]["audio_start_ms"] == 320 + 200, "the rest of the pause is kept"


@pytest.mark.parametrize("detection", [True, False])
def test_nothing_to_flush_is_no_error_and_no_item(detection: bool) -> None:
    dialog = Dialog(detection=detection)
    assert flush(dialog) is None
    dialog.append_audio(1599, 0.02)
    assert flush(dialog) is None
    dialog.speak(320)
    assert flush(dialog) == "item_1"
    assert flush(dialog) is None
    if detection:
        dialog.silence(2000)
        assert flush(dialog) is None
    assert not dialog.of("error")
    assert len(dialog.of("committed")) == 1


def test_a_word_just_begun_is_flushed_and_less_of_it_is_kept() -> None:
    dialog = Dialog()
    dialog.speak(64)
    assert flush(dialog) is None, "under 100 ms"
    dialog.speak(64)
    assert dialog.of("speech_started")[0]["audio_start_ms"] == 0, "the beginning was not lost"
    later = Dialog()
    later.silence(512)
    later.speak(64)
    assert flush(later) == "item_1"
    assert later.question().start_sample <= ms_to_samples(512 - 300)


def test_without_detection_it_is_a_commit() -> None:
    dialog = Dialog(detection=False)
    dialog.silence(500)
    dialog.speak(320)
    assert flush(dialog) == "item_1"
    assert (dialog.question().start_sample, dialog.question().end_sample) == (0, dialog.num_samples)
