"""Bytes of any format reach the session's timeline whole, and a refused append changes nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.actors.live.audio import Input, ListeningMachine, pieces
from sensorium.actors.speech.model import Samples
from sensorium.media.voice_activity import FRAME_SAMPLES, VoiceActivityModel, VoiceActivityStream
from sensorium.protocols.audio import AudioFormat
from sensorium.protocols.realtime import (
    InputAudioBufferClear,
    InputAudioBufferCommit,
    InputAudioBufferSpeechStarted,
)
from sensorium.realtime.config import RealtimeModel, SessionConfig
from sensorium.realtime.effects import Effect, Send
from sensorium.realtime.session import Session
from support.ears import Stream, settled

CONFIG = SessionConfig(model="m", models=(RealtimeModel("m"),), max_append_bytes=100_000)
FORMATS = [
    AudioFormat("pcm16", 16_000),
    AudioFormat("pcm16", 24_000),
    AudioFormat("pcm16", 48_000),
    AudioFormat("pcmu", 8_000),
    AudioFormat("float32", 16_000),
]


class Silence:
    """Nobody speaks."""

    def push(self, samples: Samples) -> list[tuple[int, float]]:
        return []

    def reset(self) -> None:
        pass


SILENCE = Silence()


def machine(audio_format: AudioFormat, config: SessionConfig = CONFIG) -> ListeningMachine:
    numbers = iter(range(1_000_000))
    session = Session(config, lambda prefix: f"{prefix}_{next(numbers)}")
    session.open(now=0.0, created=0)
    ears = ListeningMachine(session)
    ears.configure(audio_format, now=0.0)
    return ears


def append(ears: ListeningMachine, audio: bytes, stream: Stream = SILENCE) -> list[Effect]:
    return [effect for piece in pieces(audio) for effect in receive(ears, piece, stream)]


def receive(ears: ListeningMachine, event: Input, stream: Stream = SILENCE) -> list[Effect]:
    return list(settled(ears, ears.receive(event, now=0.0), stream, now=0.0))


def codes(effects: list[Effect]) -> list[object]:
    events = [effect.event for effect in effects if isinstance(effect, Send)]
    return [event.error.code for event in events if hasattr(event, "error")]


@pytest.mark.parametrize("audio_format", FORMATS, ids=str)
def test_a_commit_brings_every_sample_onto_the_timeline(audio_format: AudioFormat) -> None:
    ears = machine(audio_format)
    for size in (1, 7, 333, 12_000):
        append(ears, bytes(size * audio_format.bytes_per_sample))
    receive(ears, InputAudioBufferCommit())
    expected = (1 + 7 + 333 + 12_000) * 16_000 / audio_format.rate
    assert abs(ears.store.end - expected) <= 1


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(0, 40_000), max_size=5), seed=st.integers(0, 99))
def test_samples_arrive_unchanged_however_they_are_cut(sizes: list[int], seed: int) -> None:
    ears = machine(AudioFormat("pcm16", 16_000))
    wave = np.random.default_rng(seed).integers(-3_000, 3_000, sum(sizes)).astype("<i2")
    start = 0
    for size in sizes:
        append(ears, wave[start : start + size].tobytes())
        start += size
    np.testing.assert_array_equal(ears.store.copy(0, ears.store.end), wave.astype(np.float32) / 32_768)


def test_a_refused_append_changes_nothing() -> None:
    ears = machine(AudioFormat("pcm16", 16_000))
    append(ears, bytes(2_000))
    # Odd over several pieces: the whole append is refused by its first piece.
    assert codes(append(ears, bytes(50_001))) == ["invalid_audio"]
    assert len(codes(append(ears, bytes(200_000)))) == 1
    assert ears.store.end == 1_000
    append(ears, bytes(2_000))
    assert ears.store.end == 2_000


def test_floats_that_are_no_numbers_are_refused() -> None:
    ears = machine(AudioFormat("float32", 16_000))
    assert codes(append(ears, np.full(10, np.nan, "<f4").tobytes())) == ["invalid_audio"]
    assert ears.store.end == 0


def test_clear_forgets_what_the_resampler_held() -> None:
    ears = machine(AudioFormat("pcm16", 24_000))
    append(ears, bytes(4_800))
    receive(ears, InputAudioBufferClear())
    end = ears.store.end
    append(ears, bytes(48_000))
    receive(ears, InputAudioBufferCommit())
    assert abs(ears.store.end - end - 16_000) <= 1


def test_a_change_of_format_loses_nothing() -> None:
    ears = machine(AudioFormat("pcm16", 24_000))
    append(ears, bytes(24_000))
    ears.configure(AudioFormat("pcmu", 8_000), now=0.0)
    append(ears, bytes(4_000))
    receive(ears, InputAudioBufferCommit())
    assert abs(ears.store.end - 16_000) <= 2


def starts(effects: list[Effect]) -> list[int]:
    events = [effect.event for effect in effects if isinstance(effect, Send)]
    return [event.audio_start_ms for event in events if isinstance(event, InputAudioBufferSpeechStarted)]


@pytest.mark.parametrize("num_samples", [160, 3_000, 16_000])
def test_turns_50_db_down_are_those_of_loud_speech(num_samples: int) -> None:
    """However the bytes were cut."""
    data = Path(__file__).resolve().parents[3] / "examples" / "data" / "conversation.wav"
    speech = np.asarray(soundfile.read(data, dtype="float32")[0], np.float32)
    model = VoiceActivityModel()
    heard = []
    for gain, size in ((1.0, 8_000), (0.003, num_samples)):
        ears, stream = machine(AudioFormat("float32", 16_000)), VoiceActivityStream(model)
        peak = np.float32(gain / np.abs(speech).max())
        parts = np.split(peak * speech, range(size, len(speech), size))
        heard.append(starts([each for part in parts for each in append(ears, part.tobytes(), stream)]))
    assert len(heard[0]) == len(heard[1]) > 3
    np.testing.assert_allclose(heard[0], heard[1], atol=100)


class Talking:
    """Everybody always speaks."""

    def __init__(self) -> None:
        self._end = 0

    def push(self, samples: Samples) -> list[tuple[int, float]]:
        first, self._end = self._end, self._end + len(samples)
        places = range(first // FRAME_SAMPLES + 1, self._end // FRAME_SAMPLES + 1)
        return [(place * FRAME_SAMPLES, 0.95) for place in places]

    def reset(self) -> None:
        """There is nothing to forget."""


def test_endless_speech_is_cut_where_it_is_quiet() -> None:
    """Though voice activity says nothing of it."""
    config = SessionConfig(model="m", models=(RealtimeModel("m"),), force_turn_s=12.0)
    ears, stream = machine(AudioFormat("float32", 16_000), config), Talking()
    samples = 0.1 * np.random.default_rng(0).standard_normal(14 * 16_000).astype(np.float32)
    samples[160_000:162_000] *= 0.05
    effects = [each for part in np.split(samples, 140) for each in append(ears, part.tobytes(), stream)]
    first, second = starts(effects)
    assert first == 0
    assert second == pytest.approx(10_062, abs=25)
