"""Turns, partials and finals: what is asked about and when."""

from __future__ import annotations

import itertools

import pytest
from sensorium.protocols.shared.audio_format import ms_to_samples
from sensorium.realtime.buffer import FORGET_STEP
from sensorium.realtime.effects import (
    ForgetBefore,
    ForgetItem,
    ResetVoiceActivity,
)
from sensorium.realtime.events import (
    AudioAppended,
    HypothesisReady,
    SpeechScored,
)
from support.dialogs import COMMITTED, Dialog, make_transcript


def test_a_turn_from_speech_to_completed() -> None:
    dialog = Dialog(delay="low")
    dialog.silence(1024)
    dialog.speak(640, "turn on")
    assert dialog.names() == ["speech_started", "delta"]
    dialog.speak(640, "turn on the light")
    assert dialog.names() == ["delta"]
    assert dialog.text("item_1") == "turn on"
    dialog.silence(256)
    assert dialog.question().final
    dialog.answer("turn on the light.")
    assert dialog.names() == ["delta"]
    assert dialog.text("item_1") == "turn on the light"
    dialog.silence(256)
    assert dialog.names() == ["speech_stopped", *COMMITTED, "delta", "completed"]
    (started,), (stopped,) = dialog.of("speech_started"), dialog.of("speech_stopped")
    assert started["audio_start_ms"] == 1024 - 300
    assert stopped["audio_end_ms"] == 1024 + 1280 + 200
    (completed,) = dialog.of("completed")
    assert completed["transcript"] == dialog.text("item_1") == "turn on the light."
    usage = completed["usage"]
    assert usage.pop("input_token_details") == {"audio_tokens": 6, "text_tokens": 1}
    assert usage == {"type": "tokens", "input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
    assert completed["languages"] == [{"code": "en"}]
    assert {event["item_id"] for event in (started, stopped, completed)} == {"item_1"}
    assert dialog.session.conversation.num_tracked == 0


def test_the_final_range_is_transcribed_before_the_turn_ends() -> None:
    dialog = Dialog()
    dialog.silence(960)
    dialog.speak(320)
    dialog.silence(192)
    assert not dialog.pending, "nothing is asked about silence before the tail has passed"
    dialog.silence(32)
    question = dialog.question()
    assert question.final
    assert question.start_sample == ms_to_samples(960 - 300)
    assert question.end_sample == ms_to_samples(960 + 320 + 200)
    dialog.silence(320)
    assert dialog.names() == ["speech_started", "speech_stopped", *COMMITTED]
    assert dialog.question() == question, "the same question is still the final one"
    dialog.answer("yes")
    assert dialog.names() == ["delta", "completed"]


def test_a_pause_that_ends_makes_the_final_a_partial() -> None:
    dialog = Dialog()
    dialog.speak(320)
    dialog.silence(256)
    dialog.answer("one two")
    dialog.speak(320, "one two")
    dialog.silence(256)
    first_end = ms_to_samples(320 + 200)
    assert dialog.question().final
    assert dialog.question().end_sample > first_end
    dialog.answer("one two three")
    dialog.silence(256)
    assert dialog.of("completed")[0]["transcript"] == "one two three"
    assert len(dialog.of("committed")) == 1


def test_partials_come_with_new_audio_and_one_at_a_time() -> None:
    dialog = Dialog()
    ends = []
    dialog.speak(384, "a b c")
    dialog.speak(256, "a b c")
    assert dialog.text("item_1") == "a b", "some quick updates, then text"
    for _ in range(4):
        while not dialog.pending:
            dialog.speak(32)
        ends.append(dialog.answer("a b c").end_sample)
    assert all(later - earlier >= ms_to_samples(400) for earlier, later in itertools.pairwise(ends))
    while not dialog.pending:
        dialog.speak(32)
    dialog.speak(5000)
    slow = dialog.answer("a b c d")
    assert dialog.question().end_sample >= dialog.num_samples - 512, "only the newest range is asked for"
    assert dialog.question().end_sample - slow.end_sample >= ms_to_samples(4900)


def test_silence_and_short_noise_start_nothing() -> None:
    dialog = Dialog()
    dialog.silence(2000)
    for _ in range(5):
        dialog.speak(64)
        dialog.silence(64)
    assert dialog.names() == []
    assert not dialog.pending
    assert dialog.forgotten >= dialog.num_samples - ms_to_samples(300 + 500 + 64)
    forgotten = [effect for effect in dialog.effects if isinstance(effect, ForgetBefore)]
    assert len(forgotten) <= dialog.num_samples // FORGET_STEP, "in steps that are worth it"


def test_audio_faster_than_real_time_is_cut_into_the_same_turns() -> None:
    slow, fast = Dialog(), Dialog()
    for dialog, num_chunks in ((slow, 60), (fast, 2)):
        for probability in (0.02, 0.9, 0.02) * 3:
            for _ in range(num_chunks):
                dialog.append_audio(60 * 512 // num_chunks, probability)
    key = ("audio_start_ms", "audio_end_ms")
    assert [[e[k] for k in key] for e in slow.of("committed")] == [
        [e[k] for k in key] for e in fast.of("committed")
    ]
    assert len(fast.of("committed")) == 3


def test_without_detection_the_commit_covers_exactly_the_buffer() -> None:
    dialog = Dialog(detection=False)
    dialog.silence(500)
    assert not dialog.pending, "no partials on pure silence"
    dialog.speak(640)
    dialog.answer("good morning")
    dialog.speak(640)
    dialog.answer("good morning everyone")
    assert dialog.text("item_1") == "good morning"
    dialog.silence(200)
    if dialog.pending:
        dialog.answer("good morning everyone")
    dialog.commit()
    assert dialog.question().final
    assert (dialog.question().start_sample, dialog.question().end_sample) == (0, dialog.num_samples)
    dialog.answer("good morning everyone")
    assert dialog.of("completed")[0]["transcript"] == dialog.text("item_1") == "good morning everyone"
    boundary = dialog.num_samples
    dialog.silence(150)
    dialog.commit()
    assert (dialog.question().start_sample, dialog.question().end_sample) == (boundary, dialog.num_samples)
    dialog.answer("")
    assert dialog.of("completed")[1]["transcript"] == ""
    assert not dialog.of("speech_started")


def test_without_detection_nothing_is_told_of_speech() -> None:
    dialog = Dialog(detection=False)
    dialog.speak(640)
    dialog.silence(1_280)
    dialog.commit()
    assert dialog.names() == COMMITTED


def test_a_long_silence_takes_no_room_from_the_turn_behind_it() -> None:
    dialog = Dialog(max_turn_s=20.0)
    dialog.silence(30_000)
    dialog.speak(640)
    assert dialog.names() == ["speech_started"], "and of no backpressure"
    assert dialog.session.admit(9_600) is None


def test_speech_after_long_silence_has_room_without_detection() -> None:
    dialog = Dialog(detection=False, max_turn_s=20.0)
    dialog.silence(32_000)
    dialog.speak(960)
    assert not dialog.of("backpressure")
    assert dialog.session.admit(8 * 48_000) is None
    dialog.commit()
    (committed,) = dialog.of("committed")
    assert committed["audio_start_ms"] == 32_000 - 10_000
    assert committed["audio_end_ms"] == 32_960


def test_clear_forgets_the_turn_and_its_late_answer() -> None:
    dialog = Dialog()
    dialog.speak(640)
    late = dialog.question()
    dialog.clear()
    assert dialog.names() == ["speech_started", "speech_stopped", "cleared"]
    assert ForgetItem(late.item_id) in dialog.effects
    assert ResetVoiceActivity() in dialog.effects
    dialog.receive(
        HypothesisReady(
            late.item_id, late.start_sample, late.end_sample, late.final, make_transcript("too late")
        )
    )
    assert dialog.names() == []
    dialog.clear()
    assert dialog.names() == ["cleared"], "clearing an empty buffer is fine"
    dialog.commit()
    assert dialog.names() == ["error"]


def test_scores_of_audio_that_was_cleared_are_ignored() -> None:
    dialog = Dialog()
    dialog.receive(AudioAppended(8000))
    dialog.clear()
    for end in range(512, 8000, 512):
        dialog.receive(SpeechScored(end, 0.99))
    assert dialog.names() == ["cleared"]


def test_a_turn_of_the_longest_length_is_ended() -> None:
    dialog = Dialog(force_turn_s=2.0)
    dialog.speak(4500)
    ranges = [(event["audio_start_ms"], event["audio_end_ms"]) for event in dialog.of("committed")]
    assert len(ranges) == 2
    assert ranges[0][1] == ranges[1][0], "nothing is lost between them"
    assert dialog.of("speech_started")[2]["audio_start_ms"] == ranges[1][1]


def test_switching_detection_off_in_mid_speech_hands_the_turn_to_the_client() -> None:
    dialog = Dialog()
    dialog.silence(992)
    dialog.speak(320)
    dialog.update({"turn_detection": None})
    assert dialog.names() == ["speech_started", "session.updated", "speech_stopped"]
    dialog.silence(1000)
    dialog.commit()
    while dialog.pending and not dialog.question().final:
        dialog.answer("word")
    assert dialog.question().start_sample == ms_to_samples(992 - 300)
    assert dialog.question().end_sample == dialog.num_samples
    dialog.answer("word")
    assert dialog.of("completed")[0]["item_id"] == dialog.of("speech_started")[0]["item_id"]


@pytest.mark.parametrize("still_speaking", [True, False])
def test_switching_detection_on_keeps_what_was_said(still_speaking: bool) -> None:
    dialog = Dialog(detection=False)
    dialog.speak(320)
    if not still_speaking:
        dialog.silence(640)
    dialog.update({"turn_detection": {"type": "server_vad"}})
    if still_speaking:
        assert dialog.names() == ["session.updated", "speech_started"]
        dialog.silence(640)
        assert dialog.names() == ["speech_stopped", *COMMITTED]
    else:
        assert dialog.names() == ["session.updated", *COMMITTED]
    while dialog.pending:
        dialog.answer("kept")
    assert [event["transcript"] for event in dialog.of("completed")] == ["kept"]


@pytest.mark.parametrize(
    ("text", "wait_ms"), [("Turn it on.", 300), ("Turn it on and", 800), ("Turn it on,", 800), ("", 400)]
)
def test_semantic_detection_waits_as_long_as_what_was_said_asks_for(text: str, wait_ms: int) -> None:
    dialog = Dialog()
    dialog.update({"turn_detection": {"type": "semantic_vad", "eagerness": "high"}})
    dialog.speak(640, text)
    dialog.silence(wait_ms - 32, text)
    assert not dialog.of("speech_stopped")
    dialog.silence(64, text)
    assert dialog.of("speech_stopped")[0]["audio_end_ms"] == 640 + 200, "the tail is the same"
    assert dialog.of("completed")[0]["transcript"] == text


@pytest.mark.parametrize(("language", "wait_ms"), [("de", 300), ("en", 800)])
def test_semantic_detection_knows_the_language(language: str, wait_ms: int) -> None:
    dialog = Dialog()
    dialog.update({"turn_detection": {"type": "semantic_vad", "eagerness": "high"}})
    dialog.speak(640, "Mach das an.")
    dialog.silence(256)
    dialog.answer(make_transcript("Mach das an.", language=language))
    dialog.silence(wait_ms - 256 - 32)
    assert not dialog.of("speech_stopped")
    dialog.silence(64)
    assert dialog.of("speech_stopped")


def test_semantic_detection_goes_by_the_words_before_the_pause_only() -> None:
    dialog = Dialog()
    dialog.update({"turn_detection": {"type": "semantic_vad", "eagerness": "high"}})
    dialog.speak(480, "Turn it on.")
    dialog.speak(480)
    dialog.silence(768)
    assert not dialog.of("speech_stopped"), "what was said last is not known"
    dialog.silence(32)
    assert dialog.of("speech_stopped"), "no text asks for a longer wait"


def test_a_longer_wait_ends_when_speech_goes_on() -> None:
    dialog = Dialog()
    dialog.update({"turn_detection": {"type": "semantic_vad", "eagerness": "high"}})
    dialog.speak(640, "Turn it on and")
    dialog.silence(600, "Turn it on and")
    dialog.speak(320, "Turn it on and off.")
    dialog.silence(288, "Turn it on and off.")
    assert not dialog.of("speech_stopped")
    dialog.silence(32, "Turn it on and off.")
    assert len(dialog.of("completed")) == 1
