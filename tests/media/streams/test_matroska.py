"""WebM taken apart: tracks that nobody hears, laced blocks, what may not be."""

from __future__ import annotations

import io
import struct
import time

import av
import numpy as np
import pytest
from sensorium.media.audio.decode import decode_audio
from sensorium.media.streams.matroska import MatroskaDemuxer
from sensorium.media.streams.packets import MAX_HEADER_BYTES, Item, Packet, StreamError, Track
from support.audio_files import video
from support.sound_streams import OPUS_RATE, streamed, voice, webm

EBML = bytes.fromhex("1a45dfa3 80")
SEGMENT = bytes.fromhex("18538067 01ffffffffffffff")
CLUSTER = bytes.fromhex("1f43b675 01ffffffffffffff")


def element(name: str, body: bytes) -> bytes:
    return bytes.fromhex(name) + struct.pack(">Q", len(body) | 1 << 56) + body


def track(number: int = 1, kind: int = 2, codec: bytes = b"A_PCM/INT/LIT", *more: bytes) -> bytes:
    sound = element("e1", element("b5", struct.pack(">f", 16_000)) + element("6264", b"\x10"))
    fields = (
        element("d7", bytes([number])),
        element("83", bytes([kind])),
        element("86", codec),
        sound,
        *more,
    )
    return element("ae", b"".join(fields))


def stream(*tracks: bytes) -> bytes:
    return EBML + SEGMENT + element("1654ae6b", b"".join(tracks or (track(),))) + CLUSTER


def block(payload: bytes, *, number: int = 1, flags: int = 0) -> bytes:
    return element("a3", bytes([0x80 | number, 0, 0, flags]) + payload)


def packets(data: bytes) -> list[bytes]:
    found: list[Item] = list(MatroskaDemuxer().push(data))
    assert isinstance(found[0], Track)
    return [item.data for item in found if isinstance(item, Packet)]


def test_only_the_first_audio_track_is_heard() -> None:
    tracks = stream(track(3, kind=1, codec=b"V_VP8"), track(1), track(2))
    data = tracks + block(b"picture", number=3) + block(b"mine") + block(b"not mine", number=2)
    assert packets(data) == [b"mine"]


def test_a_recording_with_pictures_is_heard() -> None:
    sound = voice(0.5, rate=16_000)
    with av.open(io.BytesIO(video(sound, container="matroska", rate=16_000))) as file:
        assert file.streams.video
    with pytest.raises(StreamError, match="A_AAC"):
        streamed(video(sound, container="matroska", rate=16_000))


@pytest.mark.parametrize(
    ("flags", "payload"),
    [
        (0x02, b"\x02\x01\x02" + b"abbccc"),
        (0x06, b"\x02\x81\xc0" + b"abbccc"),
        (0x04, b"\x01" + b"abbccc"),
    ],
)
def test_laced_blocks(flags: int, payload: bytes) -> None:
    expected = [b"abb", b"ccc"] if flags == 0x04 else [b"a", b"bb", b"ccc"]
    assert packets(stream() + block(payload, flags=flags)) == expected


@pytest.mark.parametrize("payload", [b"", b"\xff", b"\x05\x09\x09", b"\x02\xff\xff\xff"])
def test_a_damaged_lace_is_told(payload: bytes) -> None:
    with pytest.raises(StreamError, match="block is damaged"):
        packets(stream() + block(payload, flags=0x02))


def test_padding_behind_the_block_counts_for_it() -> None:
    padding = element("75a2", struct.pack(">i", 1_000_000))
    group = element("a0", element("a1", b"\x81\0\0\0" + b"frame") + padding)
    items = MatroskaDemuxer().push(stream() + group)
    assert items[-1] == Packet(b"frame", 16, stamp=0)


def test_a_block_of_an_endless_group_does_not_wait() -> None:
    group = bytes.fromhex("a0 01ffffffffffffff") + element("a1", b"\x81\0\0\0" + b"frame")
    assert packets(stream() + group) == [b"frame"]


def test_a_new_recording_in_the_middle() -> None:
    one = webm(voice(0.4))
    assert len(streamed(one + one)) == pytest.approx(2 * len(decode_audio(one).samples), abs=700)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (EBML + SEGMENT + CLUSTER, "no audio track"),
        (stream(track(1, kind=1, codec=b"V_VP8")), "no audio track"),
        (stream(track(1, 2, b"A_MPEG/L3")), "'A_MPEG/L3'; Opus and PCM are served"),
        (stream(track(1, 2, b"A_OPUS", element("6d80", b""))), "compressed once more or encrypted"),
        (element("1a45dfa3", element("4282", b"secret")), "neither WebM nor Matroska"),
        (EBML + SEGMENT + element("1654ae6b", b"\xae"), "header is damaged"),
        (b"#EXTM3U\nfile:///etc/passwd", "is not WebM"),
        (CLUSTER + block(b"x"), "its beginning is missing"),
        (EBML + b"\0\0", "damaged at byte 5"),
        (EBML + SEGMENT + bytes.fromhex("1654ae6b 10ffffff"), "header is longer"),
        (EBML + SEGMENT + bytes.fromhex("1549a966 01ffffffffffffff"), "must have a size"),
        (stream() + bytes.fromhex("a3 10ffffff") + b"\x81" + bytes(20), "block is longer"),
    ],
)
def test_what_may_not_be(data: bytes, reason: str) -> None:
    with pytest.raises(StreamError, match=reason):
        MatroskaDemuxer().push(data)


def test_an_endless_header_ends() -> None:
    void = element("ec", bytes(8_000))
    assert not MatroskaDemuxer().push(EBML + SEGMENT + 100 * void)
    with pytest.raises(StreamError, match=f"within {MAX_HEADER_BYTES} bytes"):
        MatroskaDemuxer().push(EBML + SEGMENT + 200 * void)


def test_a_header_of_crumbs_is_read_once() -> None:
    began = time.process_time()
    with pytest.raises(StreamError, match="no audio track"):
        MatroskaDemuxer().push(EBML + SEGMENT + element("1654ae6b", b"\xec\x80" * (1 << 18)))
    assert time.process_time() - began < 0.8


def test_blocks_of_others_are_not_kept() -> None:
    demuxer = MatroskaDemuxer()
    demuxer.push(stream(track(2, kind=1, codec=b"V_VP8"), track(1)))
    demuxer.push(b"\xa3" + struct.pack(">Q", 1 << 56 | 1 << 30) + b"\x82")
    for _ in range(64):
        demuxer.push(bytes(1 << 14))
    assert len(demuxer._buffer) == 0


@pytest.mark.parametrize("rate", [100.0, 1e6])
def test_impossible_rates_are_refused(rate: float) -> None:
    sound = element("e1", element("b5", struct.pack(">d", rate)) + element("6264", b"\x10"))
    entry = element(
        "ae", element("d7", b"\1") + element("83", b"\2") + element("86", b"A_PCM/INT/LIT") + sound
    )
    with pytest.raises(StreamError, match="samples per second"):
        streamed(stream(entry) + block(np.zeros(100, "<i2").tobytes()))


def test_opus_counts_at_its_own_rate() -> None:
    assert len(streamed(webm(voice(1.0)))) == OPUS_RATE // 3
