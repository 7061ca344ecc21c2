"""Where an answer's sentences are cut: off the loop, as that takes up to 50 µs a character."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
from sensorium.actors.speech.channels import transcribe_channels
from sensorium.actors.speech.recipe import transcribe_ranges
from sensorium.actors.speech.recording import Recording
from sensorium.actors.speech.recording_state import Memory
from sensorium.protocols.engine.messages import Lane
from sensorium.protocols.transcription.transcript import Segment, Transcript, TranscriptionOptions
from support.scripted_speech import RANGE_SAMPLES, ScriptedFamily, scripted_audio

LONG = "字" * 130
OPTIONS = {
    "segments": TranscriptionOptions(segment_timestamps=True),
    "silences": TranscriptionOptions(segment_timestamps=True, max_silence_s=0.5),
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
async def test_a_long_answer_is_cut_off_the_loop(options: TranscriptionOptions) -> None:
    family = ScriptedFamily(("zh", LONG))
    threads = set[threading.Thread]()

    def bytes_of(token_id: int) -> bytes:
        threads.add(threading.current_thread())
        return b"x"

    family.facts = replace(family.facts, bytes_of=bytes_of)
    samples = scripted_audio(1)
    transcript = await transcribe_ranges(
        family,
        Recording(family, lambda start, end: samples[start:end]),
        [(0, RANGE_SAMPLES)],
        Memory(),
        options,
        lane=Lane(),
    )
    assert transcript.text == LONG
    assert threads
    assert threading.current_thread() not in threads


async def test_channels_with_much_text_are_read_together_off_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = list[threading.Thread]()

    def read_together(channels: list[Transcript]) -> Transcript:
        threads.append(threading.current_thread())
        return channels[0]

    monkeypatch.setattr("sensorium.actors.speech.channels.together", read_together)

    async def transcribe(samples: object, options: TranscriptionOptions) -> Transcript:
        return Transcript(text=LONG * 20, language="zh", duration=1.0, segments=(SEGMENT,))

    found = await transcribe_channels(transcribe, np.zeros((2, 10), np.float32), TranscriptionOptions())
    assert found.segments[0].channel == 0
    assert len(threads) == 1
    assert threading.current_thread() not in threads


SEGMENT = Segment(
    id=0,
    seek=0,
    start=0.0,
    end=1.0,
    text=LONG,
    tokens=(),
    temperature=0.0,
    avg_logprob=0.0,
    compression_ratio=1.0,
    no_speech_prob=0.0,
)
