"""Items in order: answers, failures, deltas and corrections."""

from __future__ import annotations

import msgspec
from sensorium.protocols.errors import UnavailableError
from sensorium.protocols.transcription.transcript import Segment, TokenLogProb, Transcript, Word
from sensorium.realtime.events import HypothesisReady
from support.dialogs import COMMITTED, Dialog, make_transcript


def test_a_final_takes_the_place_of_a_partial_in_flight() -> None:
    dialog = Dialog()
    dialog.speak(640)
    partial = dialog.question()
    assert not partial.final
    dialog.silence(512)
    assert dialog.names() == ["speech_started", "speech_stopped", *COMMITTED]
    assert dialog.question().final, "nobody waits for the partial any more"
    late = Transcript("hello", "en", 0.6)
    dialog.receive(HypothesisReady(partial.item_id, partial.start_sample, partial.end_sample, False, late))
    assert dialog.names() == [], "it came all the same, and too late"
    dialog.answer("hello there")
    assert dialog.text("item_1") == "hello there"
    assert len(dialog.of("completed")) == 1


def test_a_final_in_flight_is_not_asked_for_again() -> None:
    dialog = Dialog()
    dialog.speak(640)
    dialog.answer("hello")
    dialog.silence(256)
    question = dialog.question()
    assert question.final
    dialog.silence(512)
    assert dialog.question() is question


def test_several_turns_keep_apart_and_in_order() -> None:
    dialog = Dialog()
    for _ in range(3):
        dialog.speak(320)
        dialog.silence(640)
    assert dialog.names() == ["speech_started", "speech_stopped", *COMMITTED] * 3
    dialog.answer("three", item_id="item_3")
    dialog.answer("two", item_id="item_2")
    assert dialog.names() == [], "text of later items waits for the first"
    dialog.answer("one", item_id="item_1")
    assert [event["transcript"] for event in dialog.of("completed")] == ["one", "two", "three"]
    assert dialog.names() == ["delta", "completed"] * 3
    assert [event["previous_item_id"] for event in dialog.of("committed")] == [None, "item_1", "item_2"]
    starts = [event["audio_start_ms"] for event in dialog.of("speech_started")]
    ends = [event["audio_end_ms"] for event in dialog.of("speech_stopped")]
    assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))


def test_deltas_of_the_next_turn_wait_for_the_previous_one() -> None:
    dialog = Dialog()
    dialog.speak(320)
    dialog.silence(640)
    dialog.read()
    dialog.speak(640)
    dialog.answer("next turn here", item_id="item_2")
    dialog.speak(640)
    dialog.answer("next turn here now", item_id="item_2")
    assert dialog.names() == ["speech_started"]
    dialog.answer("first", item_id="item_1")
    assert dialog.names() == ["delta", "completed", "delta"]
    assert dialog.text("item_2") == "next turn here"


def test_text_that_waited_and_proved_wrong_is_never_sent() -> None:
    dialog = Dialog()
    dialog.speak(320)
    dialog.silence(640)
    dialog.update({"transcription": {"delay": "minimal"}})
    for _ in range(3):
        dialog.speak(640)
        dialog.answer("wrong words here", item_id="item_2")
    dialog.silence(640)
    while "item_2" in dialog.pending:
        dialog.answer("Right words.", item_id="item_2")
    dialog.answer("first", item_id="item_1")
    assert dialog.text("item_2") == "Right words."
    assert dialog.session.conversation.num_corrected == 0


def test_only_some_finals_of_a_session_run_at_a_time() -> None:
    dialog = Dialog(max_finals_in_flight=2)
    for _ in range(5):
        dialog.speak(320)
        dialog.silence(640)
    assert len(dialog.of("committed")) == 5
    most = 0
    while dialog.pending:
        most = max(most, len(dialog.pending))
        dialog.answer("x", item_id=next(iter(dialog.pending)))
    assert most == 2
    assert [event["item_id"] for event in dialog.of("completed")] == [f"item_{n}" for n in range(1, 6)]


def test_failure_of_a_final_fails_the_item_and_the_session_goes_on() -> None:
    dialog = Dialog()
    dialog.speak(320)
    dialog.silence(640)
    dialog.fail(UnavailableError("restarting"))
    (failed,) = dialog.of("failed")
    assert failed["error"] == {
        "type": "server_error",
        "code": "unavailable",
        "message": "restarting",
        "param": None,
    }
    dialog.speak(320)
    dialog.silence(640)
    dialog.answer("works")
    assert dialog.of("completed")[0]["transcript"] == "works"


def test_failure_of_a_partial_or_an_early_final_is_retried() -> None:
    dialog = Dialog()
    dialog.speak(448)
    dialog.fail()
    assert not dialog.pending
    dialog.speak(416)
    dialog.fail()
    dialog.silence(256)
    assert dialog.fail().final
    dialog.silence(96)
    assert not dialog.pending, "not again during the same pause"
    dialog.silence(256)
    assert dialog.question().final
    dialog.answer("at last")
    assert "failed" not in dialog.names()
    assert dialog.of("completed")[0]["transcript"] == "at last"


def test_a_contradicted_release_is_corrected_by_completed() -> None:
    dialog = Dialog()
    dialog.speak(1280, "recognise speech now")
    dialog.silence(256)
    dialog.answer("wreck a nice beach")
    dialog.silence(400)
    assert dialog.text("item_1") == "recognise speech"
    assert dialog.of("completed")[0]["transcript"] == "wreck a nice beach"
    assert dialog.session.conversation.num_corrected == 1


def test_a_silent_turn_is_completed_once_with_empty_text() -> None:
    dialog = Dialog()
    dialog.speak(320)
    dialog.silence(256)
    dialog.answer(Transcript(text="", language="", duration=0.5))
    dialog.silence(400)
    assert dialog.names() == ["speech_started", "speech_stopped", *COMMITTED, "completed"]
    assert dialog.of("completed")[0]["languages"] == []


def test_segments_words_and_logprobs_come_where_asked_for() -> None:
    dialog = Dialog()
    dialog.update(
        {"transcription": {"timestamp_granularities": ["word", "segment"]}},
        include=["item.input_audio_transcription.logprobs"],
    )
    segment = Segment(0, 0, 0.1, 0.6, " hi", (5,), 0.0, -0.1, 1.0, 0.01)
    transcript = msgspec.structs.replace(
        make_transcript("hi"),
        segments=(segment,),
        words=(Word("hi", 0.1, 0.6),),
        tokens=(TokenLogProb("hi", b"hi", -0.1),),
    )
    dialog.speak(320)
    dialog.silence(256)
    dialog.answer(transcript)
    dialog.silence(400)
    assert dialog.names()[-2:] == ["segment", "completed"]
    assert dialog.text("item_1") == "hi"
    (completed,) = dialog.of("completed")
    assert completed["words"] == [{"word": "hi", "start": 0.1, "end": 0.6}]
    assert completed["logprobs"] == [{"token": "hi", "bytes": [104, 105], "logprob": -0.1}]

    shown = dialog.of("session.updated")[0]["session"]
    assert shown["audio"]["input"]["transcription"]["timestamp_granularities"] == ["word", "segment"]
    assert shown["include"] == ["item.input_audio_transcription.logprobs"]
    dialog.update({"transcription": {"timestamp_granularities": []}}, include=[])
    assert not dialog.of("session.updated")[1]["session"]["include"]
    dialog.speak(320)
    dialog.silence(256)
    dialog.answer(transcript)
    dialog.silence(400)
    assert "segment" not in dialog.names()
    assert not {"words", "logprobs"} & dialog.of("completed")[-1].keys()


def test_a_turn_is_told_alike_whenever_it_is_said() -> None:
    """As cautiously an hour later as at the beginning."""

    def shown_with(silence_ms: float) -> list[str]:
        dialog, found = Dialog(), list[str]()
        dialog.silence(silence_ms)
        dialog.read()
        for number in range(1, 40):
            dialog.speak(320)
            if dialog.pending:
                text = " ".join(map(str, range(10, 10 + number)))
                dialog.answer(msgspec.structs.replace(make_transcript(text), language_probability=0.4))
            found += [f"{number} {event.get('delta')}" for event in dialog.read()]
        return found

    assert len(shown_with(0)) > 10
    assert shown_with(0) == shown_with(64_000)


def test_what_was_understood_is_told_although_a_session_ends_before_it_is_its_turn() -> None:
    dialog = Dialog(idle_s=100.0)
    for _ in range(2):
        dialog.speak(320)
        dialog.silence(640)
    dialog.answer("two", item_id="item_2")
    dialog.wait(100.0)
    assert dialog.close_code() == 1008
    assert [event["item_id"] for event in dialog.of("failed")] == ["item_1"]
    assert [event["transcript"] for event in dialog.of("completed")] == ["two"]


def test_only_what_is_not_understood_is_waiting() -> None:
    """Neither what was answered behind another turn, nor what was heard of a turn before its end."""
    dialog = Dialog(detection=False, max_backlog_ms=10_000)
    dialog.silence(60_000)
    dialog.clear()
    dialog.speak(1_024)
    dialog.answer("one")
    dialog.commit()
    dialog.silence(8_000)
    dialog.commit()
    dialog.fail(item_id="item_2")
    assert dialog.session.admit(2 * 24_000 * 9) is None, "nine seconds besides the first"
    assert dialog.session.admit(2 * 24_000 * 10) is not None


def test_options_of_an_item_are_those_of_its_first_question() -> None:
    dialog = Dialog()
    dialog.speak(640)
    dialog.update({"transcription": {"timestamp_granularities": ["word"]}})
    dialog.answer("hi")
    dialog.silence(640)
    while dialog.pending:
        dialog.answer("hi")
    assert "words" not in dialog.of("completed")[0]
