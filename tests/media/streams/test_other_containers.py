"""MP3, ADTS, FLAC and fragmented MP4: what lies between frames, padding, what may not be."""

from __future__ import annotations

import struct
import time
from itertools import pairwise
from pathlib import Path

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.media.audio.decode import decode_audio
from sensorium.media.streams import flac
from sensorium.media.streams.adts import AdtsDemuxer
from sensorium.media.streams.flac import FlacDemuxer, _read_head
from sensorium.media.streams.mp3 import Mp3Demuxer
from sensorium.media.streams.mp4 import Mp4Demuxer
from sensorium.media.streams.packets import Packet, StreamError
from sensorium.media.streams.sniff import begins_stream
from sensorium.protocols.shared.container_format import StreamContainer
from support.audio_files import encoded, sound_file
from support.sound_streams import FRAGMENTED, streamed, voice

SOUND = voice(1.1, rate=44_100)
ADTS = encoded(SOUND, container="adts", codec="aac", rate=44_100)
MP3 = encoded(SOUND, container="mp3", codec="libmp3lame", rate=44_100)
MP3_BARE = encoded(
    SOUND, container="mp3", codec="libmp3lame", rate=44_100, format_options={"write_xing": "0"}
)
FLAC = encoded(SOUND, container="flac", codec="flac", rate=44_100)
MP4 = encoded(SOUND, container="mp4", codec="aac", rate=44_100, format_options=FRAGMENTED)
PLAIN = encoded(SOUND, container="mp4", codec="aac", rate=44_100)
TAG = b"ID3\4\0\0" + bytes([0, 0, 2, 0]) + bytes(256)


def box(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body) + 8) + kind + body


@pytest.mark.parametrize("data", [ADTS, MP3], ids=["adts", "mp3"])
def test_tags_before_between_and_behind(data: bytes) -> None:
    plain, middle = streamed(data), len(data) // 2
    np.testing.assert_array_equal(streamed(TAG + data + b"TAG" + bytes(125)), plain)
    cut = data.find(data[:2], middle)
    assert len(streamed(data[:cut] + TAG + data[cut:])) == len(plain)


def mp4(path: Path, codec: str = "aac", **flags: str) -> bytes:
    """As libav writes it to a file, where it can go back to put the index in front."""
    with av.open(str(path), "w", format=path.suffix[1:], options=flags) as file:
        stream = file.add_stream(codec, rate=48_000 if codec == "libopus" else 44_100, layout="mono")
        frames = np.pad(SOUND, (0, -len(SOUND) % 1920)).reshape(-1, 1, 1920)
        for count, block in enumerate(frames):
            frame = av.AudioFrame.from_ndarray(block, format="flt", layout="mono")
            frame.rate, frame.pts = stream.rate, count * 1920
            for converted in av.AudioResampler(stream.format.name, "mono", stream.rate).resample(frame):
                file.mux(stream.encode(converted))
        file.mux(stream.encode(None))
    return path.read_bytes()


@pytest.mark.parametrize(
    ("name", "codec", "flags"),
    [
        ("with_an_edit_list.mp4", "aac", {"movflags": "frag_keyframe+delay_moov", "frag_duration": "200000"}),
        ("the_first_sound_in_the_index.mp4", "aac", {"frag_duration": "200000"}),
        ("index_in_front.mp4", "aac", {"movflags": "faststart"}),
        ("index_in_front.mp4", "libopus", {"movflags": "faststart"}),
        ("quicktime.mov", "aac", {"movflags": "frag_keyframe+empty_moov", "frag_duration": "200000"}),
    ],
)
def test_an_mp4_is_heard_as_its_file(tmp_path: Path, name: str, codec: str, flags: dict[str, str]) -> None:
    data = mp4(tmp_path / name, codec, **flags)
    whole = decode_audio(data).samples
    for step in (len(data), 977, 61):
        np.testing.assert_array_equal(streamed(data, range(step, len(data), step)), whole)


@pytest.mark.parametrize("junk", [b"", b"\0" * 1500, b"junk\xff\xe1!" * 50])
@pytest.mark.parametrize("name", ["mp3", "aac"])
def test_a_file_that_was_cut_out_of_a_stream_is_heard_as_it(name: StreamContainer, junk: bytes) -> None:
    whole = MP3_BARE if name == "mp3" else ADTS
    data = junk + whole[len(whole) // 3 :]
    samples = decode_audio(data).samples
    assert 0.6 < len(samples) / len(decode_audio(whole).samples) < 0.72
    np.testing.assert_array_equal(samples, streamed(data, range(97, len(data), 97), container=name))


def flac_frames() -> list[bytes]:
    places = [at for at in range(len(FLAC) - 16) if _read_head(FLAC[at : at + 16]) is not None]
    return [FLAC[start:end] for start, end in pairwise([0, *places, len(FLAC)])]


@pytest.mark.parametrize("step", [len(FLAC), 997, 31])
def test_flac_goes_on_behind_what_was_lost_and_with_another_recording(step: int) -> None:
    head, *frames = flac_frames()
    assert len(frames) > 8
    length = len(streamed(head + frames[0])) + 1
    for data, num_whole in (
        (b"".join([head, *frames[:3], *frames[4:]]), len(frames) - 1),
        (b"".join([head, *frames[:3], frames[3][:500], frames[5][-700:], *frames[6:]]), len(frames) - 3),
        (b"".join([head, *frames[:3], frames[3][:-50], frames[4][50:], *frames[5:]]), len(frames) - 2),
        (FLAC + FLAC, 2 * len(frames)),
        (b"".join([head, *frames[:3], frames[3][:500]]) + FLAC, 3 + len(frames)),
    ):
        found = len(streamed(data, range(step, len(data), step), container="flac"))
        assert abs(found - num_whole * length) <= 2 * length


@pytest.mark.parametrize("data", [ADTS, MP3, FLAC], ids=["adts", "mp3", "flac"])
def test_what_is_damaged_costs_only_itself(data: bytes) -> None:
    hole = len(data) // 2
    samples = streamed(data[:hole] + bytes(2_000) + data[hole + 2_000 :])
    assert 0.6 * len(streamed(data)) < len(samples) <= 1.01 * len(streamed(data))


def test_an_mp3_is_entered_in_its_middle() -> None:
    samples = streamed(MP3[len(MP3) // 2 :], container="mp3")
    assert 0.4 < len(samples) / len(streamed(MP3)) < 0.6


def test_a_frame_of_flac_is_whole_at_a_commit_if_its_checksum_says_so() -> None:
    demuxer = FlacDemuxer()
    items = demuxer.push(FLAC)
    (last,) = demuxer.end()
    assert FLAC.endswith(last.data if isinstance(last, Packet) else b"?")
    assert len(streamed(FLAC)) > sum(isinstance(item, Packet) for item in items)
    cut = FlacDemuxer()
    cut.push(FLAC[:-7])
    assert cut.end() == []
    cut.push(FLAC[-7:])
    assert cut.end() == [last]


def test_a_frame_of_flac_is_heard_that_is_shorter_than_a_head_may_be() -> None:
    """All that a recording of silence has, or what is left of one behind a commit."""
    silence = sound_file(np.zeros(1_000, np.float32), rate=16_000, kind="FLAC")
    assert len(streamed(silence)) == len(streamed(silence, range(1, len(silence)))) == 1_000
    demuxer = FlacDemuxer()
    demuxer.push(silence[:-1])
    assert demuxer.end() == []
    demuxer.push(silence[-1:])
    assert len(demuxer.end()) == 1
    assert demuxer.end() == []
    head, first, *_ = flac_frames()
    late = FlacDemuxer()
    late.push(head + first)
    assert len(late.end()) == 1
    late.push(silence[-13:])
    assert [len(item.data) for item in late.end() if isinstance(item, Packet)] == [13]


def test_a_last_frame_of_flac_is_summed_once_however_often_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    summed: list[int] = []
    crc_16 = flac._crc_16

    def counting(data: bytes | bytearray, crc: int = 0) -> int:
        summed.append(len(data))
        return crc_16(data, crc)

    monkeypatch.setattr(flac, "_crc_16", counting)
    head, first, *_ = flac_frames()
    demuxer = FlacDemuxer()
    demuxer.push(head + first[:16])
    for _ in range(50):
        demuxer.push(bytes(1000))
        assert demuxer.end() == demuxer.end() == []
    assert sum(summed) <= 50_016


@pytest.mark.parametrize("step", [len(FLAC), 997, 31])
def test_tags_around_flac_cost_no_frame(step: int) -> None:
    for data in (TAG + FLAC, FLAC + b"TAG" + bytes(125), TAG + FLAC + b"TAG" + FLAC[-125:]):
        found = streamed(data, range(step, len(data), step), container="flac")
        np.testing.assert_array_equal(found, streamed(FLAC))


@given(at=st.integers(0, len(MP4) - 1), to=st.integers(0, 255), step=st.integers(500, 5_000))
@settings(max_examples=60, deadline=None)
def test_damaged_fragments_are_told_or_passed_over(at: int, to: int, step: int) -> None:
    data = MP4[:at] + bytes([to]) + MP4[at + 1 :]
    try:
        samples = streamed(data, range(step, len(data), step))
    except StreamError:
        return
    assert np.isfinite(samples).all()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (PLAIN, "a file, not a stream"),
        (PLAIN[: PLAIN.index(b"free") - 4] + PLAIN[PLAIN.index(b"moov") - 4 :], "a file, not a stream"),
        (box(b"ftyp", b"isom") + box(b"moof", b""), "before its index"),
        (box(b"ftyp", b"isom") + box(b"moov", box(b"mvex", b"")), "no audio track"),
        (box(b"ftyp", b"isom") + box(b"moov", b"\0\0\0\3oops"), "index of the MP4 stream is damaged"),
        (box(b"ftyp", b"isom") + struct.pack(">I", 1 << 30) + b"moov", "index of the MP4 stream is longer"),
        (box(b"ftyp", b"isom") + b"\0\0\0\3oops", "damaged at byte 12"),
        (b"#EXTM3U\nfile:///etc/passwd\n", "is not MP4"),
    ],
)
def test_what_is_no_stream_of_mp4(data: bytes, reason: str) -> None:
    with pytest.raises(StreamError, match=reason):
        streamed(data, container="mp4")


def test_places_before_the_fragment_cannot_be_had() -> None:
    demuxer = Mp4Demuxer()
    index = MP4.index(b"moof") - 4
    demuxer.push(MP4[:index])
    at = MP4.index(b"trun") + 12
    late = MP4[index:at] + struct.pack(">i", -100_000) + MP4[at + 4 :]
    assert len(demuxer.push(late)) < 50


def fragment(num_samples: int, size: int, offset: int) -> bytes:
    header = box(b"tfhd", struct.pack(">III", 0x020010, 1, size))
    run = box(b"trun", struct.pack(">IIi", 1, num_samples, offset))
    return box(b"moof", box(b"traf", header + run))


@pytest.mark.parametrize("size", [0, 1])
def test_a_few_bytes_do_not_announce_sound_without_end(size: int) -> None:
    head, began = MP4[: MP4.index(b"moof") - 4], time.process_time()
    with pytest.raises(StreamError, match="announces more than 65536 samples"):
        Mp4Demuxer().push(head + (fragment(65_000, size, -100_000_000) + box(b"mdat", b"x")) * 200)
    runs = box(b"trun", struct.pack(">II", 0, 65_000)) * 200
    with pytest.raises(StreamError, match="announces more than 65536 samples"):
        Mp4Demuxer().push(head + box(b"moof", box(b"traf", box(b"tfhd", bytes(8)) + runs)))
    assert time.process_time() - began < 1


def test_what_waits_is_not_put_in_order_again_for_each_fragment() -> None:
    demuxer, began = Mp4Demuxer(), time.process_time()
    demuxer.push(MP4[: MP4.index(b"moof") - 4] + fragment(60_000, 1, 1 << 30))
    for at in range(1_000):
        assert not demuxer.push(fragment(1, 1, (1 << 29) - at))
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("demuxer", "name"), [(AdtsDemuxer, "ADTS"), (Mp3Demuxer, "MP3")], ids=["adts", "mp3"]
)
def test_endless_garbage_ends(demuxer: type[AdtsDemuxer | Mp3Demuxer], name: str) -> None:
    found = demuxer()
    with pytest.raises(StreamError, match=f"no {name} frame came"):
        found.push(bytes(3 << 20))


def test_other_layers_and_headers_are_refused() -> None:
    with pytest.raises(StreamError, match="header is damaged"):
        FlacDemuxer().push(b"fLaC\x01\0\0\x22" + bytes(34))
    with pytest.raises(StreamError, match="not FLAC"):
        FlacDemuxer().push(b"flac")
    assert not Mp3Demuxer().push(b"\xff\xfd\x90\0" * 100)


@pytest.mark.parametrize("data", [ADTS, MP3, FLAC, MP4, TAG + MP3])
def test_beginnings_are_known(data: bytes) -> None:
    assert begins_stream(data, "auto")
    assert not begins_stream(data, "webm")
    assert not begins_stream(data[300:], "flac")


@pytest.mark.parametrize("kind", ["WAV", "AIFF", "CAF", "W64", "AU"])
def test_a_container_of_files_is_named(kind: str) -> None:
    with pytest.raises(StreamError, match=f"is {kind}, which is read as a file only; .* WebM, Ogg, MP4"):
        streamed(sound_file(SOUND[:4_000], kind=kind))
    with pytest.raises(StreamError, match="is in none; containers that are served live are WebM"):
        streamed(b"no sound at all, but words")


def test_nothing_of_a_file_is_needed_to_know_its_samples() -> None:
    for data in (ADTS, MP3, FLAC, MP4):
        np.testing.assert_array_equal(streamed(data), decode_audio(data).samples)
