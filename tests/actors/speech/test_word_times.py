"""Times that clients get for words and segments: near the truth, in order, inside the audio."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from sensorium.actors.speech.transcriber import Transcriber
from sensorium.media.speech.voice_activity import VoiceActivityModel
from sensorium.protocols.transcription.subtitles import srt
from sensorium.protocols.transcription.transcript import Transcript, TranscriptionOptions
from support.asr_folder import make_audio
from support.running_speech import random_asr_folder, running_speech, sound
from support.timed_speech import LANGUAGES, mean_error_s, timed_speech

pytestmark = pytest.mark.slow

BAR_S = 0.12
TIMED = TranscriptionOptions(language="en", word_timestamps=True, segment_timestamps=True)


def check_order(transcript: Transcript) -> None:
    for parts in (transcript.words, transcript.segments):
        spans = [(part.start, part.end) for part in parts]
        assert all(0 <= start <= end <= transcript.duration + 0.001 for start, end in spans)
        assert all(left[1] <= right[0] for left, right in itertools.pairwise(spans))
    assert all(word.start < word.end for word in transcript.words)


async def test_whisper_times_words_and_segments_within_the_bar() -> None:
    async with running_speech("tiny-whisper") as running:
        for language in LANGUAGES:
            true = timed_speech(language)
            options = TranscriptionOptions(language=language, word_timestamps=True, segment_timestamps=True)
            transcript = await running.speech.transcribe(true.samples, options)
            assert transcript.text == true.text
            assert mean_error_s(transcript.words, true.words) <= BAR_S
            assert transcript.words[0].start == pytest.approx(true.words[0].start, abs=0.05)
            check_order(transcript)
            first = [0, *(i + 1 for i, word in enumerate(true.words[:-1]) if word.word[-1] in ".?!")]
            assert [segment.start for segment in transcript.segments] == pytest.approx(
                [true.words[index].start for index in first], abs=0.05
            )
            assert transcript.segments[-1].end == transcript.words[-1].end


async def test_segments_alone_have_the_same_times_and_bring_no_words() -> None:
    true = timed_speech("es")
    late = np.concatenate((np.zeros(16_000, np.float32), true.samples))
    async with running_speech("tiny-whisper") as running:
        alone = await running.speech.transcribe(
            late, TranscriptionOptions(language="es", segment_timestamps=True)
        )
        both = await running.speech.transcribe(
            late, TranscriptionOptions(language="es", segment_timestamps=True, word_timestamps=True)
        )
    assert alone.segments == both.segments
    assert alone.words == ()
    assert alone.segments[0].start == pytest.approx(1.0 + true.words[0].start, abs=0.05)
    assert srt(alone).startswith("1\n00:00:01,")


@pytest.mark.parametrize("model", ["tiny-whisper", "tiny-qwen3-asr"])
async def test_nothing_is_said_in_the_noise_before_speech(model: str) -> None:
    """Words, segments and so subtitles begin when somebody speaks."""
    true = timed_speech("en")
    noise = 0.02 * np.random.default_rng(1).standard_normal(48_000).astype(np.float32)
    async with running_speech(model) as running:
        speech = Transcriber(running.speech.family, VoiceActivityModel())
        transcript = await speech.transcribe(np.concatenate((noise, true.samples)), TIMED)
    assert transcript.words[0].word == true.words[0].word
    assert transcript.words[0].start == pytest.approx(3.0 + true.words[0].start, abs=0.25)
    assert transcript.segments[0].start == transcript.words[0].start


async def test_times_are_in_order_across_windows() -> None:
    """A model that writes nonsense about noise, in windows of 2 s."""
    async with running_speech() as running:
        transcript = await running.speech.transcribe(sound(16_000 * 7, seed=6), TIMED)
    assert transcript.words
    check_order(transcript)


async def test_qwen_times_words_by_the_audio_and_cuts_sentences() -> None:
    """A random model's nonsense, also across segments: all of the text, every token, in order."""
    audio = make_audio(3, 12.0)
    async with running_speech(random_asr_folder()) as asr:
        plain = await asr.speech.transcribe(audio, TranscriptionOptions(language="en"))
        timed = await asr.speech.transcribe(audio, TIMED)
        alone = await asr.speech.transcribe(
            audio, TranscriptionOptions(language="en", segment_timestamps=True)
        )
    assert timed.text == plain.text
    assert (plain.words, alone.words, alone.segments) == ((), (), timed.segments)
    letters = "".join(timed.text.split())
    assert letters
    assert "".join("".join(word.word.split()) for word in timed.words) == letters
    assert "".join("".join(part.text.split()) for part in timed.segments) == letters
    assert len(timed.segments) > 1
    tokens = [token for part in timed.segments for token in part.tokens]
    assert tokens == [token for part in plain.segments for token in part.tokens]
    assert [part.id for part in timed.segments] == list(range(len(timed.segments)))
    check_order(timed)
