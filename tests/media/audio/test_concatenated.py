"""Files joined from several lose nothing at their seams."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from sensorium.media.audio import concatenated as joined
from sensorium.media.audio.concatenated import joined_parts
from sensorium.media.audio.decode import decode_audio, measure_audio
from support.audio_files import encoded, video
from support.sound_streams import streamed, voice, webm

TAG = b"ID3\4\0\0" + bytes([0, 0, 0, 35]) + bytes(35)


def mp3(rate: int, **options: str) -> bytes:
    """With a tag in front, as encoders write it."""
    return encoded(
        voice(1.0, rate=rate), container="mp3", codec="libmp3lame", rate=rate, format_options=options
    )


def pcm(container: str) -> bytes:
    return encoded(voice(0.3), container=container, codec="pcm_s16le", rate=48_000)


def flac(rate: int) -> bytes:
    return encoded(voice(1.0, rate=rate), container="flac", codec="flac", rate=rate)


@pytest.mark.parametrize(
    ("name", "make_parts", "num_decoders"),
    [
        ("mp3", lambda: [mp3(44_100)] * 3, 3),
        ("mp3", lambda: [mp3(48_000, write_xing="0")] * 3, 1),
        ("mp3", lambda: [mp3(48_000, write_xing="0"), mp3(44_100)], 2),
        (
            "matroska",
            lambda: [webm(voice(1.0)), webm(voice(0.7), layout="stereo"), webm(voice(0.5, hz=500.0))],
            3,
        ),
        ("matroska", lambda: [webm(voice(1.0)), *[pcm("matroska")] * 2, webm(voice(0.7))], 4),
        ("flac", lambda: [flac(44_100), flac(96_000), flac(16_000)], 3),
        ("flac", lambda: [flac(16_000), TAG + flac(16_000)], 2),
    ],
    ids=[
        "mp3",
        "bare mp3",
        "bare mp3 in front",
        "webm",
        "webm of several codecs",
        "flac of several rates",
        "flac with a tag",
    ],
)
def test_nothing_is_lost_where_files_meet(
    name: str, make_parts: Callable[[], list[bytes]], num_decoders: int
) -> None:
    parts = make_parts()
    data = b"".join(parts)
    assert len(joined_parts(data, name)) == num_decoders
    length = sum(len(decode_audio(part).samples) for part in parts)
    samples = decode_audio(data).samples
    assert abs(len(samples) - length) <= 2
    assert abs(measure_audio(data) - length / 16_000) < 0.1 * len(parts)
    np.testing.assert_array_equal(streamed(data, container="auto"), samples)


def test_what_only_looks_like_a_seam_is_none() -> None:
    whole = mp3(44_100)
    assert joined_parts(TAG + TAG + whole, "mp3") == [TAG + TAG + whole]
    assert len(joined_parts(whole + TAG + b"no frame", "mp3")) == 1
    assert joined_parts(flac(16_000), "ogg") == [flac(16_000)]
    assert len(joined_parts(pcm("matroska") + pcm("matroska")[:4] + bytes(100), "matroska")) == 1


def test_a_part_without_sound_costs_none_and_one_that_is_cut_only_its_own() -> None:
    whole, silent = webm(voice(0.5)), video(None, container="matroska")
    both = decode_audio(whole + whole).samples
    np.testing.assert_array_equal(decode_audio(whole + silent).samples, decode_audio(whole).samples)
    for between in (silent, whole[:100], silent + silent[:200]):
        data = whole + between + whole
        np.testing.assert_array_equal(decode_audio(data).samples, both)
        assert measure_audio(data) == measure_audio(whole + whole)


def test_parts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined, "MOST_PARTS", 3)
    data = flac(16_000) * 5
    parts = joined_parts(data, "flac")
    assert len(parts) == 3
    assert b"".join(parts) == data
    np.testing.assert_allclose(len(decode_audio(data).samples), 5 * 16_000, atol=4000)
