"""Sessions without turns, as a pure machine: questions about chunks, items of segments, commits, clears."""

from __future__ import annotations

import random
from typing import Any

import pytest
from sensorium.protocols.engine.messages import ItemId
from sensorium.protocols.errors import InternalError
from sensorium.protocols.transcription.streaming import ChunkDelay, StreamAnswer, StreamSegment
from sensorium.protocols.transcription.transcript import Transcript, Word
from sensorium.realtime.effects import ContinueStream, EndStream, Transcribe
from sensorium.realtime.events import SegmentsReady, StreamFailed
from sensorium.realtime.session import RealtimeModel
from support.dialogs import COMMITTED, Dialog

DELAYS = tuple(ChunkDelay(80 * rows, 1280 * (rows - 1) + 200, 1280 * rows) for rows in (7, 14, 1))
MODELS = (
    RealtimeModel("small", ("en", "de"), delays=DELAYS, takes_hints=False),
    RealtimeModel("large", delays=DELAYS, takes_hints=False),
    RealtimeModel("other"),
)
CAPTIONS = {"type": "captions", "silence_duration_ms": 500, "max_segment_ms": 2_000}
SECOND = 16_000
ENDED = "input_audio_buffer.utterance_ended"


class Captions(Dialog):
    """A dialog with a stream; words are written where the script says."""

    def __init__(self, **audio: object) -> None:
        super().__init__(models=MODELS)
        self.update({"turn_detection": CAPTIONS, **audio})
        self.read()

    def _check_completed(self, completed: dict[str, Any]) -> None:
        """It was shown as it is: no question is about one item."""
        assert self.text(completed["item_id"]) == completed["transcript"]

    @property
    def asked(self) -> ContinueStream:
        """The newest question."""
        return next(each for each in reversed(self.effects) if isinstance(each, ContinueStream))

    def say(
        self,
        *segments: tuple[float, float, str, bool],
        next_s: float | None = None,
        last_word_end: float | None = None,
    ) -> None:
        """Answer the newest question: start, end, text of each segment, and whether it is over. Seconds."""
        question = self.asked
        found = tuple(
            StreamSegment(
                round(start * SECOND),
                round(end * SECOND),
                Transcript(
                    text,
                    "en",
                    duration=end - start,
                    num_settled=len(text),
                    words=(Word(text, 0.0, last_word_end - start),) if last_word_end else (),
                ),
                is_over,
            )
            for start, end, text, is_over in segments
        )
        after = found[-1].end if found and found[-1].is_over else question.start_sample
        if found and not found[-1].is_over:
            after = found[-1].start
        next_start = after if next_s is None else round(next_s * SECOND)
        self.receive(SegmentsReady(question, StreamAnswer(found, next_start, min(next_start, after))))

    def conclude(self, text: str) -> None:
        """Answer a question about the end of a segment."""
        question = self.asked
        assert question.shown_start is not None
        transcript = Transcript(text, "en", duration=1.0, num_settled=0)
        found = StreamSegment(question.shown_start, question.end_sample, transcript, is_over=True)
        self.receive(
            SegmentsReady(question, StreamAnswer((found,), question.end_sample, question.end_sample))
        )


def test_segments_are_items() -> None:
    session = Captions()
    session.speak(1_000)
    assert session.asked.end_sample == DELAYS[0].last_full(session.num_samples) or session.asked.end_sample
    session.say((0.1, 0.5, "hello", False))
    assert session.names() == ["delta"]
    session.silence(1_000)
    session.say((0.1, 0.5, "hello world", False))
    session.silence(600)
    session.say((0.1, 1.4, "hello world", True))
    assert session.names() == ["delta", *COMMITTED, "completed"]
    (committed,) = session.of("committed")
    assert (committed["audio_start_ms"], committed["audio_end_ms"]) == (100, 1_400)
    (completed,) = session.of("completed")
    assert completed["transcript"] == session.text(completed["item_id"]) == "hello world"
    assert session.asked.start_sample == round(1.4 * SECOND)
    assert not any(isinstance(effect, Transcribe) for effect in session.effects)


def test_one_answer_may_hold_several() -> None:
    session = Captions()
    session.append_audio(8 * SECOND, 0.9)
    session.say((0.1, 1.0, "one", True), (1.2, 2.0, "two", True), (2.5, 3.0, "three", False))
    assert session.names() == ["delta", *COMMITTED, "completed"] * 2 + ["delta"]
    commits = session.of("committed")
    assert commits[1]["previous_item_id"] == commits[0]["item_id"]


def test_one_question_at_a_time_about_all_full_chunks() -> None:
    session = Captions()
    for _ in range(100):
        session.speak(96)
    questions = [each for each in session.effects if isinstance(each, ContinueStream)]
    assert len(questions) == 1
    session.say()
    questions = [each for each in session.effects if isinstance(each, ContinueStream)]
    assert len(questions) == 2
    assert questions[1].end_sample == DELAYS[0].last_full(session.num_samples)


def test_silence_keeps_no_audio() -> None:
    session = Captions()
    for _ in range(200):
        session.silence(1_000)
        question = session.asked
        session.say(next_s=max(0, question.end_sample / SECOND - 2))
        assert session.num_samples - session.forgotten < 5 * SECOND
    assert session.names() == []


def test_a_commit_ends_the_segment_with_all_that_was_said() -> None:
    session = Captions()
    session.speak(1_000)
    session.say((0.1, 0.5, "hello", False))
    session.read()
    session.speak(300)
    session.commit()
    assert session.names() == COMMITTED
    question = session.asked
    assert (question.shown_start, question.end_sample) == (1_600, session.num_samples)
    session.conclude("hello there")
    assert session.names() == ["delta", "completed"]
    session.commit()  # nothing new: no error, and no words
    assert session.names() == [*COMMITTED, "completed"]
    session.speak(1_000)
    assert session.asked.start_sample == question.end_sample
    assert session.asked.stream_id == question.stream_id, "the stream goes on"


def test_a_commit_does_not_wait_for_the_answer_before() -> None:
    """What that would have said is said by the answer to the commit."""
    session = Captions()
    session.speak(1_000)
    late = session.asked
    session.commit()
    assert session.names() == COMMITTED
    session.receive(SegmentsReady(late, StreamAnswer((), 0, 0)))
    session.conclude("hello")
    assert session.names() == ["delta", "completed"]


def test_a_clear_drops_what_was_not_committed() -> None:
    session = Captions()
    session.speak(1_000)
    session.say((0.1, 0.5, "hello", False))
    session.clear()
    assert session.names() == ["delta", "cleared"]
    cleared_at = session.num_samples
    session.speak(1_000)
    assert session.asked.start_sample == cleared_at


def test_a_flush_makes_no_item_of_silence() -> None:
    session = Captions()
    session.silence(3_000)
    session.say()
    session.client({"type": "input_audio_buffer.flush"})
    (flushed,) = session.of("input_audio_buffer.flushed")
    assert flushed["item_id"] is None
    session.speak(300)  # heard by nobody yet
    session.client({"type": "input_audio_buffer.flush"})
    assert session.of("input_audio_buffer.flushed")[1]["item_id"] is not None


def test_a_failure_is_an_item_and_the_stream_goes_on() -> None:
    session = Captions()
    session.speak(1_000)
    question = session.asked
    session.receive(StreamFailed(question, InternalError("broken"), question.end_sample))
    assert session.names() == [*COMMITTED, "failed"]
    session.speak(1_000)
    assert session.asked is question, "not an item that failed for each chunk"
    session.speak(1_500)
    assert session.asked.start_sample == question.end_sample
    session.say((1.2, 1.6, "again", False))
    assert session.names() == ["delta"]


def test_other_options_begin_another_stream() -> None:
    session = Captions()
    session.speak(1_000)
    session.say((0.1, 0.5, "hello", False))
    first = session.asked.stream_id
    session.update({"transcription": {"language": "de"}})
    assert session.names() == ["delta", "session.updated", *COMMITTED]
    session.conclude("hello")
    assert session.names() == ["completed"]
    assert EndStream(first) in session.effects
    session.speak(1_000)
    assert session.asked.stream_id != first
    assert session.asked.stream_start == session.asked.start_sample


def test_a_bound_may_change_without_another_stream() -> None:
    session = Captions()
    session.speak(1_000)
    session.say()
    first = session.asked
    session.update({"turn_detection": {"type": "captions", "max_segment_ms": 5_000}})
    session.speak(1_000)
    assert session.asked.stream_id == first.stream_id
    assert session.asked.segmentation.max_length == 5 * SECOND
    assert session.asked.segmentation.silence == SECOND // 2


@pytest.mark.parametrize("change", [{"turn_detection": {"type": "server_vad"}}, {"turn_detection": None}])
def test_turns_need_another_session(change: dict[str, object]) -> None:
    session = Captions()
    session.session.admit(100)
    session.speak(100)
    session.update(change)
    (error,) = session.of("error")
    assert error["error"]["param"] == "session.audio.input.turn_detection.type"
    assert error["error"]["code"] == "captions_are_fixed"


def test_a_model_that_does_not_stream_refuses_it() -> None:
    session = Dialog(models=MODELS)
    session.update({"turn_detection": CAPTIONS, "transcription": {"model": "other"}})
    (error,) = session.of("error")
    assert error["error"]["param"] == "session.audio.input.turn_detection.type"
    assert "small, large" in error["error"]["message"]
    session.update({"turn_detection": CAPTIONS})
    session.update({"transcription": {"model": "other"}})
    assert len(session.of("error")) == 2


@pytest.mark.parametrize(
    ("field", "value"), [("silence_duration_ms", 100), ("max_segment_ms", 61_000), ("threshold", 0.5)]
)
def test_wrong_values_are_named(field: str, value: float) -> None:
    session = Dialog(models=MODELS)
    session.update({"turn_detection": {"type": "captions", field: value}})
    (error,) = session.of("error")
    assert field in error["error"]["message"] + error["error"]["param"]


def test_both_channels_have_streams() -> None:
    session = Captions(format={"type": "audio/pcm", "rate": 16_000, "channels": 2}, multichannel=True)
    session.together(1_000, True, True)
    first, second = (each for each in session.effects if isinstance(each, ContinueStream))
    assert (first.channel, second.channel) == (0, 1)
    assert first.stream_id != second.stream_id
    found = StreamSegment(0, SECOND // 2, Transcript("hi", "en", duration=0.5, num_settled=2), is_over=True)
    session.receive(SegmentsReady(second, StreamAnswer((found,), SECOND // 2, 0)))
    (completed,) = session.of("completed")
    assert (completed["channel"], completed["transcript"]) == (1, "hi")


@pytest.mark.parametrize("seed", range(20))
def test_every_commit_is_answered_in_order(seed: int) -> None:
    """Speech, late answers, failures, commits, clears and changes of mind, in any order."""
    rng, session = random.Random(seed), Captions()
    for _ in range(120):
        kind = rng.choice(
            ("speak", "speak", "silence", "commit", "flush", "clear", "answer", "answer", "fail")
        )
        in_flight = session.session._channels._channels[0].listener._in_flight  # type: ignore[union-attr]
        if kind == "speak":
            session.speak(rng.choice((32, 320, 1_600)))
        elif kind == "silence":
            session.silence(rng.choice((96, 960)))
        elif kind == "commit":
            session.commit()
        elif kind == "flush":
            session.client({"type": "input_audio_buffer.flush"})
        elif kind == "clear" and rng.random() < 0.2:
            session.clear()
        elif in_flight is not None and kind == "fail" and rng.random() < 0.3:
            question = session.asked
            session.receive(StreamFailed(question, InternalError("broken"), question.start_sample))
        elif in_flight is not None:
            if session.asked.shown_start is not None:
                session.conclude(rng.choice(("", "all of it")))
            else:
                start, end = (
                    each / SECOND for each in (session.asked.start_sample, session.asked.end_sample)
                )
                session.say((start, end, "word", True), next_s=end)
    while session.session._channels._channels[0].listener._in_flight is not None:  # type: ignore[union-attr]
        if session.asked.shown_start is None:
            session.say()
            break
        session.conclude("rest")
    committed = [event["item_id"] for event in session.of("committed")]
    answered = [
        ItemId(event["item_id"])
        for event in session.sent
        if event["type"].endswith((".completed", "transcription.failed"))
    ]
    assert answered == committed


def test_an_utterance_ends_when_no_word_has_followed_in_its_segment_or_behind() -> None:
    session = Captions(transcription={"utterance_end_ms": 1_000})
    session.speak(1_000)
    session.say((0.1, 0.9, "hello", False), last_word_end=0.9)
    session.silence(600)
    session.say((0.1, 1.4, "hello", True), last_word_end=0.9)
    session.silence(400)
    session.say()
    assert session.of(ENDED) == [], "not so long after the last word"
    (item,) = {event["item_id"] for event in session.of("completed")}
    session.silence(2_000)
    session.say()  # of its first chunk
    session.say()
    (ended,) = session.of(ENDED)
    assert ended["item_id"] == item
    assert ended["last_word_end_ms"] == 900
    session.silence(2_000)
    session.say()  # of its first chunk
    session.say()
    assert session.of(ENDED) == [ended], "it is reported once"
    start = session.num_samples / SECOND
    session.speak(1_000)
    session.say((start, start + 0.9, "again", False), last_word_end=start + 0.9)
    for _ in range(4):
        session.silence(700)
        session.say((start, start + 0.9, "again", False), last_word_end=start + 0.9)
    _, ended = session.of(ENDED)
    assert ended["item_id"] != item, "of the segment that is still open"
