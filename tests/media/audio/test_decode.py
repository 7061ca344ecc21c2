"""Files of every supported format decode to the sound in them; broken and hostile ones get a clear error."""

from __future__ import annotations

import random
import struct
import subprocess
import sys

import numpy as np
import numpy.typing as npt
import pytest
from sensorium.media.audio.decode import DecodedAudio, DecodeLimits, decode_audio, measure_audio
from sensorium.media.streams.ogg import MAX_PARTS, parts_by_decoder
from sensorium.protocols.errors import MediaError, TooLargeError
from support.audio_files import encoded, plain_wav, sound_file, tone, video
from support.sound_streams import ogg, voice

FloatArray = npt.NDArray[np.float32]

# (container, codec, rate, name we give the container, samples the codec may add at 16 kHz)
FORMATS = [
    ("wav", "pcm_s16le", 16_000, "wav", 0),
    ("wav", "pcm_f32le", 44_100, "wav", 1),
    ("wav", "adpcm_ms", 16_000, "wav", 1000),
    ("aiff", "pcm_s16be", 16_000, "aiff", 0),
    ("flac", "flac", 48_000, "flac", 1),
    ("mp3", "libmp3lame", 44_100, "mp3", 1),
    ("adts", "aac", 44_100, "aac", 800),
    ("ipod", "aac", 16_000, "mp4", 1024),
    ("ipod", "alac", 44_100, "mp4", 1),
    ("mov", "pcm_s16le", 24_000, "mp4", 1),
    ("matroska", "aac", 44_100, "matroska", 400),
    ("webm", "libopus", 48_000, "matroska", 1),
    ("ogg", "libopus", 48_000, "ogg", 1),
    ("amr", "libopencore_amrnb", 8_000, "amr", 320),
    ("asf", "wmav2", 44_100, "asf", 800),
    ("ac3", "ac3", 48_000, "ac3", 512),
    ("eac3", "eac3", 48_000, "eac3", 512),
    ("mpeg", "mp2", 44_100, "mpeg", 400),
    ("mpegts", "mp2", 44_100, "mpegts", 400),
    ("mpegts", "aac", 44_100, "mpegts", 800),
    ("avi", "libmp3lame", 44_100, "avi", 1200),
    ("avi", "pcm_s16le", 16_000, "avi", 1),
    ("flv", "aac", 44_100, "flv", 800),
]
ids = [f"{container}-{codec}" for container, codec, *_ in FORMATS]


def encode(container: str, codec: str, rate: int, seconds: float, layout: str = "mono") -> bytes:
    options = {"b": "64000"} if codec == "wmav2" else None
    sound = tone(seconds, rate=rate)
    return encoded(sound, container=container, codec=codec, rate=rate, layout=layout, options=options)


def assert_is_tone(audio: DecodedAudio, seconds: float, extra: int, hz: float = 440.0) -> None:
    samples = audio.samples
    assert samples.dtype == np.float32
    assert abs(len(samples) - seconds * 16_000) <= max(1, extra)
    middle = samples[4_000:-4_000]
    spectrum = np.abs(np.fft.rfft(middle * np.hanning(len(middle))))
    assert abs(float(np.argmax(spectrum)) * 16_000 / len(middle) - hz) < 3
    assert 0.15 < float(np.sqrt(np.square(middle).mean())) < 0.35


@pytest.mark.parametrize(("container", "codec", "rate", "name", "extra"), FORMATS, ids=ids)
@pytest.mark.parametrize("layout", ["mono", "stereo"])
def test_formats(container: str, codec: str, rate: int, name: str, extra: int, layout: str) -> None:
    if layout == "stereo" and codec == "libopencore_amrnb":
        layout = "mono"  # AMR knows no other
    audio = decode_audio(encode(container, codec, rate, 1.5, layout))
    assert_is_tone(audio, 1.5, extra)
    assert audio.container == name
    assert audio.source_rate == rate
    assert audio.num_channels == (2 if layout == "stereo" else 1)
    assert audio.duration_s == len(audio.samples) / 16_000


@pytest.mark.parametrize(
    "subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"]
)
def test_sample_types_of_wav(subtype: str) -> None:
    sound = tone(0.5)
    tolerance = {"PCM_U8": 0.01, "ULAW": 0.02, "ALAW": 0.02}.get(subtype, 1e-4)
    audio = decode_audio(sound_file(sound, subtype=subtype))
    np.testing.assert_allclose(audio.samples, sound, atol=tolerance)


def test_channels_are_averaged() -> None:
    sound = tone(0.5)
    six = np.stack([sound, sound * 0, sound * 0.5, sound * 0, sound * 0, sound * 0], axis=1)
    audio = decode_audio(sound_file(six, subtype="FLOAT"))
    np.testing.assert_allclose(audio.samples, sound / 4, atol=1e-6)
    assert audio.num_channels == 6


@pytest.mark.parametrize("kind", ["WAV", "FLAC"])
def test_channels_may_be_kept(kind: str) -> None:
    both = np.stack([tone(0.5), 0.25 * tone(0.5)], axis=1)
    data = sound_file(both, kind=kind)
    kept = decode_audio(data, are_channels_kept=True)
    np.testing.assert_allclose(kept.samples, both.T, atol=1e-3)
    assert (kept.duration_s, kept.num_channels) == (0.5, 2)
    np.testing.assert_allclose(decode_audio(data).samples, both.mean(axis=1), atol=1e-3)
    assert measure_audio(data, are_channels_kept=True) == pytest.approx(1.0, abs=0.01)
    assert measure_audio(data) == pytest.approx(0.5, abs=0.01)
    mono = decode_audio(sound_file(tone(0.5)), are_channels_kept=True)
    assert mono.samples.shape == (1, 8000)


def test_kept_channels_share_the_limit() -> None:
    data = sound_file(np.zeros((16_000, 4), np.float32))
    limits = DecodeLimits(max_seconds=3.0)
    assert decode_audio(data, limits=limits).duration_s == 1.0
    with pytest.raises(TooLargeError, match="limit of 3 seconds of all 4 channels together"):
        decode_audio(data, limits=limits, are_channels_kept=True)


def test_channels_that_change_cannot_be_kept_apart() -> None:
    stereo = encoded(tone(0.5), container="mp3", codec="libmp3lame", layout="stereo")
    mono = encoded(tone(0.5), container="mp3", codec="libmp3lame", layout="mono")
    assert decode_audio(stereo + mono).duration_s > 0.9
    with pytest.raises(MediaError, match="number of channels changes"):
        decode_audio(stereo + mono, are_channels_kept=True)


@pytest.mark.parametrize("container", ["ipod", "matroska"])
def test_eight_channels_of_a_planar_codec(container: str) -> None:
    # The frame whose ninth plane PyAV would read from a wild address.
    audio = decode_audio(
        encoded(tone(1.0, rate=48_000), container=container, codec="aac", rate=48_000, layout="7.1")
    )
    assert audio.num_channels == 8
    assert len(audio.samples) >= 16_000


def test_more_channels_than_supported_are_refused() -> None:
    nine = np.zeros((1000, 9), np.float32)
    with pytest.raises(MediaError, match="9 channels"):
        decode_audio(sound_file(nine))


def test_video_gives_its_sound() -> None:
    assert_is_tone(decode_audio(video(tone(1.5, rate=44_100))), 1.5, 800)
    assert_is_tone(decode_audio(video(tone(1.5, rate=44_100), container="matroska")), 1.5, 800)


def test_concatenated_files_are_read_to_the_end() -> None:
    mp3 = encode("mp3", "libmp3lame", 16_000, 1.0)
    assert len(decode_audio(mp3 + mp3).samples) > 1.9 * 16_000
    opus = encode("ogg", "libopus", 48_000, 1.0)
    assert len(decode_audio(opus + opus).samples) == pytest.approx(32_000, abs=700)


def test_so_many_decoders_are_made_for_one_file() -> None:
    """In fewer bytes than a minute of speech has; a decoder that goes on is not one more."""
    mono, stereo = (ogg(voice(0.02), layout=layout) for layout in ("mono", "stereo"))
    for read in (decode_audio, measure_audio):
        with pytest.raises(MediaError, match=f"needs more than {MAX_PARTS} Opus decoders") as caught:
            read((mono + stereo) * (MAX_PARTS // 2) + mono)
        assert caught.value.param == "file"
    assert len(parts_by_decoder((mono + stereo) * (MAX_PARTS // 2))) == MAX_PARTS
    assert len(parts_by_decoder(mono * 2 * MAX_PARTS)) == 1


REFUSED = [
    (b"", "empty"),
    (b"hello world, this is a text file\n" * 50, "not in a supported audio format"),
    (b"\x89PNG\r\n\x1a\n" + bytes(500), "not in a supported audio format"),
    (plain_wav(tone(0.0)), "no audio samples"),
    (plain_wav(tone(1.0))[:30], "could not be decoded"),
    (b"\xff\xfb" + bytes(5000), "could not be decoded"),
    (b"OggS" + bytes(5000), "could not be decoded"),
    (b"\x1a\x45\xdf\xa3" + bytes(5000), "could not be decoded"),
    (video(None), "no audio track"),
]


@pytest.mark.parametrize(("data", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_holds_no_sound_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(MediaError, match=message) as caught:
        decode_audio(data)
    assert caught.value.param == "file"


def test_codecs_off_the_list_are_refused() -> None:
    data = encoded(tone(0.5, rate=48_000), container="matroska", codec="tta", rate=48_000)
    with pytest.raises(MediaError, match="codec is not supported"):
        decode_audio(data)


@pytest.mark.parametrize("size", [0, 2**31 - 1, 2**32 - 1])
def test_wav_headers_that_claim_too_much_or_nothing(size: int) -> None:
    wav = plain_wav(tone(1.0))
    assert len(decode_audio(wav[:40] + struct.pack("<I", size) + wav[44:]).samples) == 16_000
    # As written into a pipe: both sizes unknown.
    unknown = struct.pack("<I", size)
    assert len(decode_audio(wav[:4] + unknown + wav[8:40] + unknown + wav[44:]).samples) == 16_000


def test_a_wav_header_that_claims_less_gives_what_it_claims() -> None:
    wav = plain_wav(tone(1.0))
    assert len(decode_audio(wav[:40] + struct.pack("<I", 1000) + wav[44:]).samples) == 500


@pytest.mark.parametrize("rate", [0, 1, 3_999, 384_001, 2**32 - 1])
def test_impossible_rates_are_refused(rate: int) -> None:
    wav = plain_wav(tone(0.1))
    with pytest.raises(MediaError):
        decode_audio(wav[:24] + struct.pack("<I", rate) + wav[28:])


STREAMABLE = [row for row in FORMATS if row[3] != "mp4"]


@pytest.mark.parametrize(
    ("container", "codec", "rate", "name", "extra"), STREAMABLE, ids=[f"{r[0]}-{r[1]}" for r in STREAMABLE]
)
def test_a_truncated_file_gives_what_is_there(
    container: str, codec: str, rate: int, name: str, extra: int
) -> None:
    data = encode(container, codec, rate, 5.0)
    share = len(decode_audio(data[: len(data) * 6 // 10]).samples) / (5 * 16_000)
    assert 0.35 < share < 0.75


def test_a_truncated_mp4_without_its_index_is_refused() -> None:
    data = encode("ipod", "aac", 16_000, 3.0)
    with pytest.raises(MediaError, match="could not be decoded"):
        decode_audio(data[: len(data) // 2])


def test_damage_in_the_middle_costs_only_the_middle() -> None:
    data = bytearray(encode("mp3", "libmp3lame", 16_000, 3.0))
    data[4000:4600] = bytes(600)
    assert len(decode_audio(bytes(data)).samples) > 2.5 * 16_000


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38, 2e6])
def test_samples_that_are_no_numbers_are_refused(value: float) -> None:
    wav = sound_file(np.full(5000, value, np.float32), rate=44_100, subtype="FLOAT")
    with pytest.raises(MediaError, match="finite"):
        decode_audio(wav)


def test_too_many_bytes_are_refused_before_anything_else() -> None:
    with pytest.raises(TooLargeError, match=r"101 bytes; the limit is 100 bytes") as caught:
        decode_audio(bytes(101), limits=DecodeLimits(max_bytes=100))
    assert caught.value.param == "file"


@pytest.mark.parametrize("kind", ["wav", "mp3"])
def test_the_limit_on_seconds_is_exact(kind: str) -> None:
    sound = tone(2.0)
    data = plain_wav(sound) if kind == "wav" else encoded(sound, container="mp3", codec="libmp3lame")
    assert len(decode_audio(data, limits=DecodeLimits(max_seconds=2.0)).samples) == 32_000
    with pytest.raises(TooLargeError, match=r"limit of 1.99 seconds") as caught:
        decode_audio(data, limits=DecodeLimits(max_seconds=1.99))
    assert caught.value.param == "file"


_MEASURE = """
import resource, sys, time
from sensorium.media.audio.decode import DecodeLimits, decode_audio
from sensorium.protocols.errors import TooLargeError
data = sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.process_time()
try:
    decode_audio(data, limits=DecodeLimits(max_seconds=60))
except TooLargeError:
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(grown, time.process_time() - start)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("container", "codec"), [("flac", "flac"), ("mp3", "libmp3lame")])
def test_hours_of_silence_stop_at_the_limit_in_bounded_memory(container: str, codec: str) -> None:
    options = {"b": "8000"} if codec == "libmp3lame" else None
    silence = np.zeros(16_000 * 1200, np.float32)
    data = encoded(silence, container=container, codec=codec, options=options)
    done = subprocess.run([sys.executable, "-c", _MEASURE], input=data * 6, capture_output=True, check=True)
    grown_kib, cpu_s = map(float, done.stdout.split())
    # 60 s are 3.7 MiB; two hours would be 440 MiB.
    assert grown_kib < 40 * 1024
    assert cpu_s < 3


def test_damaged_files_never_raise_anything_else() -> None:
    choose = random.Random(7)
    originals = [encode(container, codec, rate, 0.3) for container, codec, rate, *_ in FORMATS]
    originals.append(video(tone(0.3, rate=44_100)))
    outcomes = {"decoded": 0, "refused": 0}
    for _ in range(400):
        data = bytearray(choose.choice(originals))
        for _ in range(choose.choice((1, 3, 10, 100))):
            data[choose.randrange(choose.choice((min(64, len(data)), len(data))))] = choose.randrange(256)
        if choose.random() < 0.3:
            del data[choose.randrange(len(data)) :]
        try:
            audio = decode_audio(bytes(data), limits=DecodeLimits(max_seconds=20))
        except (MediaError, TooLargeError):
            outcomes["refused"] += 1
        else:
            assert 0 < len(audio.samples) <= 20 * 16_000
            assert bool(np.isfinite(audio.samples).all())
            outcomes["decoded"] += 1
    assert min(outcomes.values()) > 50
