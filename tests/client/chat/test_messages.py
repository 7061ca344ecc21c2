"""Prompts as messages, and files as parts that the server reads."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from PIL import Image
from sensorium.client import AudioError, PictureError
from sensorium.client.chat.messages import MediaKind, conversation, media_part
from sensorium.client.upload import wav_file
from sensorium.protocols.chat.content import MediaPart, TextPart, read_messages

PNG = b"\x89PNG\r\n\x1a\n...."


def _data(part: dict[str, Any]) -> bytes:
    """What the server reads of it."""
    (message,) = read_messages([msgspec.Raw(msgspec.json.encode({"role": "user", "content": [part]}))])
    assert isinstance(message.content, tuple)
    (read,) = message.content
    assert isinstance(read, MediaPart)
    assert isinstance(read.data, bytes)
    return read.data


def test_a_text_is_a_question_and_so_are_texts_among_messages() -> None:
    assert conversation("Hi") == [{"role": "user", "content": "Hi"}]
    answered = {"role": "assistant", "content": "Hello"}
    assert conversation(["Hi", answered, "And?"], system="Be brief.") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        answered,
        {"role": "user", "content": "And?"},
    ]


def test_files_stand_in_front_of_the_last_question(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(PNG)
    first: list[Any] = ["Hi", {"role": "assistant", "content": "Hello"}]
    messages = conversation(
        [*first, "What?"], images=[path, str(path), PNG], videos=[b"mp4"], audio=[b"RIFF"]
    )
    read = read_messages([msgspec.Raw(msgspec.json.encode(each)) for each in messages])
    parts = read[2].content
    assert isinstance(parts, tuple)
    assert [part.data for part in parts if isinstance(part, MediaPart)] == [PNG, PNG, PNG, b"mp4", b"RIFF"]
    assert parts[-1] == TextPart("What?")
    assert read[0].content == "Hi"
    parted = conversation([{"role": "user", "content": [{"type": "text", "text": "a"}]}], images=[PNG])
    assert [part["type"] for part in parted[0]["content"]] == ["image_url", "text"]


@pytest.mark.parametrize(
    ("kind", "data", "media_type"),
    [
        ("image", PNG, "data:image/png;"),
        ("image", b"\xff\xd8\xff\xe0", "data:image/jpeg;"),
        ("image", b"RIFF....WEBP", "data:image/webp;"),
        ("video", b"\x1aE\xdf\xa3", "data:video/webm;"),
        ("video", b"....ftyp", "data:video/mp4;"),
        ("audio", b"ID3", "mp3"),
        ("audio", b"....ftypM4A", "m4a"),
        ("audio", b"RIFF....WAVE", "wav"),
    ],
)
def test_what_a_file_is_shows_in_its_first_bytes(kind: MediaKind, data: bytes, media_type: str) -> None:
    part = media_part(kind, data)
    found = part["input_audio"]["format"] if kind == "audio" else part[f"{kind}_url"]["url"]
    assert found.startswith(media_type)


def test_bytes_are_a_file_whoever_holds_them() -> None:
    parts = [media_part("image", held) for held in (PNG, bytearray(PNG), memoryview(PNG))]
    assert parts[0] == parts[1] == parts[2]


def test_pictures_and_samples_become_files() -> None:
    red = np.full((1500, 20, 3), (200, 30, 10), np.uint8)
    for picture in (Image.fromarray(red), red):
        assert Image.open(io.BytesIO(_data(media_part("image", picture)))).size == (20, 1500)
    ramp = np.linspace(-0.5, 0.5, 1600, dtype=np.float32)
    assert _data(media_part("audio", (ramp, 8_000))) == wav_file(ramp, 8_000)
    assert _data(media_part("audio", ramp)) == wav_file(ramp, 16_000)


@pytest.mark.parametrize("kind", ["image", "video", "audio"])
def test_a_file_object_is_sent_from_its_beginning(kind: MediaKind) -> None:
    file = io.BytesIO()
    file.write(PNG)
    assert _data(media_part(kind, file)) == PNG


@pytest.mark.parametrize(
    ("kind", "file", "error", "message"),
    [
        ("image", 7, PictureError, "a picture is int: expected a path, bytes, a PIL image"),
        ("image", np.zeros((4, 4, 7), np.uint8), PictureError, "the array is not a picture"),
        (
            "video",
            np.zeros((2, 4, 4, 3), np.uint8),
            TypeError,
            "file is ndarray: expected a path, bytes, a b",
        ),
        ("audio", 7, TypeError, "file is int: expected a path"),
        ("audio", np.zeros(0), AudioError, r"samples are \[0\]"),
        ("audio", io.StringIO("a"), TypeError, "opened as text"),
    ],
)
def test_what_is_no_file_is_named(kind: MediaKind, file: Any, error: type[Exception], message: str) -> None:  # noqa: ANN401 (anything)
    with pytest.raises(error, match=message):
        media_part(kind, file)


def test_addresses_are_left_to_the_server() -> None:
    url = "https://a.test/x.jpg"
    assert media_part("image", url) == {"type": "image_url", "image_url": {"url": url}}
    assert media_part("audio", url) == {"type": "audio_url", "audio_url": {"url": url}}


def test_what_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the conversation is empty"):
        conversation([])
    with pytest.raises(ValueError, match="message 1 is int"):
        conversation(["a", 3])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="last message is not a user's"):
        conversation([{"role": "assistant", "content": "a"}], images=[PNG])
    picture = np.zeros((4, 4, 3), np.uint8)
    one = ("a.png", b"...", bytearray(b"..."), io.BytesIO(PNG), picture, Image.fromarray(picture))
    for file in one:
        with pytest.raises(ValueError, match="images is one file"):
            conversation("a", images=file)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="audio is one file"):
        conversation("a", audio=(np.zeros(160), 16_000))  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        conversation("a", images=[tmp_path / "none.png"])
