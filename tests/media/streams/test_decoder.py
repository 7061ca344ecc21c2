"""However a stream is cut, it decodes to what the whole file decodes to, bit for bit."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import suppress
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.media.audio.decode import decode_audio, measure_audio
from sensorium.media.streams.decoder import MAX_TURN_SAMPLES, StreamDecoder
from sensorium.media.streams.packets import StreamError
from sensorium.protocols.errors import MediaError
from support.audio_files import FloatArray, encoded, sound_file
from support.sound_streams import FRAGMENTED, OPUS_RATE, ogg, streamed, voice, webm

SOUND = voice(1.2371)


MAKERS: dict[str, Callable[[], bytes]] = {
    "webm": lambda: webm(SOUND),
    "webm stereo": lambda: webm(SOUND, layout="stereo"),
    "webm pcm": lambda: encoded(SOUND[:20_011], container="matroska", codec="pcm_f32le"),
    "matroska pcm stereo": lambda: encoded(
        SOUND[:20_011], container="matroska", codec="pcm_s16le", rate=44_100, layout="stereo"
    ),
    "ogg": lambda: ogg(SOUND),
    "ogg of libsndfile": lambda: sound_file(SOUND, rate=OPUS_RATE, kind="OGG", subtype="OPUS"),
    "chain": lambda: ogg(SOUND) + ogg(voice(0.731, hz=500.0), serial=2) + ogg(voice(0.4), serial=3),
    "chain of layouts": lambda: (
        ogg(SOUND)
        + ogg(voice(0.731, hz=500.0), serial=2, layout="stereo")
        + ogg(voice(0.4), serial=3, layout="stereo")
        + ogg(voice(0.9), serial=4)
    ),
    "mp4": lambda: encoded(SOUND, container="mp4", codec="aac", rate=48_000, format_options=FRAGMENTED),
    "mp4 opus stereo": lambda: encoded(
        SOUND,
        container="mp4",
        codec="libopus",
        rate=OPUS_RATE,
        layout="stereo",
        format_options=FRAGMENTED | {"movflags": "frag_keyframe+delay_moov"},
    ),
    "mp3": lambda: encoded(SOUND, container="mp3", codec="libmp3lame", rate=44_100),
    "mp3 of libsndfile": lambda: sound_file(SOUND, rate=16_000, kind="MP3", subtype="MPEG_LAYER_III"),
    "flac": lambda: sound_file(np.stack([SOUND, -SOUND / 2], axis=1), rate=44_100, kind="FLAC"),
    "adts": lambda: encoded(SOUND, container="adts", codec="aac", rate=44_100, layout="stereo"),
}
NAMES = list(MAKERS)


@cache
def example(name: str) -> bytes:
    return MAKERS[name]()


@cache
def whole(name: str) -> FloatArray:
    return decode_audio(example(name)).samples


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@settings(max_examples=8, deadline=None)
def test_every_cut_gives_the_samples_of_the_file(name: str, data: st.DataObject) -> None:
    stream = example(name)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=30))
    np.testing.assert_array_equal(streamed(stream, cuts), whole(name))


@pytest.mark.parametrize("name", ["webm", "ogg", "mp4", "mp3", "adts"])
def test_a_byte_at_a_time(name: str) -> None:
    stream = example(name)
    np.testing.assert_array_equal(streamed(stream, range(1, len(stream))), whole(name))


def test_sound_comes_with_the_block_that_holds_it() -> None:
    """Nothing waits for what follows: a browser's piece is heard when it is there."""
    stream = example("webm")
    decoder = StreamDecoder("webm")
    decoder.push(stream[: len(stream) // 2])
    num_decoded = len(decoder.take())
    assert num_decoded > 0.4 * len(whole("webm"))


def test_a_turn_is_bounded() -> None:
    """Two-byte packets of 120 ms: the bytes of a second may claim minutes."""
    silent = encoded(np.zeros(OPUS_RATE * 20, np.float32), container="webm", codec="libopus", rate=OPUS_RATE)
    decoder = StreamDecoder()
    decoder.push(silent)
    turns = []
    while decoder.has_more:
        turns.append(len(decoder.take()))
    assert len(turns) >= 5
    assert max(turns) <= MAX_TURN_SAMPLES + 16_000 * 0.12


def test_a_stream_goes_on_in_another_process() -> None:
    stream = example("webm")
    decoder = StreamDecoder()
    parts = []
    for start in range(0, len(stream), 1_000):
        decoder.push(stream[start : start + 1_000])
        parts.append(decoder.take())
        if start == 5_000:
            decoder = pickle.loads(pickle.dumps(decoder))
    num_lost = len(whole("webm")) - sum(map(len, parts))
    assert 0 <= num_lost < 1_600, "what the codec and the filter remembered"


def test_another_layout_in_a_chain_goes_on() -> None:
    first, second = ogg(SOUND), ogg(SOUND, layout="stereo", serial=2)
    length, chain = len(decode_audio(first).samples), first + second
    assert len(streamed(chain)) == pytest.approx(2 * length, abs=2)
    assert measure_audio(chain) == pytest.approx(2 * measure_audio(first), abs=0.1)
    with pytest.raises(MediaError, match="number of channels changes"):
        decode_audio(chain, are_channels_kept=True)


@pytest.mark.parametrize("value", [np.nan, 2e6])
def test_samples_that_are_no_numbers_end_the_stream(value: float) -> None:
    broken = np.full(8_000, value, np.float32)
    data = encoded(broken, container="matroska", codec="pcm_f32le", rate=16_000)
    with pytest.raises(StreamError, match="not finite"):
        streamed(data)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@settings(max_examples=10, deadline=None)
def test_damage_is_told_by_name_or_passed_over(name: str, data: st.DataObject) -> None:
    stream = bytearray(example(name))
    for _ in range(data.draw(st.integers(1, 12))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=5))
    with suppress(StreamError):
        assert np.isfinite(streamed(bytes(stream), cuts)).all()


@given(st.binary(max_size=3_000), st.sampled_from(["auto", "webm", "ogg", "mp4", "mp3", "flac", "aac"]))
@settings(max_examples=60, deadline=None)
def test_garbage_is_told_by_name(data: bytes, container: str) -> None:
    with suppress(StreamError):
        assert not len(streamed(data, container=container))  # type: ignore[arg-type]  # one of the allowed


@pytest.mark.parametrize(("kind", "subtype"), [("OGG", "OPUS"), ("FLAC", "PCM_16")])
def test_channels_are_kept_where_they_are_as_many_as_announced(kind: str, subtype: str) -> None:
    both = np.stack([voice(0.5), voice(0.5, hz=500.0)], axis=1)
    data = sound_file(both, rate=OPUS_RATE, kind=kind, subtype=subtype)
    kept = decode_audio(data, are_channels_kept=True).samples
    decoder = pickle.loads(pickle.dumps(StreamDecoder("auto", 2)))
    parts = []
    for start in range(0, len(data), 777):
        decoder.push(data[start : start + 777])
        while decoder.has_more:
            parts.append(decoder.take())
    parts.append(decoder.take_last())
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), kept)
    assert not np.array_equal(kept[0], kept[1])
    wrong = StreamDecoder("auto", 3)
    wrong.push(data)
    with pytest.raises(StreamError, match="has 2 channels; it was announced with 3"):
        wrong.take_last()
