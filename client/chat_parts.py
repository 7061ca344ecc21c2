"""What is asked, as messages: texts, messages in OpenAI's shape, and files by path, bytes or address.

Knows no server. Read next: `client/chat_dialog.py`.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from .upload import is_address

MediaFile: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview
"""A path, the bytes of a file, or an address (`https:`, `data:`), which the server fetches if it may."""
Message: TypeAlias = dict[str, Any]
"""A message in OpenAI's shape: `role`, `content`, and what else it has."""
Prompt: TypeAlias = str | Sequence[str | Mapping[str, Any]]
"""A question, or a conversation: messages in OpenAI's shape; texts among them are the user's."""

MediaKind = Literal["image", "video", "audio"]

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
    images: Iterable[MediaFile] = (),
    videos: Iterable[MediaFile] = (),
    audio: Iterable[MediaFile] = (),
) -> list[Message]:
    """The messages of a request; files stand in front of the text of the last one, which is the user's.

    Raises ValueError for what is none, OSError for a path that cannot be read.
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


def media_part(kind: MediaKind, file: MediaFile) -> Message:
    """A file as a part of a message. Raises OSError for a path that cannot be read."""
    if is_address(file):
        return {"type": f"{kind}_url", f"{kind}_url": {"url": file}}
    data = bytes(file) if isinstance(file, bytes | bytearray | memoryview) else Path(file).read_bytes()
    text = base64.b64encode(data).decode()
    if kind == "audio":
        found = next((name for start, name in _AUDIO if data.startswith(start)), None)
        found = found or ("m4a" if data[4:8] == b"ftyp" else "wav")
        return {"type": "input_audio", "input_audio": {"data": text, "format": found}}
    mime = next((name for start, name in _SIGNATURES if data.startswith(start)), _USUAL[kind])
    return {"type": f"{kind}_url", f"{kind}_url": {"url": f"data:{mime};base64,{text}"}}


def _named(
    images: Iterable[MediaFile], videos: Iterable[MediaFile], audio: Iterable[MediaFile]
) -> Iterable[tuple[MediaKind, MediaFile]]:
    kinds: tuple[tuple[MediaKind, str, Iterable[MediaFile]], ...] = (
        ("image", "images", images),
        ("video", "videos", videos),
        ("audio", "audio", audio),
    )
    for kind, name, files in kinds:
        if isinstance(files, str | bytes | bytearray | memoryview | os.PathLike):
            raise ValueError(f"{name} is one file: expected several, as [{str(files)[:60]!r}]")
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
