"""The made-up model answers as a trained one would: header, words that go on, an end when they are enough."""

from __future__ import annotations

import re
from pathlib import Path

import make_random_qwen3_asr as example
import numpy as np
import pytest
import soundfile
from sensorium import LocalEngine
from sensorium.protocols.transcription.transcript import Transcript
from support.asr_folder import make_asr_folder

pytestmark = pytest.mark.slow

RATE = 3.3
TALK = Path(__file__).parents[2] / "examples" / "data" / "conversation.wav"
SECONDS = (4.0, 8.0, 16.0)


@pytest.fixture(scope="module")
def transcripts(tmp_path_factory: pytest.TempPathFactory) -> list[Transcript]:
    """Of the beginnings of one recording."""
    shape = example.SHAPES["tiny"]
    tokenizer = example.tokenizer_of(shape)
    model = example.make_model(shape, tokenizer, RATE)
    folder = make_asr_folder(tmp_path_factory.mktemp("asr"), shape=shape, model=model, tokenizer=tokenizer)
    return transcribed(folder)


def transcribed(folder: Path) -> list[Transcript]:
    talk, rate = soundfile.read(TALK, dtype="float32")
    samples = np.tile(talk[rate // 2 : rate * 5 // 2], 8)  # a sentence, again and again without a pause
    with LocalEngine(str(folder)) as engine:
        return [engine.transcribe((samples[: int(rate * each)], rate)) for each in SECONDS]


def test_answers_have_the_length_of_speech(transcripts: list[Transcript]) -> None:
    for transcript, seconds in zip(transcripts, SECONDS, strict=True):
        assert len(transcript.text.split()) == pytest.approx(RATE * seconds, rel=0.15)


def test_more_audio_goes_on_with_the_answer(transcripts: list[Transcript]) -> None:
    first, second, third = (transcript.text for transcript in transcripts)
    assert second.startswith(first)
    assert third.startswith(second)
    assert re.fullmatch(r"[A-Z][a-z]+( [a-z]+)+", third)


def test_answers_name_their_language(transcripts: list[Transcript]) -> None:
    assert {transcript.language for transcript in transcripts} == {"en"}
