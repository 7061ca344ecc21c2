"""An utterance ends by its words: long enough behind the last one, whatever voice activity says, and once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from sensorium.protocols.errors import InternalError
from sensorium.protocols.realtime.vllm_events import FlatUpdate
from sensorium.protocols.shared.audio_format import ms_to_samples, samples_to_ms
from sensorium.protocols.transcription.transcript import Word
from sensorium.realtime.effects import Send
from sensorium.realtime.events import DrainStarted
from sensorium.realtime.vllm_session import FlatSession
from support.conversation_dialogs import Talk
from support.dialogs import Dialog, make_transcript

ENDED = "input_audio_buffer.utterance_ended"
WAIT_MS = 1000


def listening(audio_input: dict[str, Any] | None = None, *, wait_ms: int = WAIT_MS) -> Dialog:
    dialog = Dialog()
    dialog.update({"transcription": {"utterance_end_ms": wait_ms}, **(audio_input or {})})
    dialog.read()
    return dialog


def speak_words(dialog: Dialog, ms: int, text: str) -> None:
    """Speech whose last word is understood when it has been said, about."""
    dialog.speak(ms - 320, "" if " " not in text else text.rpartition(" ")[0])
    dialog.speak(320, text)


def noise(dialog: Dialog, ms: int, reply: str | None = None) -> None:
    """What voice activity takes for speech; questions about it are answered as before."""
    dialog.speak(ms, reply)


def ends(dialog: Dialog) -> list[tuple[str, int]]:
    return [(event["item_id"], event["last_word_end_ms"]) for event in dialog.of(ENDED)]


def test_nothing_is_told_unless_it_is_asked_for() -> None:
    dialog = Dialog()
    speak_words(dialog, 960, "hello there")
    dialog.silence(10_000, "hello there")
    assert not ends(dialog)
    assert "utterance_end_ms" not in dialog.sent[0]["session"]["audio"]["input"]["transcription"]


def test_it_comes_once_behind_the_answer_and_not_before_its_time() -> None:
    dialog = listening()
    speak_words(dialog, 960, "hello there")
    dialog.silence(WAIT_MS - 8, "hello there.")
    assert not ends(dialog)
    assert dialog.names()[-1] == "completed"
    dialog.silence(32, "hello there.")
    assert dialog.names() == [ENDED]
    dialog.silence(10_000)
    assert ends(dialog) == [("item_1", 960)]


@pytest.mark.parametrize(("pause_ms", "expected"), [(736, [2]), (1504, [1, 2])])
def test_a_pause_ends_turns_before_it_ends_the_utterance(pause_ms: int, expected: list[int]) -> None:
    dialog = listening()
    dialog.speak(640, "one")
    dialog.silence(pause_ms, "one")
    assert len(dialog.of("completed")) == 1
    dialog.speak(640, "two")
    dialog.silence(3000, "two")
    assert [item_id for item_id, _ in ends(dialog)] == [f"item_{number}" for number in expected]


@pytest.mark.parametrize("detection", [{"type": "server_vad"}, {"type": "semantic_vad"}, None])
def test_noise_behind_the_words_keeps_the_turn_open_and_not_the_utterance(
    detection: dict[str, Any] | None,
) -> None:
    dialog = listening({"turn_detection": detection})
    speak_words(dialog, 960, "hello there")
    dialog.read()
    noise(dialog, 3000, "hello there")
    (ended,) = dialog.of(ENDED)
    assert ended["item_id"] == "item_1"
    assert 0 < ended["last_word_end_ms"] <= 960
    assert "hello there" in dialog.text("item_1"), "nothing of it is withheld"
    assert dialog.names()[-2:] == ["delta", ENDED]
    assert not dialog.of("speech_stopped")
    assert not dialog.of("committed")
    noise(dialog, 640, "hello there you")
    noise(dialog, 3000, "hello there you")
    assert len(ends(dialog)) == 2, "who goes on in the same turn begins another one"
    if detection is None:
        dialog.commit()
    dialog.silence(5000, "Hello there, you.")
    assert len(dialog.of("completed")) == 1
    assert len(ends(dialog)) == 2, "the answer has no word that was not told"


def test_what_a_hypothesis_does_not_cover_may_hold_a_word() -> None:
    dialog = listening()
    speak_words(dialog, 960, "hello there")
    noise(dialog, 5000)
    assert not ends(dialog), "the question is not answered"
    dialog.answer("hello there")
    assert not ends(dialog), "it was an old one"
    dialog.answer("hello there")
    assert len(ends(dialog)) == 1


def test_the_newest_sound_may_hold_a_word_that_is_not_understood_yet() -> None:
    dialog = listening({"turn_detection": None})
    speak_words(dialog, 960, "hello")
    for _ in range(100):
        if not ends(dialog):
            noise(dialog, 32, "hello")
    ((_, end_ms),) = ends(dialog)
    (covered_end,) = (question.end_sample for question in dialog.answered.values())
    assert 640 < end_ms <= 960
    assert covered_end >= ms_to_samples(end_ms + WAIT_MS + 400)


def test_while_words_come_nothing_has_ended() -> None:
    dialog = listening()
    for number in range(1, 9):
        noise(dialog, 900, "word " * number)
    assert not ends(dialog)
    for number in range(6):
        noise(dialog, 900, "word " * 8 + f"part{number}")  # the last one is still being said
    assert not ends(dialog)


def test_noise_begins_turns_that_put_nothing_off_and_end_nothing() -> None:
    dialog = listening()
    speak_words(dialog, 960, "hello")
    dialog.silence(608, "hello")
    assert len(dialog.of("completed")) == 1
    noise(dialog, 2000, "")
    assert ends(dialog) == [("item_1", 960)]
    dialog.silence(3000, "")
    noise(dialog, 2000, "")
    dialog.silence(3000, "")
    assert len(dialog.of("completed")) == 3
    assert len(ends(dialog)) == 1


def test_words_that_were_not_there_after_all_take_the_end_of_what_was_said_from_nobody() -> None:
    dialog = listening()
    speak_words(dialog, 960, "hello")
    dialog.silence(608, "hello")
    noise(dialog, 640, "you")
    dialog.silence(2000, "")
    assert dialog.of("completed")[1]["transcript"] == ""
    assert ends(dialog) == [("item_1", 960)]


@pytest.mark.parametrize("goes_on", [False, True])
def test_where_words_have_times_the_last_one_has(goes_on: bool) -> None:
    dialog = listening()
    dialog.silence(1600)
    speak_words(dialog, 960, "hello there")
    dialog.silence(224)
    words = (Word("hello", 0.3, 0.5), Word("there", 0.55, 0.875))
    final = msgspec.structs.replace(make_transcript("hello there"), words=words)
    assert dialog.question().final
    start_ms = samples_to_ms(dialog.answer(final).start_sample)
    if goes_on:
        noise(dialog, 640, "hello there")
        assert not dialog.of("speech_stopped")
    dialog.silence(2000, "hello there")
    assert ends(dialog) == [("item_1", start_ms + 875)]


def test_without_detection_the_words_end_it_before_the_client_ends_the_turn() -> None:
    dialog = listening({"turn_detection": None})
    speak_words(dialog, 960, "hello there")
    dialog.silence(1500, "hello there")
    assert ends(dialog) == [("item_1", 960)]
    assert not dialog.of("committed")
    dialog.commit()
    dialog.silence(2000, "hello there")
    assert len(ends(dialog)) == 1


def test_a_last_word_that_was_cut_by_the_question_is_asked_about_again() -> None:
    dialog = listening({"turn_detection": None}, wait_ms=500)
    while not (dialog.pending and dialog.question().end_sample == dialog.num_samples > ms_to_samples(800)):
        dialog.speak(32)
        if dialog.pending and dialog.question().end_sample < ms_to_samples(800):
            dialog.answer("hello")
    spoken_ms = samples_to_ms(dialog.num_samples)
    dialog.silence(700)  # the answer takes longer than the pause
    dialog.answer("hello")
    dialog.silence(300, "hello there")
    assert ends(dialog) == [("item_1", spoken_ms)]
    assert dialog.text("item_1") == "hello there"


def test_a_word_more_in_what_was_told_is_no_other_utterance() -> None:
    dialog = listening({"turn_detection": None})
    speak_words(dialog, 960, "hello there")
    dialog.silence(1500, "hello there")
    dialog.commit()
    dialog.silence(2000, "Hello there, you.")
    assert ends(dialog) == [("item_1", 960)]


def test_a_word_too_short_for_a_turn_may_be_committed() -> None:
    dialog = listening()
    dialog.silence(512)
    dialog.speak(64)
    dialog.commit()
    dialog.answer("no")
    dialog.silence(2000)
    assert ends(dialog) == [("item_1", 576)]


def test_a_silence_that_ends_no_turn_ends_an_utterance() -> None:
    dialog = listening({"turn_detection": {"type": "semantic_vad", "eagerness": "low"}})
    speak_words(dialog, 960, "and then my")
    dialog.silence(1504, "and then my")
    assert ends(dialog) == [("item_1", 960)]
    assert not dialog.of("speech_stopped")
    assert dialog.text("item_1") == "and then my"


def test_late_answers_are_told_in_order_and_no_end_between_is_lost() -> None:
    dialog = listening()
    dialog.speak(960)
    dialog.silence(2000)
    dialog.speak(960)
    dialog.read()
    dialog.answer("one", item_id="item_1")
    assert dialog.names() == ["delta", "completed", ENDED]
    dialog.answer("two", item_id="item_2")
    dialog.silence(2000, "two")
    assert [item_id for item_id, _ in ends(dialog)] == ["item_1", "item_2"]


def test_what_waits_for_its_turn_is_told_behind_the_end_before_it() -> None:
    dialog = listening()
    for _ in range(2):
        dialog.speak(960)
        dialog.silence(2000)
    dialog.answer("two", item_id="item_2")
    dialog.read()
    dialog.answer("one", item_id="item_1")
    assert dialog.names() == ["delta", "completed", ENDED, "delta", "completed", ENDED]
    noisy = listening()
    noisy.speak(960)
    noisy.silence(704)
    for number in range(100):
        noisy.speak(32)
        if "item_2" in noisy.pending:
            noisy.answer("" if number < 50 else "two three", item_id="item_2")
    noisy.read()
    noisy.answer("one", item_id="item_1")
    assert noisy.names()[:4] == ["delta", "completed", ENDED, "delta"], "the noise was long, before the word"


def test_a_word_that_has_just_begun_in_time_is_waited_for() -> None:
    dialog = listening()
    speak_words(dialog, 960, "one")
    dialog.silence(960, "one")
    speak_words(dialog, 640, "two")
    dialog.silence(3000, "two")
    assert [item_id for item_id, _ in ends(dialog)] == ["item_2"]


def test_late_answers_to_turns_close_together_are_one_utterance() -> None:
    dialog = listening()
    dialog.speak(960)
    dialog.silence(704)
    dialog.speak(960)
    dialog.silence(5000)
    dialog.answer("two", item_id="item_2")
    dialog.answer("one", item_id="item_1")
    assert [item_id for item_id, _ in ends(dialog)] == ["item_2"]


def test_a_turn_that_failed_has_the_words_that_were_told_of_it() -> None:
    dialog = listening()
    speak_words(dialog, 960, "hello there")
    dialog.silence(640)
    while dialog.pending:
        dialog.fail()
    assert dialog.of("failed")
    dialog.silence(1000)
    assert [item_id for item_id, _ in ends(dialog)] == ["item_1"]
    nothing = listening()
    nothing.speak(960)
    nothing.silence(640)
    while nothing.pending:
        nothing.fail(InternalError("no"))
    nothing.silence(3000)
    assert nothing.of("failed")
    assert not ends(nothing)


@pytest.mark.parametrize("end", ["commit", "flush", "drain"])
def test_of_audio_that_has_not_come_nothing_is_concluded(end: str) -> None:
    dialog = listening()
    speak_words(dialog, 960, "hello")
    if end == "drain":
        dialog.receive(DrainStarted())
        dialog.wait(1.1)  # nothing comes: the turn is over
    else:
        dialog.client({"type": f"input_audio_buffer.{end}"})
    dialog.answer("hello")
    dialog.wait(60.0)
    assert len(dialog.of("completed")) == 1
    assert not ends(dialog)
    if end != "drain":
        dialog.silence(1024)
        assert ends(dialog) == [("item_1", 960)]


def test_a_clear_drops_what_was_not_committed_and_nothing_else() -> None:
    dropped = listening()
    speak_words(dropped, 960, "hello")
    dropped.clear()
    dropped.silence(3000)
    assert not ends(dropped)
    kept = listening()
    speak_words(kept, 960, "hello")
    kept.silence(640, "hello")
    kept.speak(320, "you")
    kept.clear()
    kept.silence(1000)
    assert ends(kept) == [("item_1", 960)]


def test_it_may_be_asked_for_at_any_time_and_not_any_more() -> None:
    dialog = Dialog()
    speak_words(dialog, 960, "hello")
    dialog.update({"transcription": {"utterance_end_ms": 2000}})
    dialog.speak(448, "hello there")
    assert not ends(dialog)
    dialog.update({"transcription": {"utterance_end_ms": 1000}})
    dialog.silence(2000, "hello there")
    assert ends(dialog) == [("item_1", 1408)]
    speak_words(dialog, 960, "gone")
    dialog.update({"transcription": {"utterance_end_ms": None}})
    dialog.silence(800, "gone")
    dialog.update({"transcription": {"utterance_end_ms": 1000}})
    dialog.silence(5000)
    speak_words(dialog, 960, "once more")
    dialog.silence(800, "once more")
    dialog.update({"transcription": None})
    dialog.silence(320)
    dialog.update({"transcription": {"utterance_end_ms": 1000}})
    dialog.silence(5000)
    assert len(dialog.of("completed")) == 3
    assert len(ends(dialog)) == 1, "of what was said to its end meanwhile nothing is known"
    later = Dialog()
    speak_words(later, 960, "hello")
    later.silence(320, "hello")
    later.update({"transcription": {"utterance_end_ms": 1000}})
    later.silence(1000)
    assert ends(later) == [("item_1", 960)], "the answer was to come"
    assert not dialog.of("error")


def test_a_session_that_answers_tells_of_them_too() -> None:
    talk = Talk()
    talk.update({"transcription": {"utterance_end_ms": 1000}})
    assert talk.sent[-1]["session"]["audio"]["input"]["transcription"]["utterance_end_ms"] == 1000
    talk.speak(800, "how many")
    talk.silence(2000, "how many")
    assert len(ends(talk)) == 1
    talk.reply("three")
    talk.check_responses()


def test_the_flat_dialect_has_no_name_for_it() -> None:
    dialog = listening()
    flat = FlatSession(dialog.session)
    dialog.perform(flat.receive(FlatUpdate(model="small"), now=0.0))
    speak_words(dialog, 960, "hello")
    dialog.silence(3000, "hello")
    (ended,) = [e.event for e in dialog.effects if isinstance(e, Send) and "UtteranceEnded" in repr(e.event)]
    assert flat.words(ended) == ()


def test_each_channel_has_its_own() -> None:
    dialog = listening({"multichannel": True, "format": {"type": "audio/pcm", "rate": 24_000, "channels": 2}})
    dialog.together(960, True, True, reply="hello")
    dialog.together(2000, False, True, reply="hello")
    dialog.together(640, False, True, reply="hello there")
    dialog.together(3000, False, False, reply="hello there")
    ended = [(event["channel"], event["item_id"]) for event in dialog.of(ENDED)]
    assert ended[0] == (0, "item_1")
    assert ended[1:] == [(1, "item_2")] * 2, "noise on the other side, then another word"
