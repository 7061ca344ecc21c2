"""Sound keeps its place on its file's timeline: late starts and holes are silence, rounding is none."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence

import av
import numpy as np
import pytest
from sensorium.media.audio import sample_collector as sink
from sensorium.media.audio.containers import DECODERS, DEMUXERS, opened, sniff
from sensorium.media.audio.decode import DecodeLimits, decode_audio, frame_channels, measure_audio
from sensorium.media.audio.resample import StreamingResampler
from sensorium.media.audio.timeline import Timeline
from sensorium.protocols.errors import TooLargeError
from support.audio_files import FloatArray, encoded, timed, tone, video
from support.sound_streams import FRAGMENTED, OPUS_RATE, ogg, ogg_pages, streamed, voice

FRAME, RATE = 160, 16_000
"""10 ms."""
PICTURES = [place / 25 for place in range(100)]


def silences(timeline: Timeline, stamps_s: Sequence[float | None], length: int = FRAME) -> list[int]:
    return [timeline.place(stamp_s, length, RATE) for stamp_s in stamps_s]


def test_stamps_that_follow_each_other_leave_no_hole() -> None:
    jitter = [0.0, 0.013, 0.018, 0.0300004, 0.04, None, 0.06]
    assert silences(Timeline(), jitter) == [0] * 7
    late = Timeline()
    assert silences(late, [7.0, 7.01, 7.02]) == [0, 0, 0], "the first stamp is zero"
    assert late.end_s == pytest.approx(0.03)


@pytest.mark.parametrize(
    ("hole_s", "silence"), [(0.019, 0), (0.0201, 322), (0.5, 8_000), (3600.0, 57_600_000)]
)
def test_a_hole_of_two_frames_is_silence(hole_s: float, silence: int) -> None:
    assert silences(Timeline(0.0), [0.0, 0.01 + hole_s]) == [0, silence]
    assert silences(Timeline(0.0), [hole_s]) == [silence]


def test_small_holes_add_up() -> None:
    lost = [place * 0.015 for place in range(100)]
    placed = silences(Timeline(), lost)
    assert sum(placed) + 100 * FRAME == pytest.approx(1.5 * RATE, abs=320)


def test_what_lies_before_zero_is_left_out() -> None:
    assert silences(Timeline(0.0), [-0.015, -0.005, 0.005]) == [-160, -80, 0]
    assert silences(Timeline(), [-0.015, -0.005, 0.005]) == [-160, -80, 0], "it is priming"
    assert silences(Timeline(0.0), [-0.001]) == [0], "rounding"


def test_stamps_that_go_back_cost_nothing() -> None:
    jumping = Timeline()
    assert silences(jumping, [0.0, 0.5, 0.02, 0.52]) == [0, 7840, 0, 0]
    joined = Timeline()
    assert silences(joined, [9.0, 9.01, 0.0, 0.01, 0.51]) == [0, 0, 0, 0, 7840], "a new clock"


def test_leaps_are_bounded() -> None:
    assert silences(Timeline(max_hole_s=10), [0.0, 100.0, 100.01, 100.52]) == [0, 160_000, 0, 8000]
    broadcast = Timeline(0.0, restart_s=10)
    assert silences(broadcast, [20.0, 29.0, 50.0, 50.01, 50.52]) == [320_000, 143_840, 0, 0, 8000]


CONTAINERS = [
    ("mp4", "aac", 44_100),
    ("mov", "alac", 44_100),
    ("matroska", "aac", 44_100),
    ("webm", "libopus", 48_000),
    ("mpegts", "mp2", 44_100),
    ("mpegts", "aac", 48_000),
    ("flv", "libmp3lame", 44_100),
    ("mpeg", "mp2", 44_100),
]
names = [f"{container}-{codec}" for container, codec, _ in CONTAINERS]


def onset_s(samples: FloatArray, after_s: float = 0.0) -> float:
    start = round(after_s * 16_000)
    return (start + int(np.argmax(np.abs(samples[start:]) > 0.05))) / 16_000


def agreed(data: bytes) -> FloatArray:
    """The samples, after `measure_audio` has agreed."""
    samples = decode_audio(data).samples
    assert measure_audio(data) == pytest.approx(len(samples) / 16_000, abs=0.015)
    return samples


@pytest.mark.parametrize(("container", "codec", "rate"), CONTAINERS, ids=names)
def test_sound_that_begins_late(container: str, codec: str, rate: int) -> None:
    def late(stamp_s: float) -> float:
        return stamp_s + 2.94

    sound = tone(1.0, rate=rate)
    film = timed(sound, late, container=container, codec=codec, rate=rate, picture_times_s=PICTURES)
    samples = agreed(film)
    assert onset_s(samples) == pytest.approx(2.94, abs=0.03)
    assert len(samples) / 16_000 == pytest.approx(3.95, abs=0.04)
    alone = timed(sound, late, container=container, codec=codec, rate=rate)
    assert onset_s(agreed(alone)) < 0.04


@pytest.mark.parametrize(("container", "codec", "rate"), CONTAINERS, ids=names)
def test_a_hole_in_the_middle(container: str, codec: str, rate: int) -> None:
    def lost(stamp_s: float) -> float | None:
        return None if 0.5 <= stamp_s < 1.5 else stamp_s

    samples = agreed(timed(tone(2.0, rate=rate), lost, container=container, codec=codec, rate=rate))
    assert len(samples) / 16_000 == pytest.approx(2.0, abs=0.06)
    silent = samples[round(0.65 * 16_000) : round(1.4 * 16_000)]
    assert float(np.abs(silent).max()) < 1e-3
    assert onset_s(samples, after_s=0.7) == pytest.approx(1.5, abs=0.1)


@pytest.mark.parametrize("container", ["mpegts", "flv"])
def test_zero_is_the_earliest_stamp_of_any_track(container: str) -> None:
    film = timed(
        tone(1.0, rate=44_100),
        lambda stamp_s: stamp_s + 2.94,
        container=container,
        codec="libmp3lame" if container == "flv" else "mp2",
        rate=44_100,
        picture_times_s=[1 + time_s for time_s in PICTURES],
    )
    assert onset_s(agreed(film)) == pytest.approx(1.94, abs=0.03)


def test_a_stamp_far_in_the_future(monkeypatch: pytest.MonkeyPatch) -> None:
    far = timed(
        tone(1.0, rate=OPUS_RATE),
        lambda stamp_s: stamp_s + (10_000 if stamp_s > 0.5 else 0),
        container="matroska",
        codec="libopus",
        rate=OPUS_RATE,
    )
    limits = DecodeLimits(max_seconds=60)
    with pytest.raises(TooLargeError, match=r"limit of 60 seconds \(by its time stamps\)"):
        decode_audio(far, limits=limits)
    assert measure_audio(far, limits=limits) == 60
    monkeypatch.setattr(sink, "MAX_HOLE_S", 9_000.0)
    with pytest.raises(TooLargeError, match="a hole of 10000 seconds; the limit is 9000 seconds"):
        decode_audio(far, limits=DecodeLimits(max_seconds=1e6))
    assert len(streamed(far)) == pytest.approx(11 * 16_000, abs=700), "live, ten seconds"


def test_a_stamp_that_the_next_one_contradicts_is_not_believed() -> None:
    data = encoded(tone(1.0, rate=OPUS_RATE), container="webm", codec="libopus", rate=OPUS_RATE)
    stamp = next(found for found in range(480, 520) if data.count(block(found)) == 1)
    damaged = data.replace(block(stamp), block(stamp + 30_000))
    np.testing.assert_array_equal(agreed(damaged), agreed(data))


def block(stamp_ms: int) -> bytes:
    """The head of a block of the first track."""
    return b"\x81" + stamp_ms.to_bytes(2) + b"\x80"


EVEN = [
    ("wav", "pcm_s16le", 16_000),
    ("flac", "flac", 48_000),
    ("mp3", "libmp3lame", 44_100),
    ("adts", "aac", 44_100),
    ("ipod", "aac", 16_000),
    ("mov", "pcm_s16le", 24_000),
    ("matroska", "aac", 44_100),
    ("webm", "libopus", 48_000),
    ("ogg", "libopus", 48_000),
    ("asf", "wmav2", 44_100),
    ("ac3", "ac3", 48_000),
    ("mpegts", "aac", 44_100),
    ("avi", "libmp3lame", 44_100),
    ("flv", "aac", 44_100),
]


def frames(data: bytes) -> Iterator[tuple[FloatArray, int]]:
    container = sniff(data)
    assert container is not None
    with opened(io.BytesIO(data), DEMUXERS[container], DECODERS) as file:
        for frame in file.decode(audio=0):
            assert isinstance(frame, av.AudioFrame)
            channels = frame_channels(frame, frame.layout.nb_channels)
            yield channels.mean(axis=0, dtype=np.float32), frame.sample_rate


@pytest.mark.parametrize(("container", "codec", "rate"), EVEN, ids=[f"{row[0]}-{row[1]}" for row in EVEN])
def test_without_holes_the_samples_are_those_of_the_frames(container: str, codec: str, rate: int) -> None:
    options = {"b": "64000"} if codec == "wmav2" else None
    sound = voice(0.6, rate=rate)
    data = encoded(sound, container=container, codec=codec, rate=rate, layout="stereo", options=options)
    whole = [frame for frame, _ in frames(data)]
    expected = StreamingResampler(rate).push(np.concatenate(whole), last=True)
    np.testing.assert_array_equal(decode_audio(data).samples, expected)


def test_a_film_whose_tracks_begin_together_is_as_its_sound() -> None:
    sound = tone(1.0, rate=44_100)
    film = decode_audio(video(sound, container="matroska")).samples
    alone = encoded(sound, container="matroska", codec="aac", rate=44_100)
    np.testing.assert_array_equal(film, decode_audio(alone).samples)


def clusters(pictures: bool, move: Callable[[float], float | None]) -> bytes:
    return timed(
        voice(2.0),
        move,
        container="webm",
        codec="libopus",
        rate=OPUS_RATE,
        picture_times_s=PICTURES if pictures else (),
    )


def fragments(codec: str, pictures: bool, move: Callable[[float], float | None], **flags: str) -> bytes:
    return timed(
        voice(2.0),
        move,
        container="mp4",
        codec=codec,
        rate=OPUS_RATE,
        picture_times_s=PICTURES if pictures else (),
        format_options=FRAGMENTED | flags,
    )


def pages_without(*lost: int) -> bytes:
    return b"".join(page for place, page in enumerate(ogg_pages(ogg(voice(4.0)))) if place not in lost)


def late(stamp_s: float) -> float:
    return stamp_s + 1.3


def gone(stamp_s: float) -> float | None:
    return None if 0.5 <= stamp_s < 1.2 else stamp_s


DELAYED = {"movflags": "frag_keyframe+delay_moov"}
LIVE: dict[str, tuple[Callable[[], bytes], float]] = {
    "webm, late": (lambda: clusters(True, late), 3.3),
    "webm, late alone": (lambda: clusters(False, late), 2.0),
    "webm, a hole": (lambda: clusters(False, gone), 2.0),
    "webm, discontinuous": (lambda: clusters(False, lambda at: at if at % 0.4 < 0.1 else None), 1.7),
    "mp4 aac, late": (lambda: fragments("aac", True, late), 3.3),
    "mp4 aac, a hole": (lambda: fragments("aac", False, gone), 2.0),
    "mp4 aac, an empty edit": (lambda: fragments("aac", True, late, **DELAYED), 3.3),
    "mp4 opus, late and a hole": (lambda: fragments("libopus", True, gone, **DELAYED), 2.0),
    "ogg, a page lost": (lambda: pages_without(3), 4.0),
    "ogg, two pages lost": (lambda: pages_without(3, 4), 4.0),
}


@pytest.mark.parametrize("name", LIVE)
def test_a_live_stream_has_the_holes_of_its_file(name: str) -> None:
    make, length_s = LIVE[name]
    data = make()
    whole = agreed(data)
    assert len(whole) / 16_000 == pytest.approx(length_s, abs=0.09)
    for step in (len(data), 499):
        np.testing.assert_array_equal(streamed(data, range(step, len(data), step)), whole)
