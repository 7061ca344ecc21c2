"""What is asked, as messages: texts, messages in OpenAI's shape, and files, pictures and sounds.

Knows no server. Read next: `client/chat/machine.py`.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, BinaryIO, Final, Literal, TypeAlias, cast

from ..pictures import PillowImage, PixelArray, picture_file
from ..upload import AudioFile, checked, is_address, is_file, whole_file

MediaFile: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO
"""A path, the bytes of a file, a binary file object, or an address (`https:`, `data:`), which the server
fetches if it may."""
ImageFile: TypeAlias = MediaFile | PillowImage | PixelArray
"""Or an image of Pillow, or an array: rows x columns x 3 of uint8, red first, or rows x columns of grey."""
Message: TypeAlias = dict[str, Any]
"""A message in OpenAI's shape: `role`, `content`, and what else it has."""
Prompt: TypeAlias = str | Sequence[str | Mapping[str, Any]]
"""A question, or a conversation: messages in OpenAI's shape; texts among them are the user's."""

MediaKind = Literal["image", "video", "audio"]

_MAX_SIDE: Final = 4096
"""Pixels of what we encode: a chat's pictures are seen as they are, not as frames, as far as models see."""
_SIGNATURES: Final = (
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"BM", "image/bmp"),
    (b"\x1aE\xdf\xa3", "video/webm"),
)
_USUAL: Final[dict[MediaKind, str]] = {"image": "image/webp", "video": "video/mp4", "audio": "audio/wav"}
_AUDIO: Final = (
    (b"ID3", "mp3"),
    (b"\xff\xfb", "mp3"),
    (b"fLaC", "flac"),
    (b"OggS", "ogg"),
    (b"\x1aE", "webm"),
)


def conversation(
    prompt: Prompt,
    *,
    system: str | None = None,
    images: Iterable[ImageFile] = (),
    videos: Iterable[MediaFile] = (),
    audio: Iterable[AudioFile] = (),
) -> list[Message]:
    """The messages of a request; files stand in front of the text of the last one, which is the user's.

    Raises ValueError and TypeError for what is none, PictureError and AudioError for pixels and samples that
    are none, OSError for a path that cannot be read.
    """
    messages = _messages([prompt] if isinstance(prompt, str) else prompt)
    parts = [media_part(kind, file) for kind, file in _named(images=images, videos=videos, audio=audio)]
    if parts:
        last = messages[-1]
        if last.get("role") != "user":
            raise ValueError(
                "images, videos and audio belong to a question: the last message is not a user's"
            )
        messages[-1] = {**last, "content": [*parts, *_content_parts(last.get("content"))]}
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    return messages


def media_part(kind: MediaKind, file: ImageFile | AudioFile) -> Message:
    """A file as a part of a message. Raises as `conversation`."""
    if is_address(file):
        return {"type": f"{kind}_url", f"{kind}_url": {"url": file}}
    if kind == "image" and not is_file(file):
        data = picture_file(file, max_side=_MAX_SIDE)
    else:
        data = whole_file(checked(cast(AudioFile, file), takes_samples=kind == "audio"))
    text = base64.b64encode(data).decode()
    if kind == "audio":
        found = next((name for start, name in _AUDIO if data.startswith(start)), None)
        found = found or ("m4a" if data[4:8] == b"ftyp" else "wav")
        return {"type": "input_audio", "input_audio": {"data": text, "format": found}}
    mime = next((name for start, name in _SIGNATURES if data.startswith(start)), _USUAL[kind])
    return {"type": f"{kind}_url", f"{kind}_url": {"url": f"data:{mime};base64,{text}"}}


def _named(
    images: Iterable[ImageFile], videos: Iterable[MediaFile], audio: Iterable[AudioFile]
) -> Iterable[tuple[MediaKind, ImageFile | AudioFile]]:
    kinds: tuple[tuple[MediaKind, str, Iterable[ImageFile | AudioFile]], ...] = (
        ("image", "images", images),
        ("video", "videos", videos),
        ("audio", "audio", audio),
    )
    for kind, name, files in kinds:
        is_sound = isinstance(files, tuple) and len(files) == 2 and isinstance(files[1], int)
        if is_file(files) or isinstance(files, PillowImage | PixelArray) or is_sound:
            raise ValueError(f"{name} is one file: expected a list, of it alone if need be")
        for file in files:
            yield kind, file


def _messages(prompt: Sequence[str | Mapping[str, Any]]) -> list[Message]:
    found: list[Message] = []
    for index, each in enumerate(prompt):
        if isinstance(each, str):
            found.append({"role": "user", "content": each})
        elif isinstance(each, Mapping):
            found.append(dict(each))
        else:
            raise ValueError(f"message {index} is {type(each).__name__}: expected a text or a message")
    if not found:
        raise ValueError("the conversation is empty: expected at least one message")
    return found


def _content_parts(content: object) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(content) if isinstance(content, Sequence) else []
