"""Reading, cutting, varying and pacing local audio."""

from __future__ import annotations

import wave
from array import array
from pathlib import Path

import pytest
from sensorium.client import AudioError
from sensorium.client.audio import Audio, Pacer, read_wav, silence, varied, wav_bytes
from sensorium.protocols.shared.audio_format import AudioFormat


def write(path: Path, samples: list[int], *, rate: int = 16_000, channels: int = 1, width: int = 2) -> Path:
    """A WAV file; samples are interleaved."""
    with wave.open(str(path), "wb") as target:
        target.setnchannels(channels)
        target.setsampwidth(width)
        target.setframerate(rate)
        target.writeframes(array("h", samples).tobytes())
    return path


def test_a_mono_file_is_read_as_it_is(tmp_path: Path) -> None:
    audio = read_wav(write(tmp_path / "a.wav", [1, -2, 3]))
    assert audio == Audio(array("h", [1, -2, 3]).tobytes(), 16_000)
    assert audio.format == AudioFormat("pcm16", 16_000)


def test_channels_are_averaged(tmp_path: Path) -> None:
    audio = read_wav(write(tmp_path / "a.wav", [10, 20, -32_768, -32_768, 32_767, 32_767], channels=2))
    assert list(array("h", audio.pcm)) == [15, -32_768, 32_767]


def test_wav_bytes_read_back(tmp_path: Path) -> None:
    audio = Audio(array("h", range(100)).tobytes(), 24_000)
    (tmp_path / "a.wav").write_bytes(wav_bytes(audio))
    assert read_wav(tmp_path / "a.wav") == audio


def test_other_rates_and_sample_formats_name_the_ffmpeg_command(tmp_path: Path) -> None:
    cd = write(tmp_path / "cd.wav", [0] * 10, rate=44_100)
    with pytest.raises(
        AudioError, match=r"44100 samples per second, not one of 8000, .*ffmpeg -i .*cd\.wav -ac 1"
    ):
        read_wav(cd)
    assert read_wav(cd, rates=()).rate == 44_100
    with pytest.raises(AudioError, match="8-bit samples, not 16-bit; convert it first: ffmpeg"):
        read_wav(write(tmp_path / "old.wav", [0] * 10, width=1))


def test_what_is_not_a_wav_file_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.mp3").write_bytes(b"ID3" + bytes(100))
    (tmp_path / "empty.wav").write_bytes(b"")
    for path, words in (
        ("a.mp3", "not a plain WAV file"),
        ("empty.wav", "ends too early"),
        ("no.wav", "no such file"),
    ):
        with pytest.raises(AudioError, match=words) as caught:
            read_wav(tmp_path / path)
        assert "\n" not in str(caught.value)


def test_a_truncated_file_gives_the_samples_it_has(tmp_path: Path) -> None:
    path = write(tmp_path / "a.wav", list(range(1000)))
    path.write_bytes(path.read_bytes()[:-501])
    samples = list(array("h", read_wav(path).pcm))
    assert samples == list(range(len(samples)))
    assert len(samples) == 749


@pytest.mark.parametrize("chunk_ms", [1, 30, 100, 10_000])
def test_chunks_are_the_whole_audio_in_order(chunk_ms: int) -> None:
    audio = Audio(bytes(range(256)) * 50, 24_000)
    chunks = list(audio.chunks(chunk_ms))
    assert b"".join(chunks) == audio.pcm
    assert {len(chunk) for chunk in chunks[:-1]} <= {chunk_ms * 48}


def test_silence_has_its_length() -> None:
    assert Audio(silence(1.5, 16_000), 16_000).duration_s == 1.5


def test_varied_audio_differs_by_a_step_at_most_and_is_repeatable() -> None:
    audio = Audio(array("h", [32_767, -32_768, 0, 5] * 1_000).tobytes(), 16_000)
    one, again, other = varied(audio, 1), varied(audio, 1), varied(audio, 2)
    assert one == again
    assert len({audio.pcm, one.pcm, other.pcm}) == 3
    pairs = zip(array("h", audio.pcm), array("h", one.pcm), strict=True)
    assert max(abs(before - after) for before, after in pairs) == 1


def test_live_pace_sends_a_chunk_when_its_end_was_spoken_whatever_was_late() -> None:
    pacer = Pacer(start=100.0, speed=1.0)
    assert [pacer.next_time(0.1) for _ in range(3)] == pytest.approx([100.1, 100.2, 100.3])
    assert Pacer(start=0.0, speed=2.0).next_time(1.0) == 0.5


def test_without_a_speed_only_the_lead_is_bounded() -> None:
    pacer = Pacer(start=100.0, speed=None, max_ahead_s=0.25)
    assert [pacer.next_time(0.1) for _ in range(4)] == pytest.approx([99.85, 99.95, 100.05, 100.15])
    assert Pacer(start=0.0, speed=None).next_time(1.0) == float("-inf")
