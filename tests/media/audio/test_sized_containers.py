"""Recordings that follow each other in one file are all read, and no sample is taken for a header."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.media.audio.concatenated import joined_parts
from sensorium.media.audio.containers import sniff
from sensorium.media.audio.decode import decode_audio, measure_audio
from sensorium.media.audio.sized_containers import CAF_MAGIC, W64_MAGIC, beginnings, in_bytes
from sensorium.protocols.errors import MediaError
from support.audio_files import FloatArray, caf, encoded, plain_wav, sound_file, tone
from support.sound_streams import voice

FIRST, SECOND = tone(0.7), voice(0.5, rate=16_000)
KINDS = ("WAV", "RF64", "WAVEX", "AIFF", "AU", "W64", "CAF")
_UNKNOWN = {
    "WAV": ((4, 4), (40, 4)),
    "AU": ((8, 4),),
    "W64": ((16, 8),),
}
"""Where sizes stand, and their bytes."""


def made(kind: str, samples: FloatArray, subtype: str = "PCM_16") -> bytes:
    return plain_wav(samples) if kind == "WAV" else sound_file(samples, kind=kind, subtype=subtype)


def with_sizes(data: bytes, kind: str, byte: int) -> bytes:
    for place, width in _UNKNOWN[kind]:
        data = data[:place] + bytes([byte]) * width + data[place + width :]
    return data


def header_like(kind: str) -> FloatArray:
    """Samples whose bytes are a whole header, and its name alone."""
    order = ">i2" if kind in {"AIFF", "AU", "CAF"} else "<i2"
    head = made(kind, SECOND)[:120] + b"RIFFFORM.snd" * 3
    return (np.frombuffer(head + bytes(len(head) % 2), order) / 32768).astype(np.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_both_parts_are_read(kind: str) -> None:
    parts = [made(kind, FIRST), made(kind, SECOND), made(kind, FIRST[:801])]
    joined = b"".join(parts)
    expected = np.concatenate([decode_audio(part).samples for part in parts])
    np.testing.assert_array_equal(decode_audio(joined).samples, expected)
    assert measure_audio(joined) == pytest.approx(len(expected) / 16_000, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_samples_that_are_a_header_split_nothing(kind: str) -> None:
    sound = np.concatenate([FIRST, header_like(kind), FIRST])
    data = made(kind, sound)
    container = sniff(data)
    assert container is not None
    assert len(joined_parts(data, container)) == 1
    assert len(joined_parts(data[:-100], container)) == 1, "cut off"
    assert len(decode_audio(data + data).samples) == 2 * len(sound)


@pytest.mark.parametrize("byte", [0, 0xFF])
@pytest.mark.parametrize("kind", _UNKNOWN)
def test_where_sizes_are_not_known_the_next_header_counts(kind: str, byte: int) -> None:
    streamed = with_sizes(made(kind, FIRST), kind, byte)
    data = streamed + with_sizes(made(kind, SECOND), kind, byte)
    container = sniff(data)
    assert container is not None
    assert joined_parts(data, container)[0] == streamed
    expected = len(FIRST) + len(SECOND)
    assert len(decode_audio(data).samples) == expected


def test_a_recording_without_sound_in_front() -> None:
    empty = plain_wav(FIRST[:0])
    np.testing.assert_array_equal(
        decode_audio(empty + plain_wav(FIRST)).samples, decode_audio(plain_wav(FIRST)).samples
    )


def test_parts_may_be_of_several_rates_and_a_damaged_one_costs_only_itself() -> None:
    parts = [plain_wav(FIRST), plain_wav(tone(0.5, rate=8_000), rate=8_000)]
    assert len(decode_audio(b"".join(parts)).samples) == pytest.approx(1.2 * 16_000, abs=2)
    broken = parts[1][:20] + b"\xff\xff" + parts[1][22:]
    assert len(decode_audio(parts[0] + broken + parts[0]).samples) == 2 * len(FIRST)


def test_amr_and_what_looks_like_it() -> None:
    one = encoded(tone(1.0, rate=8_000), container="amr", codec="libopencore_amrnb", rate=8_000)
    length = len(decode_audio(one).samples)
    assert len(decode_audio(one + one).samples) == 2 * length
    inside = bytearray(one)
    inside[10:16] = b"#!AMR\n"  # in the middle of a frame
    assert len(joined_parts(bytes(inside), "amr")) == 1


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("counts", ["frames", "samples"])
@pytest.mark.parametrize("kind", ["WAV", "AU"])
@pytest.mark.parametrize("subtype", ["PCM_16", "FLOAT", "PCM_24"])
def test_sizes_that_count_samples(kind: str, subtype: str, counts: str, channels: int) -> None:
    sound = np.stack([FIRST] * channels, axis=1)
    data = sound_file(sound, kind=kind, subtype=subtype)
    place = data.index(b"data") + 4 if kind == "WAV" else 8
    order = "<I" if kind == "WAV" else ">I"
    count = len(FIRST) * (channels if counts == "samples" else 1)
    wrong = data[:place] + struct.pack(order, count) + data[place + 4 :]
    np.testing.assert_array_equal(decode_audio(wrong).samples, decode_audio(data).samples)
    assert measure_audio(wrong) == measure_audio(data)


@pytest.mark.parametrize(
    "trailing",
    [b"", b"LIST" + struct.pack("<I", 4) + b"INFO", b"\0", b"junk"],
    ids=["none", "list", "pad", "junk"],
)
def test_sizes_in_bytes_stay(trailing: bytes) -> None:
    data = plain_wav(FIRST)
    half = data[:40] + struct.pack("<I", len(FIRST) - 100) + data[44:]
    assert len(decode_audio(half + trailing).samples) == (len(FIRST) - 100) // 2
    assert len(decode_audio(data + trailing).samples) == len(FIRST)


CAF: dict[str, Callable[[], bytes]] = {
    "aac": lambda: caf(tone(1.0, rate=44_100), codec="aac", rate=44_100, frame=1024, priming=1024),
    "alac": lambda: encoded(tone(1.0, rate=44_100), container="caf", codec="alac", rate=44_100),
    "opus": lambda: caf(tone(1.0, rate=48_000), codec="libopus", rate=48_000, frame=960, priming=312),
    "ima4": lambda: encoded(tone(1.0, rate=44_100), container="caf", codec="adpcm_ima_qt", rate=44_100),
    "pcm": lambda: encoded(tone(1.0), container="caf", codec="pcm_s16be"),
    "float": lambda: sound_file(tone(1.0), kind="CAF", subtype="FLOAT"),
}


@pytest.mark.parametrize("codec", CAF)
def test_caf_as_phones_write_it(codec: str) -> None:
    data = CAF[codec]()
    audio = decode_audio(data)
    assert audio.container == "caf"
    assert audio.duration_s == pytest.approx(1.0, abs=1e-4 if codec != "ima4" else 0.01), "no priming"
    assert measure_audio(data) == pytest.approx(audio.duration_s, abs=0.03)
    assert len(decode_audio(data + data).samples) == pytest.approx(2 * len(audio.samples), abs=2)


@pytest.mark.parametrize("subtype", ["PCM_16", "FLOAT", "ULAW", "PCM_24"])
@pytest.mark.parametrize("kind", ["AU", "W64"])
def test_au_and_w64(kind: str, subtype: str) -> None:
    audio = decode_audio(sound_file(FIRST, kind=kind, subtype=subtype))
    assert audio.container == kind.lower()
    np.testing.assert_allclose(audio.samples, FIRST, atol=0.02)


@given(
    st.sampled_from([b"RIFF", b"RF64", b"RIFX", b"FORM", b".snd", W64_MAGIC, CAF_MAGIC]),
    st.lists(
        st.sampled_from([b"\xff" * 8, bytes(8), b"ds64", b"data", b"SSND", b"WAVE", b"AIFF", b"\x7f" * 8])
    ),
)
def test_sizes_far_outside_a_file_are_no_beginning(magic: bytes, rest: list[bytes]) -> None:
    data = magic + b"".join(rest)
    for container in ("wav", "aiff", "au", "w64", "caf"):
        found = list(beginnings(data, container))
        assert found == sorted(set(found))
        assert all(0 < place < len(data) for place in found)
        in_bytes(data, container)


def test_a_file_without_a_rate_is_measured_and_refused() -> None:
    data = bytearray(made("CAF", FIRST))
    data[20:28] = bytes(8)
    assert measure_audio(bytes(data)) >= 0.0
    with pytest.raises(MediaError):
        decode_audio(bytes(data))
