"""Bytes of any format reach the session's timeline whole, and a refused append changes nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from sensorium.actors.live.audio import AudioBatch, ListeningMachine, pieces
from sensorium.media.audio.resample import StreamingResampler
from sensorium.media.speech.voice_activity import FRAME_SAMPLES, VoiceActivityModel, VoiceActivityStream
from sensorium.media.transcript.range_answer import Samples
from sensorium.protocols.realtime.events import (
    InputAudioBufferClear,
    InputAudioBufferCommit,
    InputAudioBufferSpeechStarted,
)
from sensorium.protocols.realtime.session import AudioPatch, FormatPatch, InputPatch, SessionPatch
from sensorium.protocols.shared.audio_format import AudioFormat
from sensorium.realtime.config import RealtimeModel, SessionConfig
from sensorium.realtime.effects import Effect, Send
from sensorium.realtime.events import AudioAppended, SessionEvent
from sensorium.realtime.session import Session
from support.vad_streams import LoudnessStream, Stream, settled

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
    listening = ListeningMachine(session)
    listening.configure(audio_format, session.num_channels, now=0.0)
    return listening


def multichannel(audio_format: AudioFormat) -> ListeningMachine:
    """It hears every channel for itself."""
    resume_event = InputPatch(
        FormatPatch("audio/pcm", audio_format.rate, audio_format.num_channels), multichannel=True
    )
    return machine(audio_format, replace(CONFIG, initial=SessionPatch(audio=AudioPatch(resume_event))))


def append(listening: ListeningMachine, audio: bytes, stream: Stream = SILENCE) -> list[Effect]:
    return [effect for piece in pieces(audio) for effect in receive(listening, AudioBatch([piece]), stream)]


def receive(
    listening: ListeningMachine, event: AudioBatch | SessionEvent, stream: Stream = SILENCE
) -> list[Effect]:
    return list(settled(listening, listening.receive(event, now=0.0), stream, now=0.0))


def codes(effects: list[Effect]) -> list[object]:
    events = [effect.event for effect in effects if isinstance(effect, Send)]
    return [event.error.code for event in events if hasattr(event, "error")]


@pytest.mark.parametrize("audio_format", FORMATS, ids=str)
def test_a_commit_brings_every_sample_onto_the_timeline(audio_format: AudioFormat) -> None:
    listening = machine(audio_format)
    for size in (1, 7, 333, 12_000):
        append(listening, bytes(size * audio_format.bytes_per_sample))
    receive(listening, InputAudioBufferCommit())
    expected = (1 + 7 + 333 + 12_000) * 16_000 / audio_format.rate
    assert abs(listening.tracks[0].store.end - expected) <= 1


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(0, 40_000), max_size=5), seed=st.integers(0, 99))
def test_samples_arrive_unchanged_however_they_are_cut(sizes: list[int], seed: int) -> None:
    listening = machine(AudioFormat("pcm16", 16_000))
    wave = np.random.default_rng(seed).integers(-3_000, 3_000, sum(sizes)).astype("<i2")
    start = 0
    for size in sizes:
        append(listening, wave[start : start + size].tobytes())
        start += size
    np.testing.assert_array_equal(
        listening.tracks[0].store.copy(0, listening.tracks[0].store.end), wave.astype(np.float32) / 32_768
    )


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 20_000), min_size=1, max_size=8),
    cuts=st.lists(st.booleans(), min_size=40, max_size=40),
    rate=st.sampled_from([16_000, 24_000]),
)
def test_pieces_that_come_together_are_heard_as_one_by_one(
    sizes: list[int], cuts: list[bool], rate: int
) -> None:
    """Odd sizes are refused, by themselves."""
    noise = np.random.default_rng(7).bytes(sum(sizes))
    appends = [noise[sum(sizes[:place]) : sum(sizes[: place + 1])] for place in range(len(sizes))]
    alone, together = (machine(AudioFormat("pcm16", rate)) for _ in range(2))
    stream = LoudnessStream()
    first = [effect for audio in appends for effect in append(alone, audio, stream)]
    stream = LoudnessStream()
    second, batch = [], []
    for piece, ends in zip((piece for audio in appends for piece in pieces(audio)), cuts, strict=False):
        batch.append(piece)
        if ends:
            second += receive(together, AudioBatch(batch), stream)
            batch = []
    second += receive(together, AudioBatch(batch), stream)
    assert codes(first) == codes(second)
    assert starts(first) == starts(second)
    assert alone.tracks[0].store.end == together.tracks[0].store.end == together.num_samples_received
    np.testing.assert_array_equal(
        alone.tracks[0].store.copy(0, alone.tracks[0].store.end),
        together.tracks[0].store.copy(0, together.tracks[0].store.end),
    )


@settings(max_examples=20, deadline=None)
@given(bad=st.sets(st.integers(0, 7), max_size=2), room_ms=st.integers(20, 60), is_float=st.booleans())
def test_tiny_appends_that_come_together_are_refused_one_by_one(
    bad: set[int], room_ms: int, is_float: bool
) -> None:
    """Those of sizes or numbers that cannot be, and those beyond the backlog; the others are stored."""
    good, wrong = bytes(240), bytes(239)  # 5 ms of pcm16, of the format that a session has at first
    if is_float:
        good, wrong, room_ms = bytes(480), np.full(120, np.nan, "<f4").tobytes(), 10_000
    appends = [wrong if number in bad else good for number in range(8)]
    audio_format = AudioFormat("float32" if is_float else "pcm16", 24_000)
    alone, together = (machine(audio_format, replace(CONFIG, max_backlog_ms=room_ms)) for _ in range(2))
    for each in (alone, together):
        append(each, good)
    first = [effect for audio in appends for effect in append(alone, audio)]
    second = receive(together, AudioBatch([piece for audio in appends for piece in pieces(audio)]), SILENCE)
    assert codes(first) == codes(second)
    assert alone.tracks[0].store.end == together.tracks[0].store.end


def test_tiny_appends_that_come_together_reach_the_session_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    appended = list[int]()
    receive_event = Session.receive

    def counted(session: Session, event: SessionEvent, *, now: float) -> list[Effect]:
        if isinstance(event, AudioAppended):
            appended.append(event.num_samples)
        return receive_event(session, event, now=now)

    monkeypatch.setattr(Session, "receive", counted)
    ears = machine(AudioFormat("pcm16", 16_000))
    append(ears, bytes(160))
    appended.clear()
    receive(ears, AudioBatch([piece for _ in range(20) for piece in pieces(bytes(160))]), SILENCE)
    assert appended == [1600]


def test_a_refused_append_changes_nothing() -> None:
    listening = machine(AudioFormat("pcm16", 16_000))
    append(listening, bytes(2_000))
    # Odd over several pieces: the whole append is refused by its first piece.
    assert codes(append(listening, bytes(50_001))) == ["invalid_audio"]
    assert len(codes(append(listening, bytes(200_000)))) == 1
    assert listening.tracks[0].store.end == 1_000
    append(listening, bytes(2_000))
    assert listening.tracks[0].store.end == 2_000


def test_floats_that_are_no_numbers_are_refused() -> None:
    listening = machine(AudioFormat("float32", 16_000))
    assert codes(append(listening, np.full(10, np.nan, "<f4").tobytes())) == ["invalid_audio"]
    assert listening.tracks[0].store.end == 0


def test_clear_forgets_what_the_resampler_held() -> None:
    listening = machine(AudioFormat("pcm16", 24_000))
    append(listening, bytes(4_800))
    receive(listening, InputAudioBufferClear())
    end = listening.tracks[0].store.end
    append(listening, bytes(48_000))
    receive(listening, InputAudioBufferCommit())
    assert abs(listening.tracks[0].store.end - end - 16_000) <= 1


@pytest.mark.parametrize("rate", [8_000, 24_000, 48_000])
@pytest.mark.parametrize("num_samples", [1, 4_096])
def test_commits_add_up_to_the_time_of_what_was_sent(rate: int, num_samples: int) -> None:
    listening = machine(AudioFormat("pcm16", rate))
    for _ in range(200):
        append(listening, bytes(2 * num_samples))
        receive(listening, InputAudioBufferCommit())
    assert abs(listening.num_samples_received - 200 * num_samples * 16_000 / rate) <= 1


def test_a_change_of_format_loses_nothing() -> None:
    listening = machine(AudioFormat("pcm16", 24_000))
    append(listening, bytes(24_000))
    listening.configure(AudioFormat("pcmu", 8_000), now=0.0)
    append(listening, bytes(4_000))
    receive(listening, InputAudioBufferCommit())
    assert abs(listening.tracks[0].store.end - 16_000) <= 2


def starts(effects: list[Effect]) -> list[int]:
    events = [effect.event for effect in effects if isinstance(effect, Send)]
    return [event.audio_start_ms for event in events if isinstance(event, InputAudioBufferSpeechStarted)]


@pytest.mark.parametrize("num_samples", [160, 3_000, 16_000])
def test_turns_50_db_down_are_those_of_loud_speech(num_samples: int) -> None:
    """However the bytes were cut."""
    data = Path(__file__).resolve().parents[3] / "examples" / "data" / "conversation.wav"
    speech = np.asarray(soundfile.read(data, dtype="float32")[0], np.float32)
    model = VoiceActivityModel()
    found = []
    for gain, size in ((1.0, 8_000), (0.003, num_samples)):
        listening, stream = machine(AudioFormat("float32", 16_000)), VoiceActivityStream(model)
        peak = np.float32(gain / np.abs(speech).max())
        parts = np.split(peak * speech, range(size, len(speech), size))
        found.append(starts([each for part in parts for each in append(listening, part.tobytes(), stream)]))
    assert len(found[0]) == len(found[1]) > 3
    np.testing.assert_allclose(found[0], found[1], atol=100)


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
    listening, stream = machine(AudioFormat("float32", 16_000), config), Talking()
    samples = 0.1 * np.random.default_rng(0).standard_normal(14 * 16_000).astype(np.float32)
    samples[160_000:162_000] *= 0.05
    effects = [each for part in np.split(samples, 140) for each in append(listening, part.tobytes(), stream)]
    first, second = starts(effects)
    assert first == 0
    assert second == pytest.approx(10_062, abs=25)


@settings(max_examples=30, deadline=None)
@given(
    num_frames=st.lists(st.integers(0, 7_000), min_size=1, max_size=4),
    num_channels=st.sampled_from([2, 3, 7]),
    rate=st.sampled_from([16_000, 48_000]),
    are_channels_kept=st.booleans(),
)
def test_interleaved_channels_are_those_that_came(
    num_frames: list[int], num_channels: int, rate: int, are_channels_kept: bool
) -> None:
    """However frames lie across the pieces of an append."""
    noise = np.random.default_rng(3).integers(-9_000, 9_000, (sum(num_frames), num_channels)).astype("<i2")
    audio_format = AudioFormat("pcm16", rate, num_channels)
    listening = multichannel(audio_format) if are_channels_kept else machine(audio_format)
    start = 0
    for num in num_frames:
        append(listening, noise[start : start + num].tobytes())
        start += num
    wanted = noise.T.astype(np.float32) / 32_768
    for track, channel in zip(
        listening.tracks, wanted if are_channels_kept else wanted.mean(axis=0, keepdims=True), strict=True
    ):
        expected = StreamingResampler(rate).push(channel, last=True)
        assert len(expected) - 800 < track.store.end <= len(expected), "but what the filter holds back"
        np.testing.assert_array_equal(track.store.copy(0, track.store.end), expected[: track.store.end])


def test_an_append_that_ends_inside_a_frame_is_refused() -> None:
    listening = multichannel(AudioFormat("pcm16", 16_000, 3))
    assert codes(append(listening, bytes(20_000))) == ["invalid_audio"]
    assert codes(append(listening, bytes(24_000))) == []
    assert [track.store.end for track in listening.tracks] == [4_000] * 3
