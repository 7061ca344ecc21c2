"""What a model makes up where hardly anybody speaks is left out; what is said is not judged."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from sensorium.actors.speech.transcriber import Transcriber
from sensorium.media.speech.voice_activity import FRAME_SAMPLES, FloatArray, VoiceActivityModel
from sensorium.media.transcript.plausibility import (
    clear_speech_s,
    is_implausible,
    is_laughter,
    is_trustworthy,
)
from sensorium.media.transcript.range_answer import RangeAnswer, Samples
from sensorium.protocols.transcription.transcript import TranscriptionOptions
from support.scripted_speech import RANGE_SAMPLES, ScriptedFamily

LOOP = "1 %, " * 12


class LastSamples(VoiceActivityModel):
    """A frame's last sample says how likely it is speech."""

    def __init__(self) -> None:
        """It loads nothing."""

    def score(self, frames: FloatArray, states: FloatArray) -> tuple[FloatArray, FloatArray]:
        return frames[:, -1], states


def audio(num_frames: int) -> Samples:
    """A second, place 1 of the script, in which somebody speaks for so many frames."""
    samples = np.zeros(RANGE_SAMPLES, np.float32)
    samples[0] = 1.0
    samples[FRAME_SAMPLES - 1 : num_frames * FRAME_SAMPLES : FRAME_SAMPLES] = 0.9
    return samples


@pytest.mark.parametrize(
    ("answer", "is_language_odd", "expected"),
    [
        (RangeAnswer("Hello.", logprobs=(-0.2, -0.4)), False, False),
        (RangeAnswer("Hello.", logprobs=(-0.2, -0.4)), True, True),
        (RangeAnswer("I am going.", logprobs=(-2.0, -1.4)), False, True),
        (RangeAnswer(LOOP, logprobs=(-0.1,)), False, True),
        (RangeAnswer("Hello."), False, False),
        (RangeAnswer(""), True, False),
    ],
)
def test_what_is_no_answer_one_would_expect(
    answer: RangeAnswer, is_language_odd: bool, expected: bool
) -> None:
    assert is_implausible(answer, is_language_odd=is_language_odd) == expected


def test_only_a_clear_answer_is_relied_on() -> None:
    assert is_trustworthy(RangeAnswer("Hello.", logprobs=(-0.2, -1.4)))
    for answer in (RangeAnswer(""), RangeAnswer("Hello.", logprobs=(-1.4,)), RangeAnswer(LOOP)):
        assert not is_trustworthy(answer)


def test_half_a_minute_of_music_needs_more_than_a_word() -> None:
    assert clear_speech_s(0.5) == clear_speech_s(1.0) < 0.3
    assert clear_speech_s(30.0) == 3.0


CASES = {
    "an odd language": ("pl", "dwa", TranscriptionOptions(), True),
    "a loop": ("en", LOOP.strip(), TranscriptionOptions(), True),
    "an answer like others": ("en", "two", TranscriptionOptions(), False),
    "a language that was named": ("pl", "dwa", TranscriptionOptions(language="pl"), False),
    "a language that was allowed": ("pl", "dwa", TranscriptionOptions(languages=("pl", "en")), False),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("num_frames", [3, 12])
async def test_it_counts_only_where_hardly_anybody_speaks(name: str, num_frames: int) -> None:
    """In files, streamed or not, in partial and in final results alike."""
    code, text, options, is_doubted = CASES[name]
    family = ScriptedFamily((code, text), language_from="detection")
    family.facts = dataclasses.replace(family.facts, odd_languages=frozenset({"pl"}))
    samples = audio(num_frames)
    expected = "" if is_doubted and num_frames == 3 else text
    model = Transcriber(family, LastSamples())
    deltas: list[str] = []
    streamed = await model.transcribe(samples, options, on_delta=deltas.append)
    assert streamed.text == "".join(deltas) == expected
    assert (await model.transcribe(samples, options)).text == expected
    live = model.live(lambda start, end: samples[start:end], options, start=0)
    assert (await live.hypothesis(len(samples), final=False)).text == expected
    assert (await live.hypothesis(len(samples), final=True)).text == expected
    live.close()


@pytest.mark.parametrize(
    ("text", "laughs"),
    [
        ("Ha ha ha", True),
        ("Ha, ha, ha, ha!", True),
        ("Hahaha. Hehe.", True),
        ("Ahahah", True),
        ("Ха-ха-ха", True),
        ("ハハハハッ", True),
        ("ははは。はははー", True),
        ("哈哈哈哈", True),
        ("ㅋㅋㅋㅋ", True),
        ("母は母です", False),
        ("ハハハハ、面白い", False),
        ("はい、はい", False),
        ("Ha!", False),
        ("Ha ha ha, very funny.", False),
        ("Hi. Hi. Hi.", False),
        ("He, he, he", False),
        ("Ja, ja, ja.", False),
        ("", False),
    ],
)
def test_laughter_is_no_word_where_a_model_doubts_that_somebody_speaks(text: str, laughs: bool) -> None:
    assert is_laughter(RangeAnswer(text, no_speech_prob=0.8)) == laughs
    assert not is_laughter(RangeAnswer(text, no_speech_prob=0.05))
