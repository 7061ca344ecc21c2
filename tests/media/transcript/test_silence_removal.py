"""What is left out of a recording, and the times of its transcript."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
import trio
from sensorium.actors.speech.transcriber import Transcriber
from sensorium.media.speech.voice_activity import FloatArray, VoiceActivityModel
from sensorium.media.transcript.joining import Passage
from sensorium.media.transcript.silence_removal import Restorer, Splice, splice
from sensorium.protocols.transcription.transcript import (
    CueLayout,
    Segment,
    SpeechFilter,
    Transcript,
    TranscriptionOptions,
    Word,
)
from support.scripted_speech import ScriptedFamily

SECOND = 16_000


def segment(
    number: int, start: float, end: float, text: str, seek: int = 0, tokens: tuple[int, ...] = ()
) -> Segment:
    return Segment(number, seek, start, end, text, tokens, 0.0, 0.0, 1.0, 0.0)


def one_letter(token_id: int) -> bytes:
    return chr(token_id).encode()


def restored(kept: Splice, transcript: Transcript) -> Transcript:
    """As if each segment with its words were a range's, and as if all were one range's."""
    together, apart = (Restorer(kept, one_letter, CueLayout()) for _ in range(2))
    passage = Passage(transcript.segments, transcript.words)
    assert together.push(passage).words == together.whole(transcript).words
    for each, timed in zip(passage.segments, passage.timed_segments(), strict=True):
        apart.push(Passage((each,), timed.words))
    assert apart.whole(transcript) == together.whole(transcript)
    return together.whole(transcript)


def test_times_are_those_of_the_whole_recording() -> None:
    kept = Splice(
        np.zeros(5 * SECOND, np.float32), ((SECOND, 3 * SECOND), (10 * SECOND, 13 * SECOND)), 20 * SECOND
    )
    words = (Word("one", 0.5, 1.0), Word("two", 1.9, 2.3), Word("three", 2.4, 4.0))
    found = restored(
        kept,
        Transcript(
            "one two three",
            "en",
            5.0,
            segments=(segment(0, 0.5, 1.0, "one"), segment(1, 1.9, 4.0, "two three", 100)),
            words=words,
        ),
    )
    assert found.duration == 20.0
    assert found.words == (Word("one", 1.5, 2.0), Word("two", 10.0, 10.3), Word("three", 10.4, 12.0))
    assert [(each.start, each.end) for each in found.segments] == [(1.5, 2.0), (10.0, 12.0)]
    assert found.segments[1].seek == 200
    untimed = restored(kept, Transcript("a", "en", 5.0, segments=(segment(0, 0.0, 5.0, "a"),)))
    assert [(each.start, each.end) for each in untimed.segments] == [(1.0, 13.0)]


def test_a_cut_is_not_inside_a_sentence_whose_first_word_lies_in_front_of_it() -> None:
    kept = Splice(np.zeros(4 * SECOND, np.float32), ((0, 2 * SECOND), (8 * SECOND, 10 * SECOND)), 10 * SECOND)
    words = (Word("arrives.", 0.5, 1.5), Word("I", 1.6, 2.0), Word("have", 2.0, 2.6))
    said = (segment(0, 0.5, 1.5, "arrives."), segment(1, 1.6, 2.6, "I have"))
    found = restored(kept, Transcript("arrives. I have", "en", 4.0, segments=said, words=words))
    assert [(each.start, each.end) for each in found.segments] == [(0.5, 1.5), (8.0, 8.6)]
    assert found.words[1].start == 8.0


def test_a_segment_ends_where_a_second_or_more_was_left_out() -> None:
    """So that no subtitle stands in the silence; text and tokens are shared out."""
    regions = (0, 2 * SECOND), (30 * SECOND, 31 * SECOND), (31 * SECOND + SECOND // 2, 33 * SECOND)
    kept = Splice(np.zeros(9 * SECOND // 2, np.float32), regions, 40 * SECOND)
    text = "Dial,  the new location, and wait"
    words = tuple(
        Word(word, at, at + 0.5)
        for word, at in zip(text.split(), (1.4, 1.9, 2.4, 2.95, 3.5, 4.0), strict=True)
    )
    tokens = tuple(map(ord, text))
    said = segment(0, 1.4, 4.5, text, tokens=tokens), segment(1, 4.5, 4.5, " x")
    found = restored(kept, Transcript(f"{text} x", "en", 4.5, segments=said, words=words))
    assert [(each.id, each.start, each.end, each.text) for each in found.segments] == [
        (0, 1.4, 1.9, "Dial,"),
        (1, 30.0, 33.0, text[5:]),
        (2, 33.0, 33.0, " x"),
    ]
    assert [len(each.tokens) for each in found.segments] == [5, len(text) - 5, 0]
    assert "".join(each.text for each in found.segments) == found.text


def test_what_is_no_speech_is_left_out() -> None:
    path = Path(__file__).parents[3] / "examples" / "data" / "kitchen_lights.wav"
    speech, rate = soundfile.read(path, dtype="float32")
    assert rate == SECOND
    gap = np.zeros(5 * SECOND, np.float32)
    samples = np.concatenate((gap, speech, gap, speech, gap)).astype(np.float32)
    model = VoiceActivityModel()
    kept = splice(samples, model, SpeechFilter())
    assert len(kept.regions) == 2
    assert len(kept.samples) < 2 * (len(speech) + SECOND)
    assert all(
        np.array_equal(samples[start:end], part)
        for (start, end), part in zip(
            kept.regions, np.split(kept.samples, [kept.regions[0][1] - kept.regions[0][0]]), strict=True
        )
    )
    assert len(splice(samples, model, SpeechFilter(min_silence_ms=30_000)).regions) == 1
    tight = splice(samples, model, SpeechFilter(padding_ms=0))
    assert len(tight.samples) < len(kept.samples)
    nothing = splice(gap, model, SpeechFilter())
    assert restored(nothing, Transcript("", "", 0.0)) == Transcript("", "", 5.0)


class Leaving(VoiceActivityModel):
    """Whoever asked has left when the first frame is heard."""

    def __init__(self, scope: trio.CancelScope) -> None:
        self._scope = scope
        self.num_frames = 0

    def score(self, frames: FloatArray, states: FloatArray) -> tuple[FloatArray, FloatArray]:
        self.num_frames += 1
        trio.from_thread.run_sync(self._scope.cancel)
        return np.zeros(len(frames), np.float32), states


@pytest.mark.parametrize("speech_filter", [SpeechFilter(), None], ids=["for speech", "for places to cut"])
async def test_two_hours_are_not_listened_to_for_a_client_that_left(
    speech_filter: SpeechFilter | None,
) -> None:
    with trio.CancelScope() as scope:
        model = Leaving(scope)
        options = TranscriptionOptions(speech_filter=speech_filter)
        samples = np.zeros(300 * SECOND, np.float32)
        await Transcriber(ScriptedFamily(), model).transcribe(samples, options)
    assert scope.cancelled_caught
    assert model.num_frames <= 60 * SECOND / 512
