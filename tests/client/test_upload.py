"""The file part of a form: what is taken as one, and what goes over the wire of it."""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast

import httpx
import numpy as np
import pytest
from sensorium.client.errors import AudioError
from sensorium.client.requests import transcription
from sensorium.client.upload import AudioFile, open_part, wav_file
from sensorium.media.audio.decode import DecodeLimits, decode_audio

Samples: TypeAlias = np.ndarray[Any, Any]
LIMITS = DecodeLimits(max_bytes=2**20, max_seconds=60.0)
RAMP = np.linspace(-0.5, 0.5, 1600, dtype=np.float32)


def sent(file: AudioFile) -> bytes:
    """The body of a request with the file."""
    with open_part(file) as part:
        return httpx.Request("POST", "http://here", data={"model": "m"}, files=part).read()


def test_files_are_paths_bytes_or_file_objects(tmp_path: Path) -> None:
    path = tmp_path / "talk.mp3"
    path.write_bytes(b"audio")
    with open_part(path) as part, open_part(str(path)) as same:
        assert part is not None
        assert same is not None
        assert part["file"][0] == same["file"][0] == "talk.mp3"
        content = part["file"][1]
        assert not isinstance(content, str | bytes)
        assert content.read() == b"audio"
    for held in (b"audio", bytearray(b"audio"), memoryview(b"audio")):
        with open_part(held) as part:
            assert part == {"file": ("audio", b"audio")}
        assert transcription(held, "json").is_repeatable
    for none in (3, None, ["a"], ("talk.mp3", b"audio"), (16_000, RAMP), (RAMP, 16_000.0)):
        with pytest.raises(TypeError, match=f"file is {type(none).__name__}: expected a path, bytes, a"):
            transcription(none, "json")  # type: ignore[arg-type]
    with path.open("rb") as opened, open_part(opened) as part:
        assert part is not None
        assert part["file"][0] == "talk.mp3"
    with open_part(io.BytesIO()) as part:
        assert part is not None
        assert part["file"][0] == "audio"
    assert transcription(path, "json").is_repeatable


def test_a_pipe_is_read_whole_and_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=[b"audio"])
    writer.start()
    with open_part(pipe) as part:
        assert part == {"file": ("pipe", b"audio")}
    writer.join()
    assert not transcription(pipe, "json").is_repeatable

    class Reader:
        def read(self) -> bytes:
            return b"audio"

    with open_part(cast("BinaryIO", Reader())) as part:
        assert part == {"file": ("audio", b"audio")}


def test_a_file_that_grows_is_sent_as_long_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "recording.wav"
    path.write_bytes(b"begun")
    with open_part(path) as part:
        request = httpx.Request("POST", "http://here", files=part)
        path.write_bytes(b"begun and gone on")
        body = request.read()
    assert len(body) == int(request.headers["content-length"])
    assert b"\r\nbegun\r\n" in body


def test_a_file_that_shrinks_says_so(tmp_path: Path) -> None:
    path = tmp_path / "recording.wav"
    path.write_bytes(b"begun")
    with open_part(path) as part:
        request = httpx.Request("POST", "http://here", files=part)
        path.write_bytes(b"")
        with pytest.raises(OSError, match="became shorter"):
            request.read()


def test_a_file_object_that_was_written_or_read_is_sent_from_its_beginning() -> None:
    file = io.BytesIO()
    file.write(b"audio")
    assert b"\r\naudio\r\n" in sent(file)
    assert b"\r\naudio\r\n" in sent(file)


def test_a_name_that_is_no_text_is_sent_as_one(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.wav")
    path.write_bytes(b"audio")
    assert 'filename="caf\ufffd.wav"'.encode() in sent(path)


def test_what_is_open_as_text_is_none() -> None:
    with pytest.raises(TypeError, match="opened as text"):
        transcription(cast("BinaryIO", io.StringIO("audio")), "json")


@pytest.mark.parametrize("samples", [RAMP, RAMP.astype(np.float64), (RAMP * 32768).astype(np.int16)])
@pytest.mark.parametrize("num_channels", [1, 2])
def test_samples_are_sent_as_the_server_hears_them(samples: Samples, num_channels: int) -> None:
    given = samples if num_channels == 1 else np.stack([samples, 0 * samples], 1)
    decoded = decode_audio(
        wav_file(given, 16_000), limits=LIMITS, are_channels_kept=num_channels == 2
    ).samples
    first = decoded if num_channels == 1 else decoded[0]
    np.testing.assert_allclose(first, RAMP, atol=1 / 32768)
    if num_channels == 2:
        assert not decoded[1].any()


def test_samples_of_any_byte_order_and_step_are_the_same() -> None:
    int16 = (RAMP * 32768).astype(np.int16)
    assert wav_file(int16.astype(">i2"), 8000) == wav_file(int16, 8000)
    assert wav_file(np.stack([RAMP, RAMP], 1)[:, 0], 8000) == wav_file(RAMP, 8000)


def test_an_array_alone_is_at_16_khz_and_may_be_sent_again() -> None:
    array = cast(Any, RAMP)
    assert wav_file(RAMP, 16_000) in sent(array)
    assert wav_file(RAMP, 44_100) in sent((array, 44_100))
    assert transcription(array, "json").is_repeatable
    assert transcription((array, 8000), "json").is_repeatable


@pytest.mark.parametrize(
    ("samples", "rate", "message"),
    [
        (np.zeros(3, np.uint8), 16_000, "uint8: expected floats, int16 or int32"),
        (np.zeros(0, np.float32), 16_000, "expected \\[n\\] or"),
        (np.zeros((2, 2, 2), np.float32), 16_000, "expected \\[n\\] or"),
        (np.zeros((2, 16_000), np.float32), 16_000, "expected \\[n\\] or"),
        (RAMP, 0, "at 0 Hz"),
        (RAMP * 32768, 16_000, "go up to 16384, and full scale is 1"),
        (RAMP * np.nan, 16_000, "are NaN or infinite"),
    ],
)
def test_what_are_no_samples_is_named(samples: Samples, rate: int, message: str) -> None:
    with pytest.raises(AudioError, match=message):
        wav_file(samples, rate)


@pytest.mark.parametrize("address", ["https://example.com/talk.mp3", "data:audio/wav;base64,AA=="])
def test_an_address_is_left_to_the_server(address: str) -> None:
    body = sent(address)
    assert f'name="url"\r\n\r\n{address}\r\n'.encode() in body
    assert b"filename" not in body
    assert transcription(address, "json").is_repeatable
