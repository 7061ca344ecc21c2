"""Of several audio tracks the default one is decoded, or the chosen one; files and live streams agree."""

from __future__ import annotations

import numpy as np
import pytest
from sensorium.media.audio.decode import decode_audio, measure_audio
from sensorium.protocols.errors import MediaError
from support.audio_files import FloatArray, sound_file, tone, tracks
from support.sound_streams import FRAGMENTED, OPUS_RATE, streamed

CONTAINERS = [("matroska", "flac"), ("webm", "libopus"), ("mp4", "aac"), ("mov", "alac"), ("mpegts", "mp2")]
FLAGGING = CONTAINERS[:4]
LIVE = [("webm", "libopus"), ("mp4", "aac")]


def made(container: str, codec: str, default: int | None) -> bytes:
    """Of 440, 700 and 1000 Hz."""
    sounds = [tone(0.5 + 0.1 * place, rate=OPUS_RATE, hz=hz) for place, hz in enumerate((440, 700, 1000))]
    return tracks(
        *sounds,
        default=default,
        container=container,
        codec=codec,
        rate=OPUS_RATE,
        format_options=FRAGMENTED if container == "mp4" else None,
    )


def hz(samples: FloatArray) -> float:
    middle = samples[2_000:-2_000]
    spectrum = np.abs(np.fft.rfft(middle * np.hanning(len(middle))))
    return float(np.argmax(spectrum)) * 16_000 / len(middle)


@pytest.mark.parametrize(("container", "codec"), FLAGGING)
@pytest.mark.parametrize(("default", "expected"), [(0, 440), (1, 700), (2, 1000)])
def test_the_default_track_is_taken(container: str, codec: str, default: int, expected: float) -> None:
    assert hz(decode_audio(made(container, codec, default)).samples) == pytest.approx(expected, abs=5)


@pytest.mark.parametrize(("container", "codec"), LIVE)
@pytest.mark.parametrize("default", [0, 1, 2])
def test_a_live_stream_has_the_track_of_its_file(container: str, codec: str, default: int) -> None:
    data = made(container, codec, default)
    np.testing.assert_array_equal(streamed(data), decode_audio(data).samples)


@pytest.mark.parametrize(("container", "codec"), CONTAINERS)
def test_a_track_is_chosen(container: str, codec: str) -> None:
    data = made(container, codec, 1)
    chosen = [decode_audio(data, track=track) for track in range(3)]
    assert [hz(audio.samples) for audio in chosen] == pytest.approx([440, 700, 1000], abs=5)
    lengths = [measure_audio(data, track=track) for track in range(3)]
    assert lengths == pytest.approx([audio.duration_s for audio in chosen], abs=0.02)
    for read in (decode_audio, measure_audio):
        with pytest.raises(MediaError, match="3 audio tracks, counted from 0; allowed is 0 to 2") as caught:
            read(data, track=3)
        assert caught.value.param == "audio_track"


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "CAF", "AU"])
def test_a_recording_has_one_track(kind: str) -> None:
    data = sound_file(tone(0.2), kind=kind)
    np.testing.assert_array_equal(decode_audio(data, track=0).samples, decode_audio(data).samples)
    with pytest.raises(MediaError, match="1 audio track, counted from 0; allowed is 0"):
        decode_audio(data, track=1)


def test_without_a_flag_the_first_track_is_taken() -> None:
    assert hz(decode_audio(made("mpegts", "mp2", None)).samples) == pytest.approx(440, abs=5)
    assert hz(decode_audio(made("matroska", "flac", None)).samples) == pytest.approx(440, abs=5)
